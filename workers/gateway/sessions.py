"""The sessions of one gateway: opens them, answers their requests one after another, and closes those that are idle.

Nothing here depends on HTTP. All of it runs in one event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from workers.gateway.actor import Actor, Unreadable
from workers.gateway.game import Game
from workers.gateway.limits import Limits
from workers.gateway.metrics import Metrics
from workers.gateway.protocol import Kind, Refusal, Request
from workers.gateway.rates import Rates
from workers.gateway.threads import Threads

logger = logging.getLogger(__name__)

THREADS = 64  # threads of actors' plain functions; so many functions may wait for an action at once
HANGING = 64  # plain functions that may go on beside those, after their games have stopped waiting
LOOKS = 8  # looks for idle sessions within the time after which they are reaped
STOPPING = "the gateway is told to stop and opens no session; try again, on another connection"
WAIT_FOR_WEIGHTS = "the learner's first weights have not come yet; try again in a second"

Open = Callable[[str], tuple[Actor, Game]]


class SessionDirectory(Protocol):
    """Directory of the sessions that other gateways hold."""

    async def claim(self, session: str) -> str | None:
        """Take the session for this gateway, or return the address of the one that has it already."""
        ...

    async def find(self, session: str) -> str | None:
        """Return the address of the other gateway that has the session; None if none has."""
        ...

    def release(self, session: str) -> None:
        """Give the session up."""
        ...

    async def settled(self) -> None:
        """Wait until each session that was released may be claimed."""
        ...

    async def keep(self, sessions: Sequence[str]) -> list[str]:
        """Renew these sessions, and return those that another gateway has taken meanwhile.

        Called several times within Limits.idle.
        """
        ...


class _Methods:
    """Names of an actor class's methods: the one that ends a game, and those that are coroutines."""

    def __init__(self, actor: type[Actor]) -> None:
        self.end = "stop" if hasattr(actor, "stop") and actor.end is Actor.end else "end"
        self.coroutines = {n for n in ("start", "tick", self.end) if inspect.iscoroutinefunction(getattr(actor, n))}


class _Session:
    __slots__ = ("actor", "busy", "game", "methods", "used")

    def __init__(self, actor: Actor, game: Game, methods: _Methods, now: float) -> None:
        self.actor, self.game, self.methods, self.used, self.busy = actor, game, methods, now, True


