"""The dashboard's pages in headless Chromium load, follow a running league and obey the keyboard.

They need Playwright's Python package and an installed Chromium: `make dashboard-test`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.played import NETWORK, play_match
from support.recorded_leagues import BEGAN, RecordedLeague, small_league, write
from support.saved_league import ROCK_PAPER_SCISSORS, save_league
from support.waiting import PATIENCE

from workers.config.schema import Config, to_yaml
from workers.replays.folder import FOLDER, ReplayWriter

pytest.importorskip("starlette")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

TOKEN = "let-me-in"
DRAWN = "pettingzoo:connect_four_v3"  # a game that draws itself
try:
    import pettingzoo.classic.connect_four_v3  # noqa: F401

    DRAWS = True
except ImportError:
    DRAWS = False


@pytest.fixture(scope="module")
def league() -> RecordedLeague:
    return small_league()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, league: RecordedLeague) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write(folder / "kuhn/one/league", league.entries)
    (folder / "rps").mkdir()
    save_league(folder / "rps", ROCK_PAPER_SCISSORS, 2)
    write(folder / "drawn/league", league.entries)
    drawn = {"env": DRAWN, "players": {"main": {"kind": "self_play"}}, "network": NETWORK, "max_return": 1.0}
    (folder / "drawn/config.yaml").write_text(to_yaml(Config(league=drawn)))
    cells = [[1, 3, 1000, -400.0, 900.0], [3, 1, 800, 300.0, 700.0]]
    (folder / "drawn/league/returns.json").write_text(json.dumps(cells))
    if DRAWS:
        writer = ReplayWriter(folder / "drawn" / FOLDER, 1 << 20)
        writer.append([play_match(DRAWN)[0].to_bytes()])
        writer.close()
    (folder / "plain").mkdir()
    (folder / "plain/config.yaml").write_text("env: {id: '<img src=x onerror=alert(1)>'}\n")
    (folder / "plain/metrics.jsonl").write_text('{"steps": 1, "mean_return": 1.0}\n{"steps": 2, "mean_return": 3.0}\n')
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "workers.dashboard", str(folder), "--port", "0"]
    environment = {**os.environ, "WARREN_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    yield process.stdout.readline().partition("/?")[0]
    process.terminate()
    process.wait(PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, served: str) -> Iterator[Any]:
    """Yield a page; script errors and errors or warnings on the console fail the test."""
    context = browser.new_context(base_url=served, extra_http_headers={"authorization": f"Bearer {TOKEN}"})
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
    page.forgive = lambda part: troubles.remove(next(one for one in troubles if part in one))
    page.set_default_timeout(1000 * PATIENCE)
    yield page
    context.close()
    assert troubles == []


def opened(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("body[data-ready]")


def test_a_token_in_the_address_lets_in_and_is_removed_from_it(browser: Any, served: str) -> None:
    context = browser.new_context(base_url=served)
    page = context.new_page()
    assert page.goto("/").status == 401
    page.goto(f"/?token={TOKEN}")
    page.wait_for_selector("text=kuhn/one")
    assert TOKEN not in page.url
    context.close()


def test_texts_of_a_run_are_never_read_as_html(page: Any) -> None:
    opened(page, "/")
    assert page.inner_text("tr:has-text('plain') >> nth=0").count("<img src=x onerror=alert(1)>") == 1
    opened(page, "/run?run=plain")
    assert page.locator("img").count() == 0 and page.locator("path.line").count() >= 1


def test_the_slider_shows_the_league_at_another_moment(page: Any) -> None:
    opened(page, "/run?run=kuhn/one")
    assert "30 counted" in page.inner_text(".figures >> nth=0")
    page.focus("#moment")
    page.keyboard.press("Home")
    page.wait_for_selector(".figures:has-text('= 0 counted')")
    assert "at=" in page.url
    opened(page, f"/run?run=kuhn/one&at={BEGAN + 5.5}&player=main")
    assert "5 counted" in page.inner_text(".figures >> nth=0")
    assert page.inner_text("#p-chosen") == "main"


def test_a_cell_is_reached_and_opened_by_the_keyboard(page: Any) -> None:
    opened(page, "/run?run=kuhn/one")
    page.focus("canvas")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_selector(".tall .said:not(:empty)")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] dl")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


def test_evaluators_returns_are_shown_in_place_of_win_rates(page: Any) -> None:
    opened(page, "/run?run=drawn")
    page.select_option("#layer", "returns")
    page.wait_for_selector("figure:has-text('Payoff') figcaption :text('as evaluators found them')")
    assert "map=returns" in page.url
    with page.expect_download() as download:
        page.click("button[aria-label='Payoff as CSV']")
    rows = [line.split(",") for line in Path(download.value.path()).read_text().splitlines()]
    assert rows[0] == ["row", "column", "mean return", "games", "lower", "upper"] and len(rows) == 3
    for _, _, mean, games, lower, upper in rows[1:]:
        assert float(lower) < float(mean) < float(upper) and abs(float(mean)) == 0.3875 and int(games) == 1800
    assert float(rows[1][2]) > 0, "the best player on average comes first"
    page.focus("canvas")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
        if "by 1,800 games of evaluators" in (said := page.inner_text(".tall .said")):
            break
    assert "95 % at all times" in said
    opened(page, page.url)
    assert page.input_value("#layer") == "returns", "the address keeps the chosen layer"


def test_the_address_of_an_open_cell_opens_it_again(page: Any) -> None:
    opened(page, "/run?run=drawn&home=main&away=hunter")
    page.wait_for_selector("dialog[open] h2:has-text('main against hunter')")
    page.wait_for_selector("dialog[open] dt:has-text('mean return by evaluators')")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    page.wait_for_function("() => !location.search.includes('away')")


@pytest.mark.skipif(not DRAWS, reason="pettingzoo's classic games are not installed")
def test_a_recorded_game_is_played_back_in_its_own_pictures(page: Any) -> None:
    page.goto(f"/?token={TOKEN}")  # sets the cookie, since downloads send no token
    opened(page, "/match?run=drawn&match=m1&game=1")
    page.wait_for_function("() => document.querySelector('img.picture')?.naturalWidth > 100")
    first = page.get_attribute("img.picture", "src")
    page.click("button[aria-label=on]")
    page.wait_for_function("(first) => document.querySelector('img.picture').getAttribute('src') !== first", arg=first)
    page.click("text=play")
    page.wait_for_selector("p:has-text('the game is over')")
    page.wait_for_selector("button:text-is('play')")
    with page.expect_download() as download:
        page.click("text=as a film")
    assert Path(download.value.path()).read_bytes()[:4] == b"GIF8"


def test_a_game_that_cannot_count_for_a_rating_says_why(page: Any) -> None:
    opened(page, "/play?run=rps&player=main")
    page.check("#rated")
    page.fill("#person", "ann")
    assert page.is_disabled("#greedy")
    with page.expect_response("**/api/play") as answer:
        page.click("text=begin a game")
    assert answer.value.status == 409
    page.wait_for_selector(".view .problem:has-text('games count while its run goes on')")
    page.forgive("409")


def test_numbers_come_as_a_table_and_as_csv(page: Any) -> None:
    opened(page, "/run?run=kuhn/one")
    with page.expect_download() as download:
        page.click("button[aria-label='Ratings as CSV']")
    rows = Path(download.value.path()).read_text().splitlines()
    assert rows[0] == "series,time,seconds since the beginning,value" and len(rows) > 20
    page.click("figure:has-text('Ratings') >> text=table")
    page.wait_for_selector("figure:has-text('Ratings') .numbers td")


def test_a_phone_needs_no_sideways_scrolling(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    drawn = ["/match?run=drawn&match=m1&game=1"] if DRAWS else []
    for address in ("/", "/run?run=kuhn/one", "/run?run=drawn&map=returns", "/run?run=plain", "/play?run=rps", *drawn):
        opened(page, address)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address


def test_a_person_plays_a_game_to_its_end(page: Any) -> None:
    opened(page, "/play?run=rps&player=main")
    page.check("#views")
    page.click("text=begin a game")
    page.wait_for_selector("text=would do in your place")
    assert page.locator(".move").count() == 3
    page.keyboard.press("Enter")  # the first legal move has the focus
    page.wait_for_selector("text=The game is over")
    assert page.locator(".move").count() == 0


def test_matches_appear_on_the_page_as_they_end(page: Any, folder: Path, league: RecordedLeague) -> None:
    opened(page, "/run?run=kuhn/one")
    page.wait_for_selector("body[data-event]", state="attached")
    league.play("main", "w")
    write(folder / "kuhn/one/league", league.entries)
    page.wait_for_selector(".figures:has-text('31 counted')")
    assert page.get_attribute("body", "data-event") == league.entries[-1][0]
