"""Growing and shrinking a run while it goes on: what its launcher listens to, and what the learner reads.

A request comes over the run's remote control (`tasks.app.control`, to the node NODE), is carried out in the
launcher's own thread, and is answered with what was done. How many actors there are stands in Redis as well, for the
learner: the next round of gathered sampling has as many rollouts.
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, cast

import redis
from celery.utils.log import get_logger
from kombu.mixins import ConsumerMixin

from warren.errors import ConfigurationError, WarrenError, unknown_name
from workers.config.schema import Config
from workers.config.validation import verify
from workers.launch.scale_request import ANSWER_WITHIN, COMMAND, NODE, launcher_key
from workers.launch.supervisor import Supervisor
from workers.runtime.actor_count import actors_key
from workers.runtime.session import Session

logger = get_logger(__name__)

_CHANGE = re.compile(r"([+-]?)(\d{1,4})")


@dataclass
class Group:
    """Processes of one role that a person may have more or fewer of. `setting`: what the configuration calls them."""

    setting: str
    role: str
    option: str  # the setting that numbers each
    last: bool = False  # told to stop after the others at the end of the run
    members: list[str] = field(default_factory=list)
    started: int = 0  # ever: a number is not used again, so each process has a log of its own

    def add_to(self, supervisor: Supervisor) -> str:
        """Start one more; its name."""
        name = f"{self.role}-{self.started}"
        supervisor.add(self.role, name, f"{self.option}={self.started}", last=self.last)
        self.started += 1
        self.members.append(name)
        return name


def groups_of(config: Config) -> list[Group]:
    """What a run of this configuration has."""
    actors = Group("actors", "actor", "actor_id")
    if config.league is None:
        return [actors]
    return [
        Group("league_workers", "league", "league_id", last=True),
        actors,
        Group("evaluators", "evaluator", "evaluator_id", last=True),
    ]


class Scaling:
    """The groups of one run: starts them, and changes them when asked to. `say` prints a line in the launcher."""

    def __init__(self, session: Session, supervisor: Supervisor, say: Callable[[str], None]) -> None:
        self._session, self._config, self._supervisor, self._say = session, session.config, supervisor, say
        self._groups = {group.setting: group for group in groups_of(session.config)}
        self._requests: queue.SimpleQueue[tuple[dict[str, str], Future[dict[str, Any]]]] = queue.SimpleQueue()
        self._desk = Desk(session.app, self._ask)

    def start(self) -> None:
        """Start as many of each group as configured, and listen."""
        for group in self._groups.values():
            for _ in range(getattr(self._config, group.setting)):
                group.add_to(self._supervisor)
        self._session.redis.set(launcher_key(self._session.topology.run), "")
        self._desk.start()

    def look(self) -> None:
        """Carry out what has been asked for."""
        while not self._requests.empty():
            wanted, answer = self._requests.get()
            try:
                answer.set_result(self._change(wanted))
            except (WarrenError, redis.RedisError) as error:
                answer.set_result({"error": str(error)})

    def stop(self) -> None:
        """Listen no more."""
        self._desk.stop()

    @property
    def counts(self) -> dict[str, int]:
        """How many of each group there are, those that are leaving left out."""
        return {setting: len(group.members) for setting, group in self._groups.items()}

    def _ask(self, wanted: dict[str, str]) -> dict[str, Any]:
        """In the desk's thread: have it done, and wait for the answer."""
        answer: Future[dict[str, Any]] = Future()
        self._requests.put((wanted, answer))
        return answer.result(ANSWER_WITHIN)

    def _change(self, wanted: dict[str, str]) -> dict[str, Any]:
        new = self._checked(wanted)
        done: list[str] = []
        for setting, number in new.items():
            group = self._groups[setting]
            if setting == "actors" and number != len(
                group.members
            ):  # first: Redis may be away, and nothing is done yet
                self._session.redis.set(actors_key(self._session), number)
            added = [group.add_to(self._supervisor) for _ in range(number - len(group.members))]
            removed = [group.members.pop() for _ in range(len(group.members) - number)]
            for name in removed:
                self._supervisor.remove(name)
            done += [f"started {name}" for name in added] + [f"told {name} to finish and leave" for name in removed]
        if done:
            self._say(f"{', '.join(f'{setting}={number}' for setting, number in new.items())}: {'; '.join(done)}")
        return {"done": done, "counts": self.counts}

    def _checked(self, wanted: dict[str, str]) -> dict[str, int]:
        """The new counts. Raises ConfigurationError with everything that is wrong with them."""
        new, problems = {}, []
        for setting, change in wanted.items():
            match = _CHANGE.fullmatch(str(change))
            if setting not in self._groups:
                problems.append(unknown_name("count of this run", setting, self._groups))
            elif match is None:
                problems.append(f"{setting}={change}: give a number, +N or -N")
            else:
                sign, number = match[1], int(match[2])
                now = len(self._groups[setting].members)
                new[setting] = {"": number, "+": now + number, "-": now - number}[sign]
        known = _problems(self._config)  # such as the run folder, which is in use: by this run
        changed = replace(self._config, **cast(dict[str, Any], new))
        problems += [problem for problem in _problems(changed) if problem not in known]
        if problems:
            raise ConfigurationError(problems)
        return new


class Desk(ConsumerMixin):  # type: ignore[misc]
    """A thread that answers one command of the remote control; `ask` carries it out."""

    def __init__(self, app: Any, ask: Callable[[dict[str, str]], dict[str, Any]]) -> None:
        self.connection = app.connection_for_read(heartbeat=app.conf.broker_heartbeat)
        self._ask = ask
        self._node = app.control.mailbox.Node(NODE, handlers={COMMAND: self._scale})
        self._thread = threading.Thread(target=self.run, name="scaling", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Leave; the command queue goes with its last consumer."""
        self.should_stop = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def get_consumers(self, consumer_class: Any, channel: Any) -> list[Any]:
        self._node.channel = channel
        node = self._node
        return [node.Consumer(channel=channel, callbacks=[self._receive], on_decode_error=node.on_decode_error)]

    def on_connection_error(self, exc: Exception, interval: float) -> None:
        logger.warning("scaling: cannot connect (%s), trying again in %.1f s", exc, interval)

    def _receive(self, body: Any, message: Any) -> None:
        # The other commands are for Celery's workers.
        if isinstance(body, dict) and body.get("method") in self._node.handlers:
            self._node.handle_message(body, message)

    def _scale(self, state: Any, wanted: dict[str, str]) -> dict[str, Any]:
        return self._ask(wanted)


def _problems(config: Config) -> tuple[str, ...]:
    try:
        verify(replace(config, flower_port=None), role="train")  # Flower's port is in use: by this run
        return ()
    except ConfigurationError as error:
        return tuple(error.problems)
