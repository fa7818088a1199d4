"""The dashboard's page in headless Chromium beside a training league, also while its servers and processes die."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.league_run import LeagueOfRun
from support.own_redis import OwnRedis

from workers.servers import Servers

pytest.importorskip("starlette")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "let-me-in"
PATIENCE = 120_000  # ms
INTERRUPTED = 130  # exit status after Ctrl-C


@pytest.fixture
def league(tmp_path: Path, servers: Servers, own_redis: OwnRedis) -> Iterator[LeagueOfRun]:
    with LeagueOfRun(
        tmp_path, "seconds=600", "actors=1", broker_url=servers.broker_url, redis_url=own_redis.url
    ) as league:
        yield league


@pytest.fixture
def page(tmp_path: Path, league: LeagueOfRun) -> Iterator[Any]:
    """Serve the dashboard and yield the league's page."""
    league.until(lambda: (league.folder / "servers/servers.json").exists())
    command = [sys.executable, "-m", "workers.dashboard", str(tmp_path), "--port", "0"]
    environment = {**os.environ, "WARREN_DASHBOARD_TOKEN": TOKEN}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    base = process.stdout.readline().partition("/?")[0]
    try:
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(base_url=base, extra_http_headers={"authorization": f"Bearer {TOKEN}"})
            page.set_default_timeout(PATIENCE)
            page.goto("/run?run=project/t")
            page.wait_for_selector("body[data-ready]")
            yield page
            browser.close()
    finally:
        process.terminate()
        process.wait(PATIENCE / 1000)


def matches(page: Any) -> int:
    """Return the number of matches on the page."""
    text = page.inner_text(".figures")
    return int(text.partition(" counted")[0].rpartition(" ")[2].replace(",", ""))


def more_matches(page: Any, than: int) -> None:
    """Wait until the page counts more matches than `than`."""
    page.wait_for_function(
        "(than) => { const found = document.querySelector('.figures').innerText.match(/([\\d,]+) counted/); "
        "return found && Number(found[1].replaceAll(',', '')) > than; }",
        arg=than,
    )


def status(page: Any, wanted: str) -> None:
    page.wait_for_selector(f".status:has-text('{wanted}')")


def test_a_page_follows_a_league_through_deaths_of_redis_and_of_its_worker(
    page: Any, league: LeagueOfRun, own_redis: OwnRedis
) -> None:
    more_matches(page, 0)
    status(page, "live")
    for _ in range(3):  # without a reload
        more_matches(page, matches(page))
    own_redis.kill()
    status(page, "Redis is away")
    assert "does not answer" in page.inner_text(".problem")
    before = matches(page)
    own_redis.start()
    status(page, "live")
    more_matches(page, before)
    assert page.locator(".problem").count() == 0
    (worker,) = league.processes("league")
    worker.kill()
    league.until(lambda: [one.pid for one in league.processes("league")] not in ([], [worker.pid]))
    more_matches(page, matches(page))
    page.wait_for_selector("section:has-text('Failures') td:has-text('league-0')")


def test_a_persons_game_counts_for_a_rating_while_the_league_trains(page: Any, league: LeagueOfRun) -> None:
    league.until(lambda: (league.folder / "league/models/main@0.safetensors").exists())
    page.goto("/play?run=project/t&player=main@0")
    page.check("#rated")
    page.fill("#person", "ann")
    page.click("text=begin a game")
    page.wait_for_selector('[role=status]:has-text("counts for ann\'s rating")')
    page.check("#views")
    page.wait_for_selector("text=a rated game shows the player's view at its end")
    page.locator(".move").first.click()
    page.wait_for_selector("[role=status]:has-text('by 1 rated games')")
    assert "ann: Elo " in page.inner_text("[role=status]")


def test_a_page_that_was_left_open_shows_the_end_of_its_run(page: Any, league: LeagueOfRun) -> None:
    more_matches(page, 0)
    league.process.send_signal(signal.SIGINT)
    assert league.wait() == INTERRUPTED
    status(page, "ended")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    status(page, "ended")
    assert matches(page) > 0
