"""workers.dashboard.server: its answers, the requests that it accepts, and those that it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
from support.asgi import ask, listen
from support.recorded_leagues import BEGAN, small_league, write
from support.waiting import PATIENCE

pytest.importorskip("starlette")

from workers.dashboard import __main__ as command
from workers.dashboard import feed, recorded, views
from workers.dashboard.catalogue import Catalogue, Run, hyperparameters
from workers.dashboard.fold import Fold
from workers.dashboard.server import Dashboard
from workers.dashboard.timeline import Timeline
from workers.dashboard.views import NEVER
from workers.dashboard.watching import Watched, as_event

TOKEN = "let-me-in"
SHOWN = {"authorization": f"Bearer {TOKEN}"}
PAGE = "/run?run=kuhn/one"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a league and a plain run."""
    root = tmp_path_factory.mktemp("runs")
    write(root / "kuhn/one/league", small_league().entries)
    (root / "kuhn/one/config.yaml").write_text("league: {env: 'openspiel:kuhn_poker'}\nbroker: {url: amqp://a:b@c}\n")
    (root / "kuhn/one/logs").mkdir()
    (root / "kuhn/one/logs/actor-0.log").write_text('Traceback (most recent call last)\nValueError: <b>"x"</b>\n')
    score = {"time": BEGAN, "mixture": 0.5, "gains": {"hunter": {"response": "hunter@3", "mean": 0.25}}}
    (root / "kuhn/one/evaluation.jsonl").write_text(json.dumps(score) + "\n" + '{"time": ')
    (root / "cartpole/two").mkdir(parents=True)
    (root / "cartpole/two/config.yaml").write_text("env: {id: CartPole-v1}\nseed: 3\n")
    rows = [{"time": BEGAN + n, "steps": n, "mean_return": n / 2, "losses": {"entropy": 0.1}} for n in range(3000)]
    (root / "cartpole/two/metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root.parent / "outside.txt").write_text("not to be read")
    return root


@pytest.fixture(scope="module")
def app(root: Path) -> Any:
    return Dashboard(Catalogue(root)).app(TOKEN)


def told(app: Any, address: str) -> Any:
    answer = ask(app, address, headers=SHOWN)
    assert answer.status == 200, answer.text
    return answer.json()


def test_runs_are_listed_with_their_kinds(app: Any) -> None:
    found = {run["run"]: (run["kind"], run["game"], run["live"]) for run in told(app, "/api/runs")["runs"]}
    assert found == {
        "kuhn/one": ("league", "openspiel:kuhn_poker", False),
        "cartpole/two": ("plain", "CartPole-v1", False),
    }


def test_the_list_of_runs_ignores_folders_within_a_run(tmp_path: Path) -> None:
    for name, settings in (("one", "env: CartPole-v1\n"), ("one/wandb/offline/files", "league: {value: null}\n")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").write_text(settings)
    (run,) = told(Dashboard(Catalogue(tmp_path)).app(TOKEN), "/api/runs")["runs"]
    assert (run["run"], run["kind"], run["game"]) == ("one", "plain", "CartPole-v1")


def test_records_that_vanish_during_listing_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded.records, "files", lambda folder: [folder / "00000000.matches"])
    assert recorded.Recorded().matches(Run("one", tmp_path)) == []


def test_the_state_of_a_moment_is_that_of_the_league_then(app: Any) -> None:
    now = told(app, "/api/state?run=kuhn/one")
    then = told(app, f"/api/state?run=kuhn/one&at={BEGAN + 5.5}")
    assert now["time"] == now["until"] > then["time"] == BEGAN + 5.0
    assert (now["counters"]["counted"], then["counters"]["counted"], now["counters"]["missing"]) == (30, 5, 0)
    assert len(now["players"]) > len(then["players"]) == 3
    first = now["players"][0]
    assert first["elo_lower"] < first["elo"] < first["elo_upper"]
    n = now["payoff"]["slots"]
    rates = np.frombuffer(base64.b64decode(now["payoff"]["rates"]), "<u2").reshape(n, n)
    games = np.frombuffer(base64.b64decode(now["payoff"]["games"]), "<f4").reshape(n, n)
    assert ((rates == NEVER) == (games == 0)).all() and (rates != NEVER).any()


def test_a_cell_has_its_games_its_interval_and_its_last_result(app: Any) -> None:
    now = told(app, "/api/state?run=kuhn/one")
    names = {row["slot"]: row["player"] for row in now["players"]}
    games = np.frombuffer(base64.b64decode(now["payoff"]["games"]), "<f4").reshape(len(names), len(names))
    home, away = (names[int(slot)] for slot in np.argwhere(games > 0)[0])
    found = told(app, f"/api/cell?run=kuhn/one&home={home}&away={away}")
    assert found["win_rate_lower"] <= found["win_rate"] <= found["win_rate_upper"]
    assert found["last"]["time"] > BEGAN and found["games"] > 0
    assert ask(app, "/api/cell?run=kuhn/one&home=nobody&away=main", headers=SHOWN).status == 404


def test_series_hold_only_whole_lines_of_the_evaluator(app: Any) -> None:
    found = told(app, "/api/series?run=kuhn/one")
    assert set(found["ratings"]) == {"main", "hunter"} and None in found["ratings"]["hunter"]["elo"]
    assert [score["mixture"] for score in found["scores"]] == [0.5]
    assert found["scores"][0]["gains"]["hunter"]["mean"] == 0.25
    assert sum(found["throughput"]["matches"]) == 30


def test_curves_are_thinned_and_settings_have_no_secrets(app: Any) -> None:
    (found,) = told(app, "/api/curves?run=cartpole/two").values()
    steps = found["learners"][""]["steps"]
    assert len(steps) <= 500 and (steps[0], steps[-1]) == (0, 2999)
    assert found["learners"][""]["losses.entropy"][0] == 0.1
    assert found["settings"] == {"env.id": "CartPole-v1", "seed": "3"}
    assert hyperparameters({"broker": {"url": "amqp://a:b@c"}, "redis_password": "x", "n": {"k": [1]}}) == {
        "n.k": "[1]"
    }


def test_figures_that_are_not_finite_are_null_or_left_out(tmp_path: Path) -> None:
    write(tmp_path / "one/league", small_league().entries)
    (tmp_path / "one/players/main").mkdir(parents=True)
    row = '{"time": 1.0, "steps": 2, "mean_return": NaN, "losses": {"value_loss": Infinity}}\n'
    (tmp_path / "one/players/main/metrics.jsonl").write_text(row)
    (tmp_path / "one/evaluation.jsonl").write_text('{"time": 1.0, "mixture": NaN, "references": {"x": -Infinity}}\n')
    app = Dashboard(Catalogue(tmp_path)).app(TOKEN)
    (score,) = told(app, "/api/series?run=one")["scores"]
    assert (score["mixture"], score["references"]) == (None, {"x": None})
    assert told(app, "/api/curves?run=one")["one"]["learners"]["main"] == {"time": [1.0], "steps": [2]}
    message = Watched(Run("one", tmp_path / "one")).look()
    assert message is not None
    json.loads(as_event(message)[6:], parse_constant=pytest.fail)


def test_failures_are_reported_with_their_cause(app: Any) -> None:
    (failure,) = told(app, "/api/facts?run=kuhn/one")["failures"]
    assert (failure["process"], failure["cause"]) == ("actor-0", 'ValueError: <b>"x"</b>')


@pytest.mark.parametrize("address", ["/", PAGE, "/api/runs", "/static/index.html", "/api/events?run=kuhn/one"])
def test_every_request_without_the_token_is_refused(app: Any, address: str) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "warren=let-me-in"}):
        assert ask(app, address, headers=headers).status == 401


