"""Server: the ports of a gateway, served by one event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from agents.trees import spec_of
from envs.masks import Masks
from envs.rewards import Rewards
from warren.errors import ConfigurationError
from workers.gateway.actor import Actor
from workers.gateway.connections import Connections
from workers.gateway.game import Game, Players
from workers.gateway.limits import Limits
from workers.gateway.metrics import Gather, alone
from workers.gateway.sessions import Open, Sessions
from workers.gateway.tcp import TcpServer

# s for which a thread may compute before another gets its turn. The policy's thread, for which all games wait, and the
# server's hand over to each other at every request: Python's own 5 ms would be most of a game's wait.
SWITCH = 0.0005
BACKLOG = 2048  # connections that wait to be accepted: games may all come at once

try:
    import uvloop

    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # uvloop is not for every system
    new_event_loop = asyncio.new_event_loop


def opener(
    actor: type[Actor],
    kwargs: Mapping[str, Any],
    players: Players,
    rewards: Rewards,
    limits: Limits = Limits(),  # noqa: B008  (it is frozen)
) -> Open:
    """Return the function that makes the actor of a new session."""
    spec = spec_of(actor.observation_space)
    masks = Masks.of(actor.action_space) if actor.action_masks else None

    def open_game(session: str) -> tuple[Actor, Game]:
        game = Game(session, players.of_session(), spec, rewards, asyncio.get_running_loop(), masks, limits.agents)
        made = actor.__new__(actor, **kwargs)
        made._game = game  # before its constructor, which may ask for the session's name
        made.__init__(**kwargs)  # type: ignore[misc]
        return made, game

    return open_game


class Server:
    """Serves `sessions` over HTTP, and over TCP where a port is given, from `start` to `stop`.

    Ports are taken when the server is made; 0 stands for any that is free. `shared`: other gateways of this user may
    take the same ports, and the kernel distributes connections. Beside a shared HTTP port it has `own_port` to itself.
    """

    def __init__(
        self,
        sessions: Sessions,
        address: str,
        port: int,
        tcp_port: int | None = None,
        *,
        shared: bool = False,
        own_port: int = 0,
        facts: Callable[[], dict[str, Any]] = dict,
        gather: Gather = alone,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """`facts`, `gather`: see Endpoint. `on_failure` is called with the error that ends the server, if one does.

        Raises ConfigurationError for a port or an address that cannot be taken.
        """
        # Imported here, as it needs uvicorn, of an extra: a command that lacks it says so in one sentence.
        from workers.gateway.http import Endpoint

        self._sessions, self._on_failure = sessions, on_failure
        self.connections = Connections(sessions.limits.connections)
        self._endpoint = Endpoint(sessions, facts, gather)
        self._http = [listen("gateway.port", address, port, shared)]
        if shared:
            self._http.append(listen("gateway.own_port", address, own_port, False))
        self._tcp = None if tcp_port is None else listen("gateway.tcp_port", address, tcp_port, shared)
        self.port: int = self._http[0].getsockname()[1]
        self.own_port: int = self._http[-1].getsockname()[1]
        self.tcp_port: int | None = None if self._tcp is None else self._tcp.getsockname()[1]
        self.failure: BaseException | None = None
        self._shared, self._drain = shared, 0.0
        self._loop = new_event_loop()
        self._stopping, self._hurried = asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)

    def start(self) -> Self:
        """Begin to serve, including connections that were made before."""
        self._thread.start()
        return self

    def stop(self, drain: float = 0.0) -> None:
        """Stop serving. Open sessions have `drain` s to end, and no new ones open; then they are closed."""
        if self._thread.is_alive():
            self._drain = drain
            self._soon(self._stopping.set)
            self._thread.join(timeout=drain + 10.0)
        else:
            for one in (*self._http, self._tcp):
                if one is not None:
                    one.close()

    def hurry(self) -> None:
        """Stop waiting for open sessions; may be called from any thread or a signal's handler."""
        self._soon(self._hurried.set)

    def _soon(self, do: Callable[[], Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: it has stopped already
            self._loop.call_soon_threadsafe(do)

    def _run(self) -> None:
        sys.setswitchinterval(SWITCH)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failure = error
            self._on_failure(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        from workers.gateway.http import server

        http = server(self._endpoint, self._sessions.limits, self.connections)
        tasks = [asyncio.ensure_future(http.serve(self._http)), asyncio.ensure_future(self._sessions.run())]
        tcp = TcpServer(self._sessions, self.connections)
        listening = None
        if self._tcp is not None:
            listening = await asyncio.start_server(tcp.accept, sock=self._tcp, backlog=BACKLOG)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() and self._drain > 0 and http.started:
                if self._shared:  # the other processes get all new connections
                    http.servers[0].close()
                    if listening is not None:
                        listening.close()
                await self._drained(tasks)
        finally:
            if listening is not None:
                listening.close()
            self._sessions.close()
            await tcp.close()
            http.should_exit = True
            stopped.cancel()
            tasks[1].cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def _drained(self, tasks: Sequence[asyncio.Future[Any]]) -> None:
        """Wait until open sessions have ended, at most for the drain time or until `hurry`."""
        waits = [asyncio.ensure_future(self._sessions.drain()), asyncio.ensure_future(self._hurried.wait())]
        await asyncio.wait([*waits, *tasks], timeout=self._drain, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()


def listen(setting: str, address: str, port: int, shared: bool) -> socket.socket:
    """Return a socket that games may connect to. Raises ConfigurationError, naming the `setting`."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((address, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"{setting}: {address} port {port} cannot be used ({error.strerror})") from None
    return listening
