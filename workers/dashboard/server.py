"""The dashboard as an ASGI application: pages, figures as JSON, and one stream of events per page."""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from warren.errors import UnknownName, WarrenError
from workers.dashboard import curves, views
from workers.dashboard.access import LOOPBACK, Access, App
from workers.dashboard.catalogue import Catalogue, Run, failures, hyperparameters
from workers.dashboard.dead import dead_letters
from workers.dashboard.feed import Feed
from workers.dashboard.playing import Tables
from workers.dashboard.recorded import Recorded
from workers.dashboard.watching import Watched, as_event

STATIC = Path(__file__).parent / "static"
PAGES = ("/", "/run", "/compare", "/match", "/play")
WATCHED = 4  # runs that are kept folded, those asked for last
STREAMS = 64  # pages that may listen at once
COMPARED = 12  # runs side by side
LEARNERS = ("time", "steps", "steps_per_second", "data_age", "staleness", "mean_return")  # figures of a league's page
LARGEST = 1 << 16  # bytes of what a page sends

Handler = Callable[[Request], Any]


class Dashboard:
    """Answers to all that pages ask for; folding and playing, which take a while, run in threads of their own."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = Lock()
        self._watched: OrderedDict[str, tuple[Watched, Feed]] = OrderedDict()
        self._recorded = Recorded()
        self._tables = Tables()

    def app(self, token: str, hosts: tuple[str, ...] = LOOPBACK) -> App:
        """Return the application, which answers requests that name one of `hosts` and show `token`."""
        routes = [
            *(Route(path, _page) for path in PAGES),
            Route("/health", lambda _: PlainTextResponse("ready\n")),
            Route("/api/runs", self.runs),
            Route("/api/run", self.run),
            Route("/api/state", self.state),
            Route("/api/series", self.series),
            Route("/api/lineage", self.lineage),
            Route("/api/cell", self.cell),
            Route("/api/returns", self.returns),
            Route("/api/facts", self.facts),
            Route("/api/dead", self.dead),
            Route("/api/curves", self.curves),
            Route("/api/matches", self.matches),
            Route("/api/match", self.match),
            Route("/api/picture", self.picture),
            Route("/api/film", self.film),
            Route("/api/play", self.sit, methods=["POST"]),
            Route("/api/move", self.move, methods=["POST"]),
            Route("/api/events", self.events),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        served = Starlette(routes=routes, exception_handlers={WarrenError: _refused, _Bad: _bad_request})
        return Access(GZipMiddleware(served, minimum_size=2000, compresslevel=3), token, hosts)

    # Answers about all runs.

    def runs(self, _: Request) -> Response:
        return JSONResponse(
            {"root": str(self._catalogue.root), "runs": [run.summary() for run in self._catalogue.runs()]}
        )

    def curves(self, request: Request) -> Response:
        names = request.query_params.getlist("run")[:COMPARED]
        found = {}
        for run in map(self._catalogue.run, names):
            of_players = curves.of_players(run.folder)
            evaluation = curves.columns(curves.rows(run.folder / "evaluation.jsonl"))
            found[run.name] = {
                "learners": of_players,
                "evaluation": evaluation,
                "settings": hyperparameters(run.settings()),
                "summary": run.summary(),
            }
        return JSONResponse(found)

    # Answers about one run.

    def run(self, request: Request) -> Response:
        run = self._run(request)
        return JSONResponse(
            {
                "summary": run.summary(),
                "settings": hyperparameters(run.settings()),
                "failures": failures(run.folder),
                "recorded": self._recorded.count(run),
            }
        )

    def state(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        watched.refresh()
        with watched.timeline.lock:
            until = watched.timeline.now().history.now
            found = views.state(watched.timeline.at(_number(request, "at", until)))
        return JSONResponse({"store": watched.state, "problem": watched.problem, "until": until, **found})

    def series(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        watched.refresh()
        folder = watched.run.folder
        of_players = {
            name: {key: found[key] for key in LEARNERS if key in found}
            for name, found in curves.of_players(folder).items()
        }
        with watched.timeline.lock:
            over_time = views.over_time(watched.timeline.now())
        return JSONResponse({**over_time, "scores": curves.scores(folder), "learners": of_players})

    def lineage(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        watched.refresh()
        with watched.timeline.lock:
            found = views.lineage(watched.timeline.now())
        return JSONResponse(found)

    def cell(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        home, away = (request.query_params.get(side, "") for side in ("home", "away"))
        with watched.timeline.lock:
            fold = watched.timeline.at(_number(request, "at", watched.timeline.now().history.now))
            for name in (home, away):
                if name not in fold.history.state.players:
                    raise UnknownName("player", name, list(fold.history.state.players), "at that moment")
            found = views.cell(fold, home, away)
            row, column = (fold.history.state.players[name].slot for name in (home, away))
        return JSONResponse({**found, "returns": watched.returns().between(row, column)})

    def returns(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        return JSONResponse(watched.returns().packed())

    def facts(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        return JSONResponse({**watched.facts(), "failures": failures(watched.run.folder)})

    def dead(self, request: Request) -> Response:
        watched, _ = self._watch(request)
        return JSONResponse(dead_letters(watched.run))

    async def events(self, request: Request) -> Response:
        _, feed = self._watch(request)
        with self._lock:
            listening = sum(one.listeners for _, one in self._watched.values())
        if listening >= STREAMS:
            return PlainTextResponse("too many pages listen; close some\n", 503)
        return StreamingResponse(feed.listen(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    # Games.

    def matches(self, request: Request) -> Response:
        given = request.query_params
        found = self._recorded.matches(self._run(request), given.get("home"), given.get("away"))
        return JSONResponse({"matches": found})

    def match(self, request: Request) -> Response:
        return JSONResponse(self._recorded.game(*self._game_of(request)))

    def picture(self, request: Request) -> Response:
        move = int(_number(request, "move", 0))
        return Response(self._recorded.picture(*self._game_of(request), move), media_type="image/png")

    def film(self, request: Request) -> Response:
        return Response(self._recorded.film(*self._game_of(request)), media_type="image/gif")

    def _game_of(self, request: Request) -> tuple[Run, str, int]:
        return self._run(request), request.query_params.get("match", ""), int(_number(request, "game", 1))

    async def sit(self, request: Request) -> Response:
        return await self._game(request, self._begin_game)

    async def move(self, request: Request) -> Response:
        return await self._game(
            request, lambda given: self._tables.move(str(given.get("game", "")), given.get("action"))
        )

    def _begin_game(self, given: dict[str, Any]) -> dict[str, Any]:
        run = self._catalogue.run(str(given.get("run", "")))
        player, greedy = str(given.get("player", "")), bool(given.get("greedy"))
        return self._tables.sit(run.folder, player, given.get("seat"), greedy, given.get("rated"))

    @staticmethod
    async def _game(request: Request, play: Callable[[dict[str, Any]], dict[str, Any]]) -> Response:
        from starlette.concurrency import run_in_threadpool

        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                raise _Bad(f"a request may have {LARGEST} bytes")
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):  # RecursionError: for lists in lists, a thousand deep
            given = None
        if not isinstance(given, dict):
            raise _Bad("a request has to be a JSON object")
        return JSONResponse(await run_in_threadpool(play, given))

    def _run(self, request: Request) -> Run:
        return self._catalogue.run(request.query_params.get("run", ""))

    def _watch(self, request: Request) -> tuple[Watched, Feed]:
        name = request.query_params.get("run", "")
        with self._lock:
            if name not in self._watched:
                watched = Watched(self._catalogue.run(name))
                self._watched[name] = watched, Feed(watched.look, watched.hello, as_event)
                idle = [known for known, (_, feed) in self._watched.items() if not feed.listeners and known != name]
                for known in idle[: max(0, len(self._watched) - WATCHED)]:
                    del self._watched[known]
            self._watched.move_to_end(name)
            return self._watched[name]


class _Bad(Exception):
    """A request that no page makes."""


def _page(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


def _number(request: Request, name: str, default: float) -> float:
    given = request.query_params.get(name)
    if not given:
        return default
    with contextlib.suppress(ValueError):
        if (number := float(given)) - number == 0.0:  # neither NaN nor infinite
            return number
    raise _Bad(f"{name}: {given!r} is no number")


def _refused(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownName) else 409)


def _bad_request(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)
