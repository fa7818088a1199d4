"""A league's run: league workers, a learner for each player, actors, evaluators; a live view, and a clean end.

It is over when the evaluator finds the league's Nash mixture at the goal, when all steps are done, or when the time is
up. Players that a person adds while it runs get a learner as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from tasks.admin.cleanup import Depths, remove_run
from tasks.events import EVALUATION, STATUS, Subscription, of_player
from tasks.topology import Topology
from warren.errors import BrokerError, WarrenError
from workers import servers
from workers.config.league import LeagueConfig
from workers.config.schema import Config
from workers.evaluation.scores import read_scores
from workers.launch.interrupts import KILLED, Interrupts
from workers.launch.scaling import Scaling
from workers.launch.supervisor import Supervisor
from workers.runtime.league_paths import league_of, store_of
from workers.runtime.session import Session
from workers.ui.league_view import LeagueFigures, LeagueView, strength

LOOK_EVERY = 0.1  # s between looks at children and figures
LEAGUE_EVERY = 2.0  # s between looks at the league and the queues


class LeagueRun:
    """The children of a league's run, and what is known of it."""

    def __init__(
        self, config: Config, league: LeagueConfig, session: Session, supervisor: Supervisor, view: LeagueView
    ) -> None:
        self.config, self.league, self.session, self.supervisor, self.view = config, league, session, supervisor, view
        self.store = store_of(session)
        self.figures = LeagueFigures()
        self.waiting: dict[str, int] = {}
        self._depths = Depths(session.app, session.topology)
        self._subscriptions: list[Subscription] = []
        self.scaling = Scaling(session, supervisor, view.say)
        self._look_at = 0.0
        self._started = time.monotonic()

    def start(self) -> None:
        """Start every role."""
        self._subscribe(EVALUATION, self.figures.score.update)
        supervisor, config = self.supervisor, self.config
        self.scaling.start()
        for player in self.league.players:
            self._learn(player)
        if config.flower_port is not None:
            supervisor.add("flower", "flower")
            self.view.say(f"Flower at http://{config.flower_address}:{config.flower_port}")

    def look(self) -> str | None:
        """Look after the children and the figures; how the run has ended, None while it goes on."""
        self.supervisor.poll()
        self.scaling.look()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LEAGUE_EVERY
            self._look_at_league()
        alive = f"{self.supervisor.alive()} of {len(self.supervisor.children)} alive"
        self.view.show_league(self.figures, self.waiting, alive)
        return self._ended()

    def stop(self) -> None:
        """Stop every child: learners and actors first, which still call the league; then the rest."""
        self.scaling.stop()
        self.supervisor.stop()
        for subscription in self._subscriptions:
            subscription.stop()
        self._depths.close()

    def announce(self, state: str) -> None:
        """Tell roles that were started elsewhere that the run is over."""
        try:
            self.session.events.fire(STATUS, {"state": state})
        except BrokerError as error:
            self.view.say(f"warning: {error}")

    @property
    def topology(self) -> Topology:
        """With the players that were added while the run went on."""
        players = dict.fromkeys([*self.session.topology.players, *self.figures.players])
        return replace(self.session.topology, players=tuple(players))

    def _ended(self) -> str | None:
        mixture, goal = self.figures.score.get("mixture"), self.league.goal
        if goal is not None and mixture is not None and mixture <= goal:
            return "solved"
        if self.config.seconds is not None and time.monotonic() - self._started >= self.config.seconds:
            return "finished"
        return "finished" if self.figures.steps >= self.config.total_steps else None

    def _look_at_league(self) -> None:
        self.waiting = self._depths.read()
        try:
            self.figures.counters = self.store.counters()
            roster = self.store.view().roster
        except (redis.RedisError, OSError):
            return  # away for a moment; the children say so where it matters
        for slot in roster.learning:
            player = roster.by_slot[int(slot)]
            if player.name not in self.figures.players:
                self.view.say(f"player {player.name} was added; starting its learner")
                self._learn(player.name)

    def _learn(self, player: str) -> None:
        self.figures.players[player] = {}
        self._subscribe(of_player(STATUS, player), self.figures.players[player].update)
        self.supervisor.add("learner", f"learner-{player}", f"player={player}", may_end=True)

    def _subscribe(self, event: str, handler: Callable[[Any], None]) -> None:
        session = self.session
        self._subscriptions.append(
            Subscription(session.app, session.topology, {event: handler}, subscriber="launcher").start()
        )


def train(config: Config, folder: Path, found: servers.Servers, view: LeagueView, interrupts: Interrupts) -> int:
    """Train until the end; exit status 0, 130 after Ctrl-C, 1 when it failed. The outcome is in the folder."""
    session = Session(config, found.broker_url, found.redis_url)
    session.declare()
    environment = {**found.environment(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    supervisor = Supervisor(folder, environment, config.restarts, view.say)
    interrupts.install(supervisor.processes)
    run = LeagueRun(config, league_of(config), session, supervisor, view)
    state, status, started = "stopped", 0, time.monotonic()
    try:
        run.start()
        while (ended := run.look()) is None:
            if interrupts.asked:
                view.say("stopping: learners write checkpoints, the league is saved (Ctrl-C again stops at once)")
                status = KILLED
                break
            if words := found.dead():
                raise WarrenError(words)
            time.sleep(LOOK_EVERY)
        else:
            state = ended
            run.announce(state)
    except WarrenError as error:
        view.say(f"error: {error}")
        state, status = "failed", 1
    finally:
        steps, topology = run.figures.steps, run.topology
        run.stop()
        outcome = {"state": state, "steps": steps, "seconds": time.monotonic() - started}
        (folder / "outcome.json").write_text(json.dumps(outcome, indent=1) + "\n")
        if found.dead() is None:
            _tidy_up(session, topology, view)
    return status


def _tidy_up(session: Session, topology: Topology, view: LeagueView) -> None:
    try:
        remove_run(session.app, session.redis, topology)
    except (BrokerError, redis.RedisError) as error:
        view.say(f"warning: the servers are away, so something of this run may be left there: {error}")


def last_words(folder: Path, status: int) -> int:
    """The outcome in a few lines, the last that is printed; the exit status."""
    outcome = json.loads((folder / "outcome.json").read_text())
    scores = read_scores(folder)
    for picture in sorted((folder / "pictures").glob("*.png")):
        print(f"picture {picture}")
    if scores:
        print(f"{scores[-1]['frozen']} frozen players, {scores[-1]['games']:,} games between them")
        print(strength(scores[-1]))
    if outcome["state"] in ("solved", "finished"):
        print(f"{outcome['state']}: {outcome['steps']:,} steps of all players in {outcome['seconds']:.0f} s")
        return 0
    print(f"{outcome['state']}; go on with: python -m workers.train resume={folder}", flush=True)
    return status or 1
