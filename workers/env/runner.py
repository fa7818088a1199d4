"""The env runner: two groups of environments, each on a thread of its own with its own connection to the actors.

While one group's observations are with an actor, Python steps the other. Environments that wait or compute outside
Python, as real games do, step at the same time, because the other thread may run meanwhile.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
import zlib
from typing import Any

from tasks.client.future import Handle
from tasks.client.solver import Solver
from warren.errors import BrokerError, CallError, ConfigurationError, RemoteFailure, WireError
from workers.config import roles
from workers.config.schema import Config
from workers.env.group import Group
from workers.env.match_group import MatchGroup
from workers.rollout.served.sampler import JOIN
from workers.runtime.facts import check_run_facts
from workers.runtime.league_paths import league_of
from workers.runtime.role import RoleProcess, enter, live
from workers.runtime.session import Session, source_name
from workers.runtime.timing import Timing

logger = logging.getLogger(__name__)

GROUPS = 2
PATIENCE = 3.0  # s to wait for an actor that no process serves, before another is asked for
LOOK_EVERY = 0.5  # s between looks at whether to stop, while an actor is waited for
ASK_AGAIN = 0.5  # s between tries to reach an actor
SAY_EVERY = 10.0  # s between lines of log about actors that do not answer
REFUSALS = 10  # answers in a row that are errors, after which the runner gives up
SWITCH = 0.0005  # s for which a thread may compute before the other gets its turn, which may have an answer by then


class EnvRunner(RoleProcess):
    """The groups of environments of this process, and the threads that step them."""

    def __init__(self, config: Config, session: Session, stopping: threading.Event | None = None) -> None:
        super().__init__(stopping)
        self.config, self.session = config, session
        self.source = source_name(config.env_runner_id, "env")
        self.timing = Timing()
        self._solver = Solver(session.app, session.topology, deadline=None, patience=PATIENCE)
        # No two groups may play the same episodes, and a process that was started again must not repeat its own.
        self._seed = zlib.crc32(f"{config.seed}/{self.source}".encode()) % (1 << 31)
        self._times = itertools.count()
        self._league = None if config.league is None else league_of(config)
        self._threads = [
            threading.Thread(target=self._run, name=f"group {index}", daemon=True) for index in range(GROUPS)
        ]

    def work(self, name: str) -> int:
        """Step the groups until told to stop; return exit status 0."""
        sys.setswitchinterval(SWITCH)
        for thread in self._threads:
            thread.start()
        self.stopping.wait()
        return 0

    def leave(self) -> None:
        """Wait until the groups have ended."""
        super().leave()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(timeout=5.0)
        self._solver.close()
        logger.info("where the time went:\n%s", "\n".join(self.timing.lines()))

    # A group's thread.

    def _run(self) -> None:
        try:
            failed = False
            while not self.stopping.is_set():
                group: Group | MatchGroup | None = None
                try:
                    group = self._make()
                    self._play(group)
                except ConfigurationError as error:
                    # An environment may fail once, like an actor's, and again after it has played on for a while.
                    if failed and (group is None or group.steps < self.config.unroll_length):
                        raise
                    failed = True
                    logger.error("%s; making the environments anew, once", error)
                finally:
                    if group is not None:
                        group.close()
        except BaseException as error:
            if isinstance(error, RemoteFailure) and error.kind == WireError.__name__:
                error = ConfigurationError(f"an actor refuses what this env runner sends: {error.remote_message}")
            elif not isinstance(error, ConfigurationError):
                logger.exception("playing failed")
            self.failure = self.failure or error
            self.stopping.set()

    def _make(self) -> Group | MatchGroup:
        env, times = self.config.env, next(self._times)
        name, seed = f"{self.source}/{times}", (self._seed + 7919 * times) % (1 << 31)
        if self._league is not None:
            return MatchGroup(name, self._league, self._league.slots(GROUPS * self.config.env_runners), seed)
        return Group(name, env.settings(), env.num_envs // GROUPS, seed)

    def _play(self, group: Group | MatchGroup) -> None:
        actor = ActorCaller(self._solver, group.name, self.stopping)
        name = threading.current_thread().name
        while not self.stopping.is_set():
            began = time.perf_counter()
            answer = actor.answer(group.call())
            if answer is None:
                return
            answered = time.perf_counter()
            group.step(answer)
            self.timing.add(f"{name}: actor", answered - began)
            self.timing.add(f"{name}: environments", time.perf_counter() - answered)


class ActorCaller:
    """Calls one actor until it sends the group away or does not answer, then any actor that takes the group in."""

    def __init__(self, solver: Solver, group: str, stopping: threading.Event) -> None:
        self._solver, self._group, self._stopping = solver, group, stopping
        self._service: str | None = None
        self._refused = 0  # in a row
        self._say_at = 0.0

    def answer(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to `call`, however long that takes; None if this process stops first.

        Raises RemoteFailure if REFUSALS answers in a row are errors.
        """
        while not self._stopping.is_set():
            try:
                if self._service is None:
                    self._service = self._result(self._solver.send(JOIN, self._group))
                    continue
                answer: dict[str, Any] | None = self._result(self._solver.send(self._service, call))
                self._refused = 0
                if answer is not None:
                    if "leave" in answer:
                        self._service = answer["leave"] or None
                    return answer
                self._service = None  # None: that actor ends, or this process does
            except (CallError, BrokerError) as error:
                self._service = None
                self._refused = self._refused + 1 if isinstance(error, RemoteFailure) else 0
                if self._refused >= REFUSALS:
                    raise
                if time.monotonic() >= self._say_at:
                    self._say_at = time.monotonic() + SAY_EVERY
                    why = f"{error.kind}: {error.remote_message}" if isinstance(error, RemoteFailure) else error
                    logger.warning("group %s: no actor answers, trying again: %s", self._group, why)
            self._stopping.wait(ASK_AGAIN)
        return None

    def _result(self, handle: Handle) -> Any:
        while True:
            try:
                return handle.result(LOOK_EVERY)
            except TimeoutError:
                if self._stopping.is_set():
                    return None


def run(config: Config) -> int:
    """Step environments until the run is over or a stop signal; return exit status 0, or 1 after a failure.

    Raises ConfigurationError if the environment fails again after it was made anew.
    """
    session = enter(config, roles.ENV)
    check_run_facts(session)
    stopping = session.stopped_by_signals()
    return live(session, roles.ENV, lambda config: EnvRunner(config, session, stopping), stopping)
