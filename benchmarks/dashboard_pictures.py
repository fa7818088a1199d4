"""Pictures of the dashboard from trained runs: its pages, and a GIF of a league that grows.

    python -m benchmarks.dashboard_pictures RUNS --league kuhn/one --game connect_four/one \\
        --plain cartpole/one --plain cartpole/two --out docs/images

RUNS is a folder of runs. `--league`, `--game` (a league of a board game that recorded matches) and `--plain` each name
some of its runs, for different pictures. It needs the extras `dashboard` and `browser`, and a Chromium.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from PIL import Image

from benchmarks.dashboard import TOKEN, asked, served
from warren.errors import ConfigurationError
from workers.replays.video import Video

WIDE, TALL, PHONE = (1100, 1180), (1000, 790), (390, 800)
MOMENTS = 40  # frames of the GIF
FRAMES_PER_SECOND = 6.0
HELD = 12  # frames for which the end is shown
COLOURS = 128  # colours of a picture
PLACES = 2000  # positions of the page's slider


class Photographer:
    """A browser that shows the dashboard at `port`; pictures go to the folder `out`."""

    def __init__(self, browser: Any, port: int, out: Path) -> None:
        self._browser, self._port, self._out = browser, port, out

    def page(self, size: tuple[int, int], address: str, dark: bool = False) -> Any:
        """Return an open page that has loaded all that it shows."""
        context = self._browser.new_context(
            base_url=f"http://127.0.0.1:{self._port}",
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            extra_http_headers={"authorization": f"Bearer {TOKEN}"},
        )
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        return page

    def keep(self, page: Any, name: str) -> None:
        """Write the page as a PNG of few colours, and close it."""
        page.mouse.move(0, 0)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        path = self._out / f"{name}.png"
        picture.save(path, optimize=True)
        page.context.close()
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")

    def league(self, run: str) -> None:
        """Take pictures of a league: its page, its returns, and the page on a phone in dark mode."""
        address = f"/run?{urlencode({'run': run})}"
        self.keep(self.page(WIDE, address), "dashboard_league")
        page = self.page(PHONE, address, dark=True)
        self._scroll(page)
        self.keep(page, "dashboard_phone")

    def growing(self, run: str) -> None:
        """Film a league from its beginning to its end, moment by moment."""
        page = self.page(TALL, f"/run?{urlencode({'run': run, 'map': 'returns'})}")
        # One palette of few colours for all frames makes a small file.
        some = np.hstack([self._moment(page, place) for place in (MOMENTS // 10, MOMENTS // 3, MOMENTS)])
        palette = Image.fromarray(some).quantize(COLOURS)
        video = Video(self._out / "dashboard_growing.gif")
        video.fps = FRAMES_PER_SECOND
        for number in range(1, MOMENTS + 1):
            frame = Image.fromarray(self._moment(page, number)).quantize(palette=palette, dither=Image.Dither.NONE)
            for _ in range(HELD if number == MOMENTS else 1):
                video.add(np.asarray(frame.convert("RGB")))
        video.close()
        page.context.close()
        print(f"{video.path}: {video.path.stat().st_size / 1e6:.1f} MB, {video.frames} frames")

    @staticmethod
    def _moment(page: Any, number: int) -> np.ndarray:
        """Move the slider of a league's page to moment `number` of MOMENTS; return a picture of the page."""
        page.evaluate("delete document.body.dataset.moment")
        page.evaluate(
            "(to) => { const one = document.getElementById('moment'); one.value = to; "
            "one.dispatchEvent(new Event('input')); }",
            PLACES * number // MOMENTS,
        )
        page.wait_for_selector("body[data-moment]")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        Photographer._scroll(page)
        return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))

    @staticmethod
    def _scroll(page: Any) -> None:
        """Scroll the payoff and the curves to the top, below the slider that stays there."""
        page.evaluate(
            "() => scrollTo(0, document.querySelector('.columns').getBoundingClientRect().top + scrollY "
            "- document.querySelector('.moments').offsetHeight)"
        )

    def game(self, run: str) -> None:
        """Take pictures of a pair in a league of a board game, one of its recorded games, and a person's game."""
        found = json.loads(asked_json(self._port, f"/api/matches?{urlencode({'run': run})}"))["matches"]
        if not found:
            raise ConfigurationError(f"--game {run}: it has no recorded matches; train with league.replay_every=5")
        match = next((one for one in found if one["home"] != one["away"]), found[0])
        home, away = match["home"], match["away"]
        page = self.page(TALL, f"/run?{urlencode({'run': run, 'home': home, 'away': away})}")
        page.wait_for_selector("dialog[open] table")
        self.keep(page, "dashboard_cell")
        address = f"/match?{urlencode({'run': run, 'match': match['match'], 'game': 1, 'move': 9})}"
        self.keep(self.page(TALL, address), "dashboard_match")
        page = self.page(TALL, f"/play?{urlencode({'run': run, 'player': home})}")
        page.check("#views")
        page.click("text=begin a game")
        for _ in range(3):
            page.wait_for_selector(".move:enabled")
            page.locator(".move:enabled").nth(3).click()
            page.wait_for_selector("[role=status]:has-text('your move')")
        self.keep(page, "dashboard_play")

    def plain(self, runs: list[str]) -> None:
        """Take a picture of plain runs, side by side if there are several."""
        self.keep(self.page(TALL, f"/compare?{urlencode([('run', run) for run in runs])}"), "dashboard_plain")


def asked_json(port: int, path: str) -> bytes:
    """Return the answer to a GET, unpacked."""
    import gzip

    found = asked(port, path)
    return gzip.decompress(found) if found[:2] == b"\x1f\x8b" else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="a folder of runs")
    parser.add_argument("--league", help="a league: its page, and the GIF")
    parser.add_argument("--game", help="a league of a board game that recorded matches")
    parser.add_argument("--plain", action="append", default=[], help="a plain run; several stand side by side")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="default: docs/images")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: chromium is not installed; on Debian: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    given.out.mkdir(parents=True, exist_ok=True)
    with served(given.runs) as (_, port), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        photographer = Photographer(browser, port, given.out)
        try:
            if given.league:
                photographer.league(given.league)
                photographer.growing(given.league)
            if given.game:
                photographer.game(given.game)
            if given.plain:
                photographer.plain(given.plain)
        except ConfigurationError as error:
            sys.exit(f"error: {error}")
        finally:
            browser.close()


if __name__ == "__main__":
    main()
