"""The recorded matches of a run, from its folder, with their game and the weights that were kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import envs
from agents.checkpoints import fingerprint
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.models.saved_files import frozen_models, model_bytes
from warren.errors import ConfigurationError, ReplayError, UnknownName
from workers.config.schema import from_yaml
from workers.replays import folder as records
from workers.replays.match_record import RecordedMatch
from workers.rollout.games.game_log import Weights
from workers.runtime.league_paths import league_of
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.trained import run_in

LOADED = 64  # policies that are kept loaded


class RecordedRun:
    """A league's run folder, or the newest one in a folder of runs. Raises ConfigurationError for any other.

    The run's own configuration names the code that plays; a record never does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = run_in(folder)
        config = from_yaml(self.folder / "config.yaml")
        if config.league is None:
            raise ConfigurationError(f"{self.folder} is not a league's folder: it records no matches (docs/replays.md)")
        self.league = league_of(config)
        self._make = LeaguePolicies(self.league)
        self._policies: OrderedDict[Weights, Policy | None] = OrderedDict()

    def matches(self) -> Iterator[RecordedMatch]:
        """Yield all recorded matches, the oldest first. Raises ReplayError if one is damaged, or of another game."""
        for record in records.read(self.folder / records.FOLDER):
            if (record.env, dict(record.env_kwargs)) != (self.league.env, dict(self.league.env_kwargs)):
                raise ReplayError(
                    f"match {record.match} is of {record.env!r} with {dict(record.env_kwargs)}, and the run is of "
                    f"{self.league.env!r} with {dict(self.league.env_kwargs)}"
                )
            yield record

    def count(self) -> int:
        """Return how many matches are recorded; one that was sent twice counts twice."""
        return records.count(self.folder / records.FOLDER)

    def match(self, name: str) -> RecordedMatch:
        """Return the match whose id begins with `name`, or the last one for "last".

        Raises UnknownName, and ConfigurationError if there are several.
        """
        known: list[str] = []
        found: list[str] = []
        one: RecordedMatch | None = None  # the only record that is kept while all are read
        for record in self.matches():
            known.append(record.match)
            if record.match == name:
                return record
            if name == "last":
                one = record
            elif record.match.startswith(name):
                one = record
                found.append(record.match)
        if len(found) > 1:
            raise ConfigurationError(f"match {name!r} may be {', '.join(found[:5])}; give more of its id")
        if one is None:
            raise UnknownName("match", name, known, f"in {self.folder}; without one, all are listed")
        return one

    def games(self, **kwargs: Any) -> envs.TwoPlayerVectorEnv:
        """Return an environment of one slot in which matches are played again; `kwargs` go to the game."""
        return envs.make_two_player(self.league.env, 1, 0, **{**self.league.env_kwargs, **kwargs})

    def policy(self, weights: Weights) -> Policy | None:
        """Return the policy that played; None if its weights were not frozen.

        Raises ReplayError if the frozen weights are different now.
        """
        if weights not in self._policies:
            self._policies[weights] = self._load(weights)
            while len(self._policies) > LOADED:
                self._policies.popitem(last=False)
        self._policies.move_to_end(weights)
        return self._policies[weights]

    def _load(self, weights: Weights) -> Policy | None:
        model = ModelRef(weights.player, weights.version)
        if str(model) not in frozen_models(self.folder / "league"):
            return None
        data, path = model_bytes(self.folder / "league", model)
        policy = self._make.frozen(model, data, str(path))
        if fingerprint(policy) != weights.digest:
            raise ReplayError(f"{path} holds other weights than those that played as {model}; is it of another run?")
        return policy
