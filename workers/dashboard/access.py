"""Access to the pages: allowed hosts, a token, and headers on each answer that limit what a browser does with it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

TOKEN = "WARREN_DASHBOARD_TOKEN"  # the environment variable that holds the token
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
YEAR = 365 * 86_400

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Access:
    """Passes on to `app` the requests that name an allowed host and show the token.

    The check of hosts keeps out other sites' names for this machine. The token comes as a cookie, as `Authorization:
    Bearer`, or once in an address, `?token=`, which is then kept as a cookie and taken out of the address. A request
    that changes anything must come from a page of this server.
    """

    def __init__(self, app: App, token: str, hosts: Iterable[str] = LOOPBACK) -> None:
        """`hosts`: names without ports; "*" allows all."""
        self._app, self._token, self._hosts = app, token, frozenset(host.lower() for host in hosts)
        # Cookies are shared by all ports of a host: two dashboards must not overwrite each other's.
        digest = hashlib.sha256(token.encode()).hexdigest()
        self._cookie, self._kept = f"warren_{digest[:12]}", digest  # not the token: its characters may not fit a cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
                if scope["path"].startswith("/api/"):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if not self._host_allowed(headers.get(b"host", "")):
            await _say(guarded, 421, "this server does not answer to that name; start it with --name HOST to allow it")
        elif scope["method"] not in ("GET", "HEAD") and not _same_site(headers):
            await _say(guarded, 403, "a request that changes something has to come from a page of this server")
        elif scope["method"] == "GET" and self._known(dict(query).get("token", "")):
            await self._keep(scope, guarded, [one for one in query if one[0] != "token"])
        elif scope["path"] == "/health" or self._shown(headers):
            await self._app(scope, receive, guarded)
        else:
            await _say(guarded, 401, "a token is missing or wrong; open the address that the dashboard printed")

    def _host_allowed(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return "*" in self._hosts or name.lower() in self._hosts

    def _known(self, token: str) -> bool:
        return bool(token) and hmac.compare_digest(token.encode(), self._token.encode())

    def _shown(self, headers: dict[bytes, str]) -> bool:
        scheme, _, token = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._known(token)
        try:
            found = SimpleCookie(headers.get(b"cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._kept.encode())

    async def _keep(self, scope: Scope, send: Send, query: list[tuple[str, str]]) -> None:
        path = "/" + scope["path"].lstrip("/")  # never "//host", which is another server
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        cookie = f"{self._cookie}={self._kept}; Path=/; HttpOnly; SameSite=Lax; Max-Age={YEAR}"
        start = [(b"location", target.encode()), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": start})
        await send({"type": "http.response.body", "body": b""})


def _same_site(headers: dict[bytes, str]) -> bool:
    """Return True for a request from this server's own page, or from a program other than a browser."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get(b"host")


async def _say(send: Send, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
