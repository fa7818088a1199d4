"""The actor of a served league: env runners step the games of its matches, and it decides for both sides of them.

It plays for each learning player in turn, as streaming actors do (streaming.py), in the games of all groups that call.
It makes one forward pass for the learning player, and one for each opponent that is to move in any of these games. Only
this actor knows a group's matches and their weights; when the group moves to another actor, its games begin anew.

It has two threads: the service thread answers the groups; the sampling thread decides which player to play for, takes
the collected trajectories, and sends them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

import torch

from agents import devices
from agents.trajectories import Trajectory
from warren.errors import LeagueError, WarrenError
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.leagues import actor
from workers.leagues.actor import LeagueActorRole
from workers.leagues.group_counts import GroupCounts
from workers.leagues.known_players import Learning
from workers.leagues.served_games import GamesElsewhere, Group, GroupsOfPlayer, check
from workers.rollout.games.decisions import decide
from workers.rollout.games.match_scheduler import MatchTables
from workers.rollout.sampler import SamplerClosed
from workers.rollout.served.group_calls import Answer, Call, answer_all
from workers.rollout.served.role import serve, service_of
from workers.runtime.session import Session
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)

STAY = 10.0  # s after which a group may be told to go to an actor that has fewer groups
AHEAD = 2  # complete segments of a player that may wait to be taken
LOOK_EVERY = 0.2  # s between checks of whether to stop, while waiting


class ServedLeagueRole(LeagueActorRole):
    """A league's actor whose games are stepped by env runners; `act` answers their calls."""

    def __init__(
        self, config: Config, session: Session, league: LeagueConfig, servers_are_remote: bool = False
    ) -> None:
        super().__init__(config, session, league, servers_are_remote)
        self.timing = Timing()
        self.spec = self.policies.new(config.player).spec(True)  # observations and masks are the same for all
        self._changed = threading.Condition()  # guards the fields below, the players and their matches
        self._known: dict[str, Group] = {}
        self._home: Learning | None = None  # the player that the games are played for now
        self._wanted = 0  # complete trajectories that make a segment
        self._failure: Exception | None = None  # the error that kept this actor from playing for it
        self._generator = torch.Generator().manual_seed(self._seed("actions"))
        self._counts = GroupCounts(session.redis, session.topology.key_prefix, config.actor_id or 0)

    def _device(self) -> torch.device:
        return devices.resolve(self.config.actor_device, "actor_device")

    # The sampling thread.

    def _play(self, home: Learning, actors: int, trajectories: int) -> tuple[Trajectory, dict[str, int]]:
        with self._changed:
            self.refresh()
            self._home, self._wanted, self._failure = home, trajectories, None
            self._changed.notify_all()
            while not self.stopping.is_set():
                self._counts.say(self.groups)
                if self._failure is not None:
                    raise self._failure
                if self._complete():
                    assert isinstance(home.matches, GroupsOfPlayer)
                    taken = home.matches.take(trajectories)
                    self._changed.notify_all()
                    return taken, {"expired": home.matches.pop_expired(), "generation": home.generation}
                self._changed.wait(LOOK_EVERY)
                self.forget_idle()
            raise LeagueError("this actor is to stop")

    def work(self, name: str) -> int:
        """Serve until told to stop."""
        return serve(self.session, self, lambda: self, name)

    def leave(self) -> None:
        """Leave as LeagueActorRole does, and log how the time was spent."""
        super().leave()
        logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))

    def leave_matches(self, home: Learning) -> None:
        """Report the matches of `home` and close its games in all groups."""
        with self._changed:
            super().leave_matches(home)
            for group in self._known.values():
                group.of_player.pop(home.name, None)

    # The thread of services.

    @property
    def groups(self) -> int:
        """Number of groups that this actor serves."""
        return sum(not group.left for group in self._known.values())

    def act(self, calls: Sequence[Call]) -> list[Answer | Exception]:
        """Return an answer for each call, a WireError for a malformed one.

        Waits while there is no player to play for, and while AHEAD segments wait to be taken. Raises SamplerClosed.
        """
        began = time.perf_counter()

        def read(call: Call) -> Call:
            self._take_call(call)
            return call

        def answer(asked: Mapping[str, Call]) -> None:
            if self._complete():
                self._changed.notify_all()
            heard = time.perf_counter()
            plays = self._prepared(asked)
            prepared = time.perf_counter()
            self._decide(asked, plays)
            self.timing.add("serve: outcomes", heard - began)
            self.timing.add("serve: matches, waiting", prepared - heard)
            self.timing.add("serve: decide", time.perf_counter() - prepared)

        with self._changed:
            return answer_all(calls, self._known, read, answer)

    def forget_idle(self) -> int:
        """Give up groups that have not called for the length of a lease, since they are gone; return how many."""
        with self._changed:
            before = time.monotonic() - self.league.lease
            idle = [name for name, group in self._known.items() if group.used_at < before]
            for name in idle:
                self._give_up(name)
            return len(idle)

    def _take_call(self, call: Call) -> None:
        """Take in a call, unless it is a repeated one. Raises WireError for a malformed call, and changes nothing."""
        now, name = time.monotonic(), call["group"]
        known = self._known.get(name)
        if known is not None and call["step"] == known.heard:
            return
        check(call, self.spec, self.league.tables)
        if (
            known is None
            or (call["step"], call["player"], call["games"]) != (known.heard + 1, known.asked, known.games)
            or known.left
        ):
            self._give_up(name)
            self._known[name] = Group(call["games"], now, now, call["step"])
            return
        known.heard, known.used_at = call["step"], now
        tables = known.of_player.get(call["player"])
        if tables is not None:
            assert isinstance(tables.play, GamesElsewhere)
            tables.ended |= tables.play.hear(call)

    def _prepared(self, asked: Mapping[str, Call]) -> dict[str, MatchTables[GamesElsewhere]]:
        """Return the games that each group steps next, ready for a move; groups that are to leave get none."""
        while True:
            self._changed.wait_for(lambda: self.stopping.is_set() or self._may_play(), timeout=LOOK_EVERY)
            if self.stopping.is_set():
                raise SamplerClosed("this actor ends")
            home = self._home
            if home is None or not self._may_play():
                continue
            try:
                self.keep_matches(home)
                return {name: self._tables(name, home) for name in asked if not self._should_leave(name)}
            except Exception as error:  # passed to the sampling thread, which tries again or gives up
                self._failure, self._home = error, None
                self._changed.notify_all()

    def _complete(self, segments: int = 1) -> bool:
        """Return whether `segments` segments of the player that the games are played for are complete."""
        matches = None if self._home is None else self._home.matches
        return isinstance(matches, GroupsOfPlayer) and matches.ready >= segments * self._wanted

    def _may_play(self) -> bool:
        return self._home is not None and not self._complete(AHEAD)

    def _tables(self, name: str, home: Learning) -> MatchTables[GamesElsewhere]:
        """Return the games of `home` that this group steps, each table in a match."""
        group = self._known[name]
        group.asked = home.name
        if home.matches is None:
            home.matches = GroupsOfPlayer(home.policy, home.version)
        assert isinstance(home.matches, GroupsOfPlayer)
        tables = group.of_player.get(home.name)
        if tables is None:
            home.begun += 1
            play = GamesElsewhere(
                group.games,
                home.policy,
                recorded=home.name if self.recorder.active else None,
                seed=self._seed(f"{home.name} games {home.begun}"),
                unroll_length=self.league.unroll_length,
                tables=self.league.tables,
                reward_scale=self.league.reward_scale,
                max_age=self.config.max_staleness,
                fields=self.fields_of(home),
                minimax=self.league.minimax_of(home.name),
            )
            tables = MatchTables(play, self.league.match_games, self.host(home))
            home.matches.add(tables)
            group.of_player[home.name] = tables
        tables.prepare()
        return tables

    def _decide(self, asked: Mapping[str, Call], prepared: Mapping[str, MatchTables[GamesElsewhere]]) -> None:
        """Set the answer to each call."""
        going = {name: tables.play for name, tables in prepared.items() if tables.play.begun}
        actions = dict(zip(going, decide(list(going.values()), self._generator), strict=True))
        for name in prepared:
            group = self._known[name]
            next_move = {"action": actions[name]} if name in actions else {"begin": True}
            group.answer = {"player": group.asked, **next_move}
        for name, call in asked.items():
            self._known[name].step = call["step"]

    def _should_leave(self, name: str) -> bool:
        """Return whether the group is to move to another actor; if so, give up its games here."""
        group = self._known[name]
        if group.left or time.monotonic() - group.came_at < STAY:
            return group.left
        group.came_at = time.monotonic()
        fewer = self._counts.fewer(self.groups)
        if fewer is None:
            return False
        logger.info("group %s goes to actor %d, which has fewer", name, fewer)
        self._give_up(name)
        self._known[name] = group
        group.of_player, group.left, group.answer = {}, True, {"leave": service_of(fewer)}
        return True

    def _give_up(self, name: str) -> None:
        """Report the results of the group's games and forget the group."""
        group = self._known.pop(name, None)
        if group is None:
            return
        for player, tables in group.of_player.items():
            matches = self.players[player].matches
            try:
                tables.leave()
            except WarrenError as error:  # their leases run out
                logger.warning("matches of %s were not given back: %s", player, error)
            if isinstance(matches, GroupsOfPlayer):
                matches.remove(tables)


def run(config: Config) -> int:
    """Serve until the run is over or a stop, as a league's other actors do."""
    return actor.run(config, ServedLeagueRole)