class Sessions:
    """The open sessions; `answer` meets a request or raises Refusal.

    | status | when |
    |---|---|
    | 401 | a token is required, and another or none came |
    | 404 | a tick or an end of a session that is not open: never started, ended, or reaped |
    | 307 | a tick, an end or an auto of a session that is open at another gateway |
    | 409 | a start of a session that is open, or any request while it is still answering |
    | 422 | the actor raised; the session is closed, except for Unreadable after its start |
    | 503 | as many sessions are open as may be, no weights have come, the gateway stops, or too many functions hang |
    | 504 | the actor took longer than Limits.answer; the session is closed |
    """

    def __init__(
        self,
        open_game: Open,
        limits: Limits,
        token: str | None = None,
        *,
        ready: Callable[[], bool] = lambda: True,
        elsewhere: SessionDirectory | None = None,
        wait: str = WAIT_FOR_WEIGHTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_game` makes the actor of a new session; `ready`: whether decisions can be made; `wait`: the message to
        games until then."""
        self.limits, self._wait = limits, wait
        self.reaped = self.failed = 0
        self.metrics, self.rates = Metrics(), Rates(limits.rate)
        self._open_game, self._ready, self._elsewhere, self._clock = open_game, ready, elsewhere, clock
        self._token = None if token is None else token.encode()
        self._sessions: dict[str, _Session] = {}
        self._claiming: set[str] = set()  # sessions to be opened if no other gateway has them
        self._methods: dict[type[Actor], _Methods] = {}
        self._threads = Threads(THREADS, HANGING)
        self._empty = asyncio.Event()  # set while no session is open
        self._empty.set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._sessions)

    def health(self) -> dict[str, Any]:
        """Return whether games may begin, `ready`, and the reasons if they may not."""
        ready = self._ready() and not self.draining and not self._threads.exhausted
        return {"ready": ready, "draining": self.draining, "hanging": self._threads.hanging}

    def figures(self) -> dict[str, Any]:
        """Return the numbers of open, reaped and failed sessions, and of hanging functions."""
        figures = {"sessions": len(self), "reaped": self.reaped, "failed": self.failed}
        return {**figures, "hanging": self._threads.hanging}

    def allow(self, token: bytes | None) -> None:
        """Raise Refusal 401 unless `token` is the required one; may be called before a body has come."""
        if self._token is not None and not hmac.compare_digest(token or b"", self._token):
            raise Refusal(401, "token: not given" if token is None else "token: wrong")

    async def answer(self, request: Request) -> bytes:
        """Return the reply's body. Raises Refusal."""
        self.allow(request.token)
        name, kind = request.session, request.kind
        session = self._sessions.get(name)
        if session is not None:
            if session.busy:
                raise _busy(name)
            if kind is Kind.start:
                raise Refusal(409, f"session {name}: is open already; end it first, or name the new one otherwise")
            kind = Kind.tick if kind is Kind.auto else kind
            session.busy = True
        elif kind in (Kind.tick, Kind.end):
            raise await self._not_open(name)
        else:
            session = await self._begin(name, kind)
        try:
            if kind in (Kind.start, Kind.auto):
                reply = await self._ask(session, "start", request)
            if kind in (Kind.tick, Kind.auto):
                reply = await self._ask(session, "tick", request)
            if kind is Kind.end:
                reply = await self._ask(session, session.methods.end, request)
                if self._forget(name, session):
                    session.game.finish()
                if self._elsewhere is not None:
                    await self._elsewhere.settled()  # once it has this answer, a game may begin anew, at any gateway
            return reply
        finally:
            session.busy, session.used = False, self._clock()

    async def _not_open(self, name: str) -> Refusal:
        if self._elsewhere is not None and (address := await self._elsewhere.find(name)) is not None:
            return _held_at(name, address)
        return Refusal(404, f"session {name}: is not open; start it first, and ask again within {self.limits.idle:g} s")

    async def _begin(self, name: str, kind: Kind) -> _Session:
        """Open the session, as busy, and return it. Raises Refusal, for example if another gateway has it."""
        if not self._ready():
            raise Refusal(503, self._wait)
        if self.draining:
            raise Refusal(503, STOPPING)
        if len(self._sessions) + len(self._claiming) >= self.limits.sessions:
            raise Refusal(503, f"{len(self._sessions)} sessions are open, and no more may be; try again later")
        if name in self._claiming:
            raise _busy(name)
        if self._elsewhere is not None:
            self._claiming.add(name)
            try:
                address = await self._elsewhere.claim(name)
            finally:
                self._claiming.discard(name)
            if address is not None and kind is Kind.auto:
                raise _held_at(name, address)
            if address is not None:
                raise Refusal(409, f"session {name}: is open already, at the gateway at {address}")
            if self.draining:  # it was told to stop meanwhile: nothing would close the session
                self._elsewhere.release(name)
                raise Refusal(503, STOPPING)
        try:
            actor, game = self._open_game(name)
        except Exception as error:
            if self._elsewhere is not None:
                self._elsewhere.release(name)
            raise self._of_actor(name, "making the actor", error) from None
        session = self._sessions[name] = _Session(actor, game, self._methods_of(type(actor)), self._clock())
        self._empty.clear()
        return session

    def _methods_of(self, actor: type[Actor]) -> _Methods:
        if (methods := self._methods.get(actor)) is None:
            methods = self._methods[actor] = _Methods(actor)
        return methods

    async def _ask(self, session: _Session, method: str, request: Request) -> bytes:
        """Run one of the actor's methods; if it raises, close the session, except for Unreadable after the start."""
        actor, game, name = session.actor, session.game, request.session
        game.key, game.time = request.key, request.time
        try:
            async with asyncio.timeout(self.limits.answer) as span:
                if method in session.methods.coroutines:
                    said = await getattr(actor, method)(request.body)
                else:
                    if self._threads.exhausted:
                        raise Refusal(
                            503, f"{self._threads.hanging} plain functions of actors hang; restart the gateway"
                        )
                    said = await self._threads.run(getattr(actor, method), request.body)
                    if inspect.isawaitable(said):
                        said = await said
            return _bytes(said)
        except asyncio.CancelledError:  # the server stops
            self._drop(name, session)
            raise
        except Refusal:
            self._drop(name, session)
            raise
        except Unreadable as error:
            if method == "start":
                self._drop(name, session)
            raise Refusal(422, f"session {name}: {error}") from None
        except Exception as error:
            self._drop(name, session)
            if span.expired():
                limit = f"{self.limits.answer:g} s"
                raise Refusal(504, f"session {name}: the actor took over {limit}; the session is closed") from None
            raise self._of_actor(name, method, error) from None

    def _of_actor(self, name: str, what: str, error: Exception) -> Refusal:
        self.failed += 1
        logger.warning("session %s: %s failed; it is closed", name, what, exc_info=error)
        said = f"{type(error).__name__}: {str(error)[:200]}"
        return Refusal(422, f"session {name}: {what} raised {said}; the session is closed")

    def _drop(self, name: str, session: _Session) -> None:
        if self._forget(name, session):
            session.game.abandon()

    def _forget(self, name: str, session: _Session) -> bool:
        if self._sessions.get(name) is not session:
            return False
        del self._sessions[name]
        if not self._sessions:
            self._empty.set()
        if self._elsewhere is not None:
            self._elsewhere.release(name)
        return True

    def reap(self) -> int:
        """Close the sessions that had no request for Limits.idle s, and return how many there were."""
        before = self._clock() - self.limits.idle
        idle = [(name, one) for name, one in self._sessions.items() if not one.busy and one.used <= before]
        for name, session in idle:
            self._drop(name, session)
        self.reaped += len(idle)
        if idle:
            logger.info("%d sessions reaped that were idle for %g s", len(idle), self.limits.idle)
        return len(idle)

    async def look(self) -> None:
        """Reap idle sessions, and renew the others in the directory."""
        self.reap()
        if self._elsewhere is not None and (ours := dict(self._sessions)):
            for name in await self._elsewhere.keep(list(ours)):
                logger.warning("session %s: another gateway has taken it, while this one could not be seen", name)
                self._drop(name, ours[name])

    async def run(self) -> None:
        """Look at the sessions until it is cancelled."""
        while True:
            await asyncio.sleep(self.limits.idle / LOOKS)
            await self.look()

    async def drain(self) -> None:
        """Open no more sessions, and wait until all have ended."""
        self.draining = True
        await self._empty.wait()

    def close(self) -> None:
        """Open no more sessions, and close all, like those of games that went away."""
        self.draining = True
        for name, session in list(self._sessions.items()):
            self._drop(name, session)
        self._threads.close()


def _busy(name: str) -> Refusal:
    return Refusal(409, f"session {name}: still answering the request before; send one after another")


def _held_at(name: str, address: str) -> Refusal:
    return Refusal(307, f"session {name}: is held by the gateway at {address}", address)


def _bytes(said: Any) -> bytes:
    if isinstance(said, bytes | bytearray | memoryview):
        return bytes(said)
    if said is None:
        return b""
    if isinstance(said, str):
        return said.encode()
    if isinstance(said, bool | int | float | np.number):
        return str(said).encode()
    raise TypeError(f"it returned {type(said).__name__}; an actor returns bytes, text, a number or None")
