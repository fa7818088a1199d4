"""The recipe of a league's player: it is made by the league's settings, anew in each of its generations."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from agents.policies import Policy
from tasks.events import STATUS, WEIGHTS, of_player
from workers.config import teachers
from workers.config.league import LeagueConfig
from workers.learning.player_state import Surroundings
from workers.runtime.league_paths import player_folder
from workers.runtime.league_policies import LeaguePolicies


class LeagueRecipe:
    """A Recipe by the settings of a league; its folder is the player's, within the run folder.

    `pool_is_back`: the league has given out a learning period, so a saved pool has been restored by now.
    """

    legal_actions = has_generations = True

    def __init__(self, session: Surroundings, league: LeagueConfig) -> None:
        self._league, self._pool, self._seed = league, session.pool, session.config.seed
        self.player = session.config.player
        self.weights_event, self.status_event = of_player(WEIGHTS, self.player), of_player(STATUS, self.player)
        self.algorithm_settings: Mapping[str, Any] = league.algorithm_of(self.player)
        self.algorithm_name = str(self.algorithm_settings["name"])
        self._policies = LeaguePolicies(league)
        self._network = self._policies.network_of(self.player)
        self.share = league.share_of(self.player)
        self.averages: Sequence[float] = league.averages_of(self.player)
        self.pool_is_back = False
        self.folder = player_folder(session.config, self.player)
        self.folder.mkdir(parents=True, exist_ok=True)

    def new_policy(self, generation: int) -> Policy:
        """See Recipe."""
        return self._policies.new(self.player, self._seed_of("weights", generation), self._network)

    def take_network(self, stamp: Mapping[str, Any]) -> bool:
        """See Recipe: a player that the league's settings name keeps its network from there."""
        if self.player in self._league.players:
            return False
        before, self._network = self._network, self._policies.network_of(stamp.get("player", self.player), stamp)
        return self._network != before

    def order_seed(self, generation: int) -> int:
        """See Recipe."""
        return self._seed_of("order", generation)

    def load_teacher(self, name: str, student: Policy) -> Policy | None:
        """See Recipe; `name` may also be a model in the league's pool, once the pool is known to be restored."""
        if teachers.reference(name) is None or teachers.is_kept(name, self.folder):
            teacher, network = teachers.load(name, student, self.folder)
        elif not self.pool_is_back or self._pool is None:
            return None
        else:
            of_model, pool = self._policies.network_of, self._pool
            teacher, network = teachers.from_pool(name, lambda ref: pool.get(*ref).data, of_model, student)
        teachers.keep(teacher, network, name, self.folder)
        return teacher

    def describe(self) -> dict[str, Any]:
        """See Recipe."""
        return {"network": dict(self._network), "environment": self._league.env}

    def _seed_of(self, purpose: str, generation: int) -> int:
        return zlib.crc32(f"{self._seed}/{self.player}/{purpose}/{generation}".encode()) % (1 << 31)