def test_a_token_in_an_address_becomes_a_cookie(app: Any) -> None:
    first = ask(app, f"{PAGE}&token={TOKEN}")
    assert first.status == 303 and TOKEN not in first.headers["location"]
    assert first.headers["location"].startswith("/run?run=kuhn")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite" in cookie
    assert ask(app, PAGE, headers={"cookie": cookie.partition(";")[0]}).status == 200
    assert ask(app, f"//elsewhere.example/?token={TOKEN}").headers["location"] == "/elsewhere.example/"


def test_a_users_token_may_hold_any_character(root: Path) -> None:
    token = 'a;b, "c" &=#+é'
    app = Dashboard(Catalogue(root)).app(token)
    first = ask(app, f"/compare?run=one&run=two&token={quote(token, safe='')}")
    assert (first.status, first.headers["location"]) == (303, "/compare?run=one&run=two")
    cookie = first.headers["set-cookie"].partition(";")[0]
    assert ask(app, "/api/runs", headers={"cookie": cookie}).status == 200
    assert ask(app, "/api/runs", headers={"cookie": f"{cookie[:-1]}x"}).status == 401


def test_the_printed_address_of_an_ipv6_host_is_accepted(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import uvicorn

    served: list[Any] = []
    monkeypatch.setenv("WARREN_DASHBOARD_TOKEN", "a&b")
    monkeypatch.setattr(command, "listening", lambda host, port: socket.create_server(("127.0.0.1", 0)))
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda self, sockets: (served.append(self.config.app), sockets[0].close())
    )
    assert command.main([str(root), "--host", "2001:db8::1"]) == 0
    address = urlsplit(capsys.readouterr().out.strip())
    assert (address.hostname, address.query) == ("2001:db8::1", "token=a%26b")
    assert ask(served[0], f"/?{address.query}", headers={"host": address.netloc}).status == 303


