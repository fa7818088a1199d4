"""Gathered sampling: one chord of rollouts per round; the update on its results starts the next round."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis
from celery.utils.log import get_logger

from tasks.client.chord import answered, gather

logger = get_logger(__name__)

FAILURES = 3  # rounds that may fail in a row before the run is given up
SAME_FAILURES = 2  # the same, if they fail in the user's code with the same error
SILENT = 10  # dispatches of one version without an answer before the run is given up
LONGEST = 16.0  # times round_timeout: the longest wait between two dispatches
STRAGGLER = 10.0  # s at least that a silent actor delays a round before other actors are asked as well
USUAL = 5.0  # times as long as rounds usually take: the wait for a silent actor
REPORT_EVERY = 5.0  # s between messages while waiting
LOOK_EVERY = 1.0  # s between looks at the round under way; each look tries once to send what the servers refused
TURN_EVERY = 0.02  # s between checks of whether it is this player's turn


class Rounds:
    """Keeps one round under way, and dispatches it again if no answer comes.

    A round that has not come back within `timeout` s, or within 5 times as long as rounds usually take (10 s at least),
    is dispatched once more, to any free actors. The next time it is dispatched after twice as long, and so on. The
    first that comes back whole is used. So an actor that stopped answering costs its share, and a rollout that takes
    longer than `timeout` is made once more for nothing.

    `actors` returns the number of rollouts in a round. `player`: the player that learns from the rounds, at `queue`;
    its rollouts are told how many share a round. None for the one player of a run without a league. `on_given_up` is
    called with the reason and with whether it lies in the user's code; `on_waiting` with what is missing. While `held`,
    dispatches wait for `release`.

    A dispatch that the servers refuse does not count, and is tried again at each look (LOOK_EVERY).

    Each of several learners has its own rounds, for its `share` (rank, size) of the actors; `divided`: with the same
    actors each time, rather than any free ones.

    A new round begins once `turn` returns True; it is called again and again until then.
    """

    def __init__(
        self,
        app: Any,
        actors: Callable[[], int],
        timeout: float,
        on_given_up: Callable[[str, bool], None],
        player: str | None = None,
        queue: Any = None,
        on_waiting: Callable[[str], None] = logger.warning,
        share: Callable[[], tuple[int, int]] = lambda: (0, 1),
        divided: bool = False,
        turn: Callable[[], bool] = lambda: True,
    ) -> None:
        self._app, self._actors, self._timeout, self._share, self._divided = app, actors, timeout, share, divided
        self._on_given_up, self._on_waiting, self._turn = on_given_up, on_waiting, turn
        self._player = () if player is None else (player,)
        # The address of the queue, as a message cannot carry the queue: a chord's body travels with its header's calls.
        self._address = {} if queue is None else {"exchange": queue.exchange.name, "routing_key": queue.routing_key}
        self.held = False
        self.current: str | None = None  # the round dispatched last
        self.lost = 0  # rounds that were dispatched once more
        self._open: dict[str, float] = {}  # rounds of this version that may come back, and when they were dispatched
        self._chord: Any = None  # of the current round
        self._asked = 0  # number of rollouts in the current round
        self._usual: float | None = None  # s that a round takes
        self._version = 0
        self._dispatches = 0  # dispatches of this version
        self._failures: list[str] = []  # errors of failed rounds in a row
        self._dispatched_at = self._reported_at = 0.0
        self._waiting = self._withheld = self._unsent = False
        self._awaits_turn = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.RLock()
        self._watch = threading.Thread(target=self._watchdog, name="rounds", daemon=True)

    def start(self, version: int) -> None:
        """Dispatch the first round, now or when the servers take it, and start the thread that watches all rounds."""
        try:
            self.dispatch(version)
        except Exception as error:
            logger.warning("could not dispatch, trying again: %s", error)
        self._watch.start()

    def stop(self) -> None:
        """Dispatch no more."""
        self._stopping.set()
        self._awaits_turn.set()  # wakes the watch

    def dispatch(self, version: int) -> None:
        """Ask every actor for a rollout with weights of `version`; the learn task gets all of them in one call.

        Rounds that were dispatched before are not used any more.
        """
        with self._lock:
            self._open.clear()
            self._dispatches = 0
            if self._stopping.is_set():
                return
            self._version, self._waiting = version, False
            self._awaits_turn.clear()
            if self.held:
                self._withheld = True
            elif self._may_begin():
                self._dispatch(version)
            else:
                self._awaits_turn.set()

    def _may_begin(self) -> bool:
        try:
            return self._turn()
        except redis.RedisError as error:
            logger.debug("asking again for a turn: %s", error)
            return False

    def _dispatch(self, version: int) -> None:
        if self._stopping.is_set():
            return
        # Set before sending: if a server is away or refuses the round, the watchdog tries again.
        self._version, self._waiting, self._unsent = version, True, True
        self._reported_at = time.monotonic()
        self.current = f"{version}-{uuid.uuid4().hex[:8]}"
        self._open[self.current] = self._reported_at
        try:
            self._send(version)
        except BaseException:  # the round may have been sent in part: none of it is used
            self._open.pop(self.current, None)
            raise
        self._unsent = False
        self._dispatched_at = self._open[self.current]
        self._dispatches += 1

    def _send(self, version: int) -> None:
        actors, (rank, ranks) = self._actors(), self._share()
        self._asked, self._chord = max(1, actors // ranks + (rank < actors % ranks)), None
        shared = (*self._player, actors) if self._player else ()
        rollout = self._app.signature(
            "actor.rollout",
            args=(self.current, version, *shared),
            kwargs={"share": (rank, ranks)} if self._divided and ranks > 1 else {},
            options={"expires": self._patience(1), "ignore_result": True, "argsrepr": "", "kwargsrepr": ""},
        )
        learn = self._app.signature("learner.learn", options={"ignore_result": True, "argsrepr": "", **self._address})
        failed = self._app.signature(
            "learner.round_failed", args=(self.current,), immutable=True, options=dict(self._address)
        )
        self._chord = gather(self._app, [rollout.clone() for _ in range(self._asked)], then=learn, on_error=failed)

    def hold(self) -> None:
        """Dispatch nothing until `release`; the round under way may come back."""
        self.held = True

    def release(self) -> None:
        """Undo `hold`, and dispatch what it held back."""
        with self._lock:
            self.held, withheld, self._withheld = False, self._withheld, False
        if withheld:
            self.dispatch(self._version)

    def returned(self, round_id: str) -> bool:
        """Note that a round came back whole; return False when another one of its version was used already."""
        with self._lock:
            if round_id not in self._open:
                return False
            took = time.monotonic() - self._open[round_id]
            self._open.clear()
            self._waiting = False
        if took > self._timeout:
            logger.warning(
                "round %s took %.0f s, longer than round_timeout=%g, after which it was dispatched once more for "
                "nothing; raise round_timeout above the time that a rollout takes", round_id, took, self._timeout,
            )  # fmt: skip
        self._usual = took if self._usual is None else 0.8 * self._usual + 0.2 * took
        return True

    def succeeded(self) -> None:
        """Forget earlier failures: a round was used."""
        self._failures.clear()

    def failed(self, round_id: str, why: str = "", by_user: bool = False) -> None:
        """Note that a rollout of `round_id` failed with `why`, and dispatch again, a few times.

        `by_user`: it failed in the user's code.
        """
        with self._lock:
            current = round_id == self.current and round_id in self._open
            self._open.pop(round_id, None)
            if not current:
                return
            self._waiting = False
        self._failures.append(why)
        count, same = len(self._failures), self._failures.count(why)
        reason = why or "an actor's log has the error"
        logger.error("round %s failed (%d in a row): %s", round_id, count, reason)
        if by_user and same >= SAME_FAILURES:
            self._on_given_up(why, True)
        elif count >= FAILURES:
            self._on_given_up(f"{FAILURES} rounds in a row failed in the actors, the last with: {reason}", False)
        else:
            self.dispatch(self._version)

    def _patience(self, more: int = 0) -> float:
        """Return the seconds from the newest dispatch, or the one that follows `more` later, to the next one."""
        first = self._timeout if self._usual is None else min(self._timeout, max(STRAGGLER, USUAL * self._usual))
        return float(min(first * 2.0 ** (self._dispatches + more - 1), LONGEST * self._timeout))

    def _watchdog(self) -> None:
        while not self._stopping.is_set():
            if self._awaits_turn.wait(LOOK_EVERY) and self._stopping.wait(TURN_EVERY):
                return
            try:
                with self._lock:
                    self._check()
            except Exception as error:  # the broker may be away: the next poll tries again
                logger.warning("could not dispatch: %s", error)

    def _check(self) -> None:
        now = time.monotonic()
        if self._awaits_turn.is_set():
            self.dispatch(self._version)
        if not self._waiting:
            return
        if self._unsent:
            self._dispatch(self._version)
        elif now - self._dispatched_at > self._patience():
            since = now - min(self._open.values(), default=self._dispatched_at)
            if self._dispatches >= SILENT:
                self._waiting = False
                self._on_given_up(
                    f"no round of version {self._version} came back within {since:.0f} s, though it was dispatched "
                    f"{self._dispatches} times: are actors up, and is round_timeout={self._timeout:g} enough for a "
                    "rollout?",
                    False,
                )
                return
            self.lost += 1
            logger.warning("round %s: %s; dispatching once more", self.current, self._missing(since))
            self._dispatch(self._version)
        elif now - self._reported_at > REPORT_EVERY:
            self._reported_at = now
            self._on_waiting(self._missing(now - min(self._open.values(), default=self._dispatched_at)))

    def _missing(self, since: float) -> str:
        try:
            missing = self._asked - answered(self._app, self._chord) if self._chord is not None else self._asked
        except (redis.RedisError, OSError):
            missing = self._asked
        return f"{missing} of {self._asked} actors have not answered for {since:.0f} s"
