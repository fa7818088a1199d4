"""Weights of the players that an actor has met: the newest of each learning player, a fixed copy of each opponent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from celery.utils.log import get_logger

from agents.policies import Policy
from league.matchmaking.view import ModelRef
from league.state.league_state import Match
from tasks.events import WEIGHTS, Subscription, of_player
from warren.errors import PlayerUnavailable
from workers.rollout.games.selfplay_sampler import MatchSampler
from workers.rollout.sampler import load_into
from workers.runtime.league_policies import LeaguePolicies
from workers.runtime.policy_cache import FrozenPolicies
from workers.runtime.session import Session
from workers.runtime.weight_sync import NewestWeights

logger = get_logger(__name__)

GENERATION_PATIENCE = 10.0  # s to wait for weights of a generation that the league has announced
POLL_EVERY = 0.1  # s between reads of the pool meanwhile


class InMatches(Protocol):
    """Games of a learning player in matches: one MatchTables with its policy, or several that share a policy."""

    @property
    def held(self) -> list[str]:
        """Ids of the matches under way. All members mean the same as in MatchTables."""
        ...

    def load(self, weights: Mapping[str, Any], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """Load weights, as Sampler.load does."""
        ...

    def restart(self) -> None: ...

    def lose(self, matches: Iterable[str]) -> None: ...

    def leave(self) -> None: ...


@dataclass
class Learning:
    """A learning player as this actor knows it: its newest weights, and its games once it has played at home."""

    name: str
    weights: NewestWeights
    subscription: Any
    policy: Policy
    generation: int = 0
    version: int = -1
    played_at: float = 0.0  # monotonic time at which it last played at home, s
    extend_at: float = 0.0  # monotonic time at which the leases of its matches are extended next, s
    sampler: MatchSampler | None = None
    matches: InMatches | None = None
    begun: int = 0  # times that this actor has made its games
    policies: LeaguePolicies | None = None  # make its policy anew if its first weights are of another network
    waited_for: bool = False  # this actor has waited for its first weights, which did not come

    def refresh(self) -> None:
        """Load the newest weights that have arrived; restart the games if the player was reset."""
        newest = self.weights.stamped(newer_than=self.version)
        if newest is None:
            return
        stamp, tensors = newest
        version, behaviour = stamp["version"], stamp.get("behaviour")
        if self.version < 0 and self.policies is not None:
            network = self.policies.network_of(self.name, stamp)
            if network != self.policies.network_of(self.name):
                self.policy = self.policies.new(self.name, network=network)
        if self.matches is None:
            load_into(self.policy, tensors, version, behaviour)
        else:
            self.matches.load(tensors, version, behaviour)
        begun_anew = self.version >= 0 and stamp.get("generation", 0) != self.generation
        self.version, self.generation = version, stamp.get("generation", 0)
        if begun_anew and self.matches is not None:
            self.matches.restart()


class KnownPlayers:
    """Players by name. The weights of an opponent stay the same from the first decision of a match to its last.

    `patience`: s to wait for the first weights of an opponent.
    """

    def __init__(
        self,
        session: Session,
        subscriber: str,
        policies: LeaguePolicies,
        stopping: threading.Event,
        patience: float,
    ) -> None:
        self._session, self._subscriber, self._policies = session, subscriber, policies
        self._stopping, self._patience = stopping, patience
        self._frozen = FrozenPolicies(session.pool, policies.frozen)
        self._learning: dict[str, Learning] = {}
        self._meeting = threading.Lock()
        # Copies of learning players by (name, version), each for as long as a match is played with it.
        self._copies: WeakValueDictionary[tuple[str, int], Policy] = WeakValueDictionary()

    def __getitem__(self, name: str) -> Learning:
        """Return a learning player; the first call subscribes to its weights. From any thread."""
        with self._meeting:
            if name not in self._learning:
                weights = NewestWeights(self._session.pool, name)
                subscription = Subscription(
                    self._session.app,
                    self._session.topology,
                    {of_player(WEIGHTS, name): weights.receive},
                    subscriber=self._subscriber,
                    on_connected=weights.fetch,
                ).start()
                policy = self._policies.new(name)
                self._learning[name] = Learning(name, weights, subscription, policy, policies=self._policies)
            return self._learning[name]

    def all(self) -> list[Learning]:
        """Return every learning player that was met."""
        return list(self._learning.values())

    def fits(self, match: Match) -> bool:
        """Return whether this actor holds weights of the generations that play in `match`.

        Right after a reset it may still hold the old weights, whose games would count for the new generation. So it
        waits up to GENERATION_PATIENCE s for the new ones. Raises PlayerUnavailable for a player without any weights.
        """
        home, *opponents = match.standing
        return self._holds(*home) and all(one[0] == match.home or self._holds(*one) for one in opponents)

    def opponents(self, match: Match, models: Sequence[ModelRef | None]) -> tuple[Policy | None, ...]:
        """Return the policies of the opponents in `match`; None for self-play with the learning policy itself.

        `models`: the model of each frozen opponent, None for the others. Raises PlayerUnavailable when a player has
        published no weights.
        """
        names = match.names[1:]
        return tuple(self._opponent(match.home, name, model) for name, model in zip(names, models, strict=True))

    def _opponent(self, home: str, away: str, model: ModelRef | None) -> Policy | None:
        if away == home:
            return None
        if model is not None:
            return self._frozen[model]
        learning = self._begun(away)
        key = (learning.name, learning.version)
        copy = self._copies.get(key)
        if copy is None:
            copy = self._copies[key] = deepcopy(learning.policy).requires_grad_(False)
        return copy

    def _begun(self, name: str) -> Learning:
        """Return a learning player with weights loaded. Raises PlayerUnavailable when it has published none.

        Waits for them only once: a player whose learner cannot start must not delay the others again and again.
        """
        learning = self[name]
        if learning.version < 0:
            if learning.weights.version < 0 and (
                learning.waited_for or not learning.weights.wait_for(0, self._stopping, self._patience)
            ):
                learning.waited_for = True
                raise PlayerUnavailable(f"{name!r} is to be played and has published no weights; is its learner up?")
            learning.refresh()
        return learning

    def _holds(self, name: str, generation: int, frozen: bool) -> bool:
        if frozen:
            return True
        learning = self._begun(name)
        until = time.monotonic() + GENERATION_PATIENCE
        while learning.generation < generation and time.monotonic() < until and not self._stopping.wait(POLL_EVERY):
            learning.weights.fetch()
            learning.refresh()
        return learning.generation == generation
