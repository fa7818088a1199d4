"""Stalls of a run: their start and their causes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workers.config.roles import ACTOR, LEARNER
from workers.runtime.session import PLAYER

STALL_AFTER = 10.0  # s without a step after which the panel says so
ASK_EVERY = 5.0  # s between two questions to the roles during a stall
ANSWER_WITHIN = 2.0  # s that a role has to answer; its event loop is free while it computes


class Stalls:
    """A watch of the players' counts of steps. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seen = clock, dict[str, tuple[int, float]]()

    def poll(self, steps: Mapping[str, int]) -> dict[str, float]:
        """Return player -> s since its last step, for players without one for STALL_AFTER s."""
        now = self._clock()
        for player, count in steps.items():
            known = self._seen.get(player)
            if known is None or known[0] != count:
                self._seen[player] = (count, now)
        self._seen = {player: seen for player, seen in self._seen.items() if player in steps}
        return {player: now - at for player, (_, at) in self._seen.items() if now - at >= STALL_AFTER}


def explain(
    standing: Mapping[str, float],
    excused: Mapping[str, str],
    causes: Sequence[str],
    depths: Mapping[str, int],
    begun: bool,
) -> list[str]:
    """Return lines for the panel, one per stalled player.

    `standing`: player ("" without a league) -> s without a step; `excused`: player -> reason why that is right (paused,
    frozen); `causes`: known troubles; `depths`: queue -> waiting messages.
    """
    lines = []
    for player, seconds in standing.items():
        if player in excused:
            continue
        who = f"player {player}: " if player else ""
        verb = "no step" if begun else "no first step"
        lines.append(f"{who}{verb} for {seconds:.0f} s, waiting for {_awaited(player, causes, depths, begun)}")
    return lines


def _awaited(player: str, causes: Sequence[str], depths: Mapping[str, int], begun: bool) -> str:
    if causes:
        return "; ".join(causes)
    if segments := depths.get(LEARNER.queue.format(player=player or PLAYER), 0):
        return f"the learner, which has {segments} messages waiting and is computing, or does not answer"
    if rollouts := depths.get(ACTOR.queue.format(policy=PLAYER), 0):
        return f"actors: {rollouts} rollouts wait for one that is free"
    return "rollouts in progress" if begun else "actors and the learner to load, and the first rollouts"


class Answering:
    """A thread that asks the roles for a sign of life while it is wanted; `silent`: the roles that did not answer."""

    def __init__(self, app: Any, expected: Callable[[], Sequence[str]]) -> None:
        self._app, self._expected = app, expected
        self._wanted, self._stopping = threading.Event(), threading.Event()
        self.silent: list[str] = []
        self._thread = threading.Thread(target=self._run, name="answering", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def want(self, wanted: bool) -> None:
        """Set whether to ask."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()
            self.silent = []

    def stop(self) -> None:
        """Stop asking; does not wait for the thread."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(ASK_EVERY if self._wanted.is_set() else 0.5):
            if not self._wanted.is_set():
                continue
            expected = list(self._expected())
            try:
                with self._app.connection_for_write() as connection:
                    replies = self._app.control.ping(timeout=ANSWER_WITHIN, connection=connection) or []
            except Exception:  # the broker is away, as server_watch.py reports
                continue
            answered = {str(name).partition("@")[0] for reply in replies if isinstance(reply, dict) for name in reply}
            self.silent = [name for name in expected if name not in answered] if self._wanted.is_set() else []