def test_requests_for_another_host_name_are_refused(app: Any) -> None:
    for host in ("evil.example", "evil.example:8050", "127.0.0.1.evil.example"):
        assert ask(app, "/api/runs", headers={**SHOWN, "host": host}).status == 421


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_another_sites_page_begins_no_game(app: Any, headers: dict[str, str]) -> None:
    asked = ask(app, "/api/play", "POST", b"{}", {**SHOWN, **headers})
    assert asked.status == 403


@pytest.mark.parametrize("address", ["/", "/api/runs", "/static/index.html", "/nothing", "/api/state?run=none"])
def test_every_answer_says_what_a_browser_may_load(app: Any, address: str) -> None:
    for headers in ({}, SHOWN):
        answer = ask(app, address, headers=headers)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["..", "../", "kuhn/one/../..", "/etc", "kuhn", "", "%2e%2e", "kuhn/one/league"])
def test_a_run_outside_the_list_is_refused(app: Any, name: str) -> None:
    for kind in ("state", "series", "curves", "facts", "run", "matches"):
        assert ask(app, f"/api/{kind}?run={name}", headers=SHOWN).status == 404


@pytest.mark.parametrize("path", ["../server.py", "..%2fserver.py", "%2e%2e/server.py", "/etc/passwd"])
def test_no_file_outside_the_pages_is_served(app: Any, path: str) -> None:
    assert ask(app, f"/static/{path}", headers=SHOWN).status == 404


@pytest.mark.parametrize("at", ["x", "nan", "inf", "-1e999"])
def test_a_moment_that_is_not_a_time_is_refused(app: Any, at: str) -> None:
    answer = ask(app, f"/api/state?run=kuhn/one&at={at}", headers=SHOWN)
    assert answer.status == 400 and "at:" in answer.json()["error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 60_000, b"x" * 70_000])
def test_a_game_that_is_not_asked_for_as_json_is_refused(app: Any, body: bytes) -> None:
    assert ask(app, "/api/play", "POST", body, SHOWN).status == 400
    assert ask(app, "/api/move", "POST", b'{"game": "none", "action": 0}', SHOWN).status == 404


def test_a_damaged_folder_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad/league").mkdir(parents=True)
    (tmp_path / "bad/league/league.jsonl").write_text('{"id": "1-0"}\n')
    state = told(Dashboard(Catalogue(tmp_path)).app(TOKEN), "/api/state?run=bad")
    assert "not an event" in state["problem"] and state["players"] == []


@pytest.mark.parametrize(
    ("view", "address"),
    [("state", "/api/state"), ("over_time", "/api/series"), ("lineage", "/api/lineage"), ("moving", None)],
)
def test_the_timeline_is_locked_while_a_view_is_made(
    root: Path, view: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, followed = getattr(views, view), list[bool]()
    timelines = list[Timeline]()
    init = Timeline.__init__
    monkeypatch.setattr(Timeline, "__init__", lambda self, folder: (timelines.append(self), init(self, folder))[1])

    def meanwhile(fold: Fold) -> Any:
        with ThreadPoolExecutor(1) as pool:  # another page's request
            followed.append(pool.submit(timelines[-1].lock.acquire, False).result())
        return made(fold)

    monkeypatch.setattr(views, view, meanwhile)
    if address is None:
        Watched(Run("kuhn/one", root / "kuhn/one")).look()
    else:
        told(Dashboard(Catalogue(root)).app(TOKEN), f"{address}?run=kuhn/one")
    assert followed == [False]


def test_an_event_reaches_every_listening_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "EVERY", 0.02)
    entries = small_league().entries
    write(tmp_path / "one/league", entries[:-2])
    late = entries[-2:]
    app = Dashboard(Catalogue(tmp_path)).app(TOKEN)
    messages: list[list[dict[str, Any]]] = [[], []]

    async def page(heard: list[dict[str, Any]]) -> None:
        async def take(part: bytes) -> bool:
            if part.startswith(b"data: "):
                heard.append(json.loads(part[6:]))
                if late and all(len(one) > 1 for one in messages):
                    with (tmp_path / "one/league/league.jsonl").open("a") as file:  # a league appends all at once
                        file.write("".join(json.dumps({"fields": event, "id": entry}) + "\n" for entry, event in late))
                    late.clear()
            return not (heard and heard[-1].get("event") == entries[-1][0])

        await listen(app, "/api/events?run=one", SHOWN, take)

    async def both() -> None:
        await asyncio.wait_for(asyncio.gather(*(page(heard) for heard in messages)), PATIENCE)

    asyncio.run(both())
    for heard in messages:
        assert "hello" in heard[0] and heard[1]["anew"]
        assert not heard[-1]["anew"]
        assert len(heard[-1]["cells"]) == 2 and len(heard[-1]["players"]) == 2
