"""Learners of players that are added to a league while it runs; if a learner cannot start, the league goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import redis

from league.matchmaking.view import Player
from league.redis.pause_reasons import PauseReasons
from league.redis.store import Store
from warren.errors import WarrenError
from workers.config.schema import Config
from workers.launch.kinds.training_spec import added_learners, learner_name
from workers.launch.monitor import Context
from workers.launch.processes.supervisor import Managed


class AddedLearners:
    """Starts these learners. A player whose learner cannot start, or was given up, is paused until it is resumed."""

    def __init__(self, config: Config, context: Context, store: Store) -> None:
        self._config, self._context, self._store = config, context, store
        self._reasons = PauseReasons(store)
        self._children: dict[str, list[Managed]] = {}  # player -> its learners
        self._failed: dict[str, str] = {}  # player -> why its learner does not run
        self._paused: set[str] = set()  # players that are paused for that reason

    def start(self, player: str) -> None:
        """Start the learner of a player."""
        children = self._children[player] = list[Managed]()
        with contextlib.suppress(redis.RedisError):
            self._reasons.forget(player)
        try:
            for spec in added_learners(self._config, self._context.folder.path, player):
                children += [self._context.supervisor.start(spec, rank) for rank in spec.ranks]
        except WarrenError as error:
            self._failed[player] = str(error)

    def look(self, learning: Iterable[Player]) -> None:
        """Pause players whose learner does not run, and start the learners of players that were resumed since."""
        for player in learning:
            if player.name not in self._children:
                continue
            first = (one for one in self._children[player.name] if one.name == learner_name(player.name))
            why = self._failed.get(player.name) or next((one.given_up for one in first), "")
            if why and player.name not in self._paused:
                self._pause(player.name, why)
            elif player.name in self._paused and not player.paused:
                self._context.say(f"player {player.name} was resumed; starting its learner")
                self._end(player.name)
                self.start(player.name)

    def _pause(self, player: str, why: str) -> None:
        try:
            self._store.pause(player, by="launcher")
            self._reasons.note(player, why)
        except (redis.RedisError, WarrenError):
            return  # the next look tries again
        self._paused.add(player)
        self._context.say(
            f"error: player {player} is paused, since its learner cannot run: {why}; the league goes on. "
            f"Once that is mended: python -m league.manage resume {player}"
        )

    def _end(self, player: str) -> None:
        """Forget the learners of a player, and tell those that still run to leave."""
        self._paused.discard(player)
        self._failed.pop(player, None)
        for child in self._children[player]:
            if child.alive and not child.leaving:
                self._context.supervisor.remove(child.name)
            elif child in self._context.supervisor.children and not child.leaving:
                self._context.supervisor.children.remove(child)
