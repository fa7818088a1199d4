"""Scores of a league: exploitability if the game is small enough, returns against fixed references in any game."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import envs
from agents.policies import Policy, SlotMemory
from envs import exploitability
from envs.large.game import LargeGame
from envs.sequence_form import SequenceForm
from league.matchmaking.view import ModelRef
from warren.errors import ConfigurationError
from warren.files import drop_half_line
from workers.config.league import LeagueConfig
from workers.evaluation.cell_games import Player, Uniform, play

logger = logging.getLogger(__name__)

FILE = "evaluation.jsonl"
UNIFORM = "uniform"


@dataclass(frozen=True)
class Score:
    """The league at one moment. Exploitability is in points per game, None if the game is too large for it."""

    time: float  # Unix time, s
    seconds: float  # since the league's first score
    steps: dict[str, int]  # decisions of each learning player
    frozen: int  # number of frozen players
    games: int  # number of games that evaluators have played
    main_agent: float | None
    mixture: float | None
    references: dict[str, float]  # mean return of the main agent against each, over both seats
    gain_within: tuple[float, float] | None = None  # bounds of the best opponent's gain against the mixture
    uniform: float | None = None  # exploitability of uniform play, to compare with
    frozen_by_kind: dict[str, int] = field(default_factory=dict)  # numbers of frozen players
    shares_by_kind: dict[str, float] = field(default_factory=dict)  # the mixture's, on average over both seats
    alpha_rank: dict[str, float] = field(default_factory=dict)  # of the mixture's highest-ranked members
    gains: dict[str, dict[str, Any]] = field(default_factory=dict)  # of best responses, by player: league.rules.gains

    def __str__(self) -> str:
        """Return the score in a line, for logs."""
        named = {"the main agent": self.main_agent, "the mixture": self.mixture, "uniform play": self.uniform}
        known = [f"{value:.4f} of {name}" for name, value in named.items() if value is not None]
        returns = [f"{value:+.3f} a game against {name}" for name, value in self.references.items()]
        parts = [f"exploitability {', '.join(known)}"] if known else []
        parts += [f"the main agent gains {', '.join(returns)}"] if returns else []
        return "; ".join([*parts, f"{self.frozen:,} frozen players, {self.games:,} games"])


class Scores:
    """The scores of one league, one per line of `FOLDER/evaluation.jsonl`; a resumed run goes on with its file.

    `form`: the whole game, if it has been written out already.
    """

    def __init__(self, league: LeagueConfig, folder: Path, seed: int, form: SequenceForm | None = None) -> None:
        self._league = league
        self._path = folder / FILE
        drop_half_line(self._path)
        known = read_scores(folder)
        self._seconds = known[-1]["seconds"] if known else 0.0
        self._since = time.monotonic()
        self._form = form
        try:
            if form is None:
                self._form = exploitability.load(league.env, **league.env_kwargs)
        except ConfigurationError as error:
            if league.goal is not None:
                raise
            if exploitability.large(league.env, **league.env_kwargs) is None:
                logger.warning("scores are without exploitability: %s", error)
            else:
                logger.warning(
                    "scores are without exploitability, which takes minutes in %s: "
                    "python -m workers.exploitability RUN --exact computes it",
                    league.env,
                )
        form = self._form
        self.uniform = None if form is None else exploitability.of(form, exploitability.uniform(form))  # uniform play's
        self._tables: dict[ModelRef, np.ndarray] = {}  # strategies of the mixture's members, as they are scored
        self._games = envs.make_two_player(league.env, league.reference_games, seed, **league.env_kwargs)
        self._generator = torch.Generator().manual_seed(seed)

    def of_policy(self, policy: Policy | None) -> float | None:
        """Return the exploitability of `policy`; None if it cannot be computed."""
        return None if policy is None or self._form is None else exploitability.of(self._form, self._table(policy))

    def of_mixture(
        self, members: Sequence[ModelRef], policy_of: Callable[[ModelRef], Policy], shares: np.ndarray
    ) -> float | None:
        """Return the exploitability of drawing a frozen model of `members` before each game, by `shares` [2, K].

        Only models with a share are loaded, by `policy_of`, and tabulated, once for as long as they have a share.
        """
        if not members or self._form is None:
            return None
        held = np.flatnonzero(shares.max(axis=0) > 0.0).tolist()
        known, self._tables = self._tables, {}
        for model in (members[place] for place in held):
            self._tables[model] = known[model] if model in known else self._table(policy_of(model))
        tables = [self._tables[members[place]] for place in held]
        return exploitability.of(self._form, exploitability.mixture(self._form, tables, shares[:, held]))

    def against(self, policy: Policy, reference: Policy | None, side: int | None = None) -> float:
        """Return the mean gain of `policy` against `reference` (None: uniform), which has all other seats.

        `policy` plays equally many games on each side, or all of them on `side`.
        """
        other: Player = reference or Uniform()
        sides = range(len(self._games.teams)) if side is None else [side]
        return float(np.mean([play(self._games, policy, other, 1, self._generator, side=one).mean() for one in sides]))

    def record(
        self,
        steps: dict[str, int],
        frozen: int,
        games: int,
        main_agent: float | None,
        mixture: float | None,
        references: dict[str, float],
        gain_within: tuple[float, float] | None = None,
        **composition: Any,
    ) -> Score:
        """Append a score to the file and return it; if the disk is full, it is only missing in the file.

        `composition`: the fields of Score about the mixture's members and about best responses.
        """
        seconds = self._seconds + time.monotonic() - self._since
        found = main_agent, mixture, references, gain_within, self.uniform
        score = Score(time.time(), seconds, steps, frozen, games, *found, **composition)
        try:
            drop_half_line(self._path)  # left by a disk that was full the last time
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(score)) + "\n")
        except OSError as error:
            logger.warning("a score is not in %s: %s", self._path, error)
        return score

    def _table(self, policy: Policy) -> np.ndarray:
        assert self._form is not None
        return table(self._form, policy)


def table(form: SequenceForm, policy: Policy) -> np.ndarray:
    """Return the probabilities of `policy` at every information state, float64 [I, A].

    A policy with a memory is asked in the order of its own moves, so that it remembers those that led to a state.
    """
    if not policy.has_memory:
        return exploitability.tabulate(form, policy.probabilities)
    found = np.zeros(form.action_mask.shape)
    remembered = SlotMemory(policy.initial_memory(len(found)))  # after the decision at each state
    for states, before in form.own_moves():
        memory = policy.begin(remembered.of(before), before < 0)
        found[states], memory = policy.probabilities_after(memory, form.observation[states], form.action_mask[states])
        remembered.keep(states, memory)
    return found


def of_large(game: LargeGame, policies: Sequence[Policy], shares: np.ndarray) -> float:
    """Return the exploitability of drawing one of `policies` before each game, by `shares` [2, K].

    Raises ConfigurationError for a policy with a memory, and for too little memory of this machine.
    """
    if any(policy.has_memory for policy in policies):
        raise ConfigurationError(
            f"environment {game.name!r}: its exact exploitability is known for networks without a memory alone; "
            "let best responses learn instead"
        )
    return game.exploitability([policy.probabilities for policy in policies], shares)


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """Read all scores of a run folder, oldest first, without a last line that is being written."""
    path = folder / FILE
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
