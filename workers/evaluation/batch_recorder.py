"""Batches of an evaluator's games that are recorded: two frozen players, all games in the same seats."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from agents.checkpoints import fingerprint
from agents.policies import Policy
from league.matchmaking.view import Player
from workers.config.league import LeagueConfig
from workers.replays.match_record import EVALUATION, RecordedMatch
from workers.replays.sending import ReplaySender
from workers.rollout.games.game_log import Recording, Weights


class BatchRecorder:
    """Records every `replay_evaluations`-th batch of one evaluator."""

    def __init__(
        self,
        league: LeagueConfig,
        sender: ReplaySender,
        source: str,
        player_at: Callable[[int], Player],
        policy_at: Callable[[int], Policy],
    ) -> None:
        self._league, self._sender, self._source = league, sender, source
        self._player_at, self._policy_at = player_at, policy_at
        self._count = 0

    def begins(self, first: int) -> Recording | None:
        """Return a recording for the batch that begins, with slot `first` in seat 0; None for no recording."""
        every = self._league.replay_evaluations
        self._count += 1
        if not every or (self._count - 1) % every:
            return None
        return Recording(self._weights(first), secrets.randbits(62))

    def ended(self, first: int, second: int, recording: Recording) -> None:
        """Send the recording of a batch that was played to the keeper of the folder."""
        league = self._league
        record = RecordedMatch(
            f"evaluation-{secrets.token_hex(8)}", (EVALUATION,), league.env, league.env_kwargs,
            self._player_at(first).name, self._player_at(second).name, self._weights(second), league.series, "",
            time.time(), self._source, tuple(recording.games),
        )  # fmt: skip
        self._sender.send(record.with_outcomes())

    def _weights(self, slot: int) -> Weights:
        model = self._player_at(slot).model
        assert model is not None  # a frozen player has one
        return Weights(model.player, model.version, fingerprint(self._policy_at(slot)))
