"""Tests of commands on README.md and the pages: each runs on small trained runs, or a reason says why it does not."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import page_commands as pages
from support.launched import PATIENCE, Launched
from support.page_files import OWN_FILES
from support.python_forks import ForkedPython, forks

from workers.config.league_choices import with_choices
from workers.config.overrides import arranged, compose, settings_of
from workers.config.run_names import name_run
from workers.config.schema import from_hydra
from workers.config.validation import verify
from workers.servers import Servers

ROOT = pages.ROOT
COMMANDS = list(pages.commands())
RUN = [one for one in COMMANDS if isinstance(pages.TABLE.get(one), pages.Run)]
# Commands that resume are left out: another form of them runs.
VERIFIED = [
    one for one in COMMANDS
    if one not in pages.TABLE and pages.training(one) is not None and "resume=" not in one
]  # fmt: skip
# Settings of the runs made here under the pages' names, all at once: short, with one actor each.
SHORT = ("trial=TRIAL", "actors=1", "env.goal=null", "total_steps=6000")
LEAGUE = ("trial=TRIAL", "actors=1", "evaluators=1", "league.goal=null")
FEW_SNAPSHOTS = (
    *(f"league.players.main.config.checkpoint_{which}_steps=10%" for which in ("min", "max")),
    "league.players.main.averages=[]",
)
MADE = {
    "cartpole": SHORT,
    "kuhn": (*LEAGUE, "experiment=kuhn", "seconds=10", *FEW_SNAPSHOTS),
    "connect_four": (*LEAGUE, "experiment=connect_four", "seconds=10", "league.replay_every=1"),
    "nim": (*LEAGUE, "league=mine", "league.env=examples/nim/vectorised.py:Nim", "project=nim", "seconds=5"),
}


def test_every_code_block_says_what_it_is():
    unnamed = {page.name: set(pages.languages(page)) - pages.LANGUAGES for page in pages.PAGES}
    assert {name: left for name, left in unnamed.items() if left} == {}


def test_every_command_of_a_page_is_classified_and_nothing_else_is():
    """Add a new command to TABLE of page_commands.py: as one that runs, or with the reason why it does not."""
    assert pages.unclassified() == [] and pages.stale() == []


def test_every_target_of_make_on_a_page_exists():
    targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for command in COMMANDS for target in re.findall(r"\bmake ([a-z][a-z0-9.-]*)", command)}
    assert named and named - targets == set()


@dataclass
class Place:
    """A folder with trained runs, and a Redis with leagues that no process plays."""

    folder: Path  # holds the runs; commands change only the page's copy
    servers: Servers
    league: str  # a league's run, for commands that take it from the environment
    other: str  # a copy of the league, for commands that name a run
    gone: str  # another copy, to be removed
    frozen: str  # one of its players, PLAYER@VERSION
    version: int  # of a checkpoint of its main agent
    at: str  # a moment of its life, ISO 8601

    def of_page(self, page: Path) -> Path:
        """Return the folder of a page: a copy of the runs, and files that the page's commands have left."""
        place = self.folder / "pages" / page.stem
        if not place.exists():
            place.mkdir(parents=True)
            for each in self.folder.iterdir():
                if each.name in ("runs", "path"):
                    shutil.copytree(each, place / each.name, ignore=shutil.ignore_patterns("live"))
            (place / "examples").symlink_to(ROOT / "examples")
            (place / "my_script.py").symlink_to(self.folder / "my_script.py")
        return place

    def environment(self, run: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        more = {"PATH": path, "PYTHONPATH": str(ROOT), "SDL_VIDEODRIVER": "dummy", "COLUMNS": "160", "WARREN_RUN": run}
        return {**kept, **more, **self.servers.environment()}

    def filled_in(self, command: str, run: str) -> str:
        """Replace a page's examples and placeholders by names and values of this place."""
        for placeholder, here in (
            (r"\bNAME\b", run), (r"\bRUN\b", self.league), (r"\bOTHER\b", f"{self.other}-again"),
            (r"\bmain@1200\b", self.frozen), (r"\bversion=1200\b", f"version={self.version}"),
            (r"\b2026-05-04T12:00\b", self.at), (r"\bFOLDER\b", "saved"),
        ):  # fmt: skip
            command = re.sub(placeholder, here, command)
        return command

    def run(self, command: str, run: str, how: pages.Run) -> tuple[int, str]:
        """Run a page's command in the page's folder; return exit status and output."""
        page = pages.first_pages().get(command)
        folder = self.folder if page is None or how.where == "live" else self.of_page(page)
        line = f"{self.filled_in(command, run)} {how.more}"
        output = self.folder / "output"
        process: subprocess.Popen[bytes] | ForkedPython
        if re.match(r"python -m [\w.]+ ", line) and "$(" not in line:
            module, *words = shlex.split(line)[2:]
            with contextlib.chdir(folder):
                if not how.until:
                    done = forks().run(module, words, self.environment(run), how.typed)
                    return done.returncode, done.stdout + done.stderr
                output.write_text("")
                process = forks().start(module, words, output, self.environment(run))
        else:
            with output.open("w") as file:
                process = subprocess.Popen(
                    ["bash", "-c", line if "&&" in line else f"exec {line}"],
                    cwd=folder, env=self.environment(run), stdin=subprocess.DEVNULL, stdout=file,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and (not how.until or how.until not in output.read_text()):
            if time.monotonic() > deadline:
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail(f"{line}: nothing within {PATIENCE:g} s:\n{output.read_text()}")
            time.sleep(0.05)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        status = process.wait(PATIENCE)
        return 0 if how.until and status in (130, -signal.SIGINT) else status, output.read_text()


def launched(folder: Path, servers: Servers, name: str, *settings: str) -> Launched:
    """Start a run in the folder."""
    given = {**servers.environment(), "PYTHONPATH": str(ROOT)}
    with contextlib.chdir(folder):
        return Launched(folder / f"{name}.log", "workers.train", *settings, given=given)


@pytest.fixture(scope="module")
def place(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Yield a place with runs that were trained for some seconds each."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "examples").symlink_to(ROOT / "examples")
    for name, text in OWN_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    tag = secrets.token_hex(4)
    with contextlib.ExitStack() as runs:
        started = {
            name: runs.enter_context(launched(folder, servers, name, *settings, f"run=test-{name}-{tag}"))
            for name, settings in MADE.items()
        }
        for name, run in started.items():
            assert run.wait(500.0) == 0, f"{name}:\n{run.output}"
    # A gateway's run leaves the same files except for the game's name.
    shutil.copytree(folder / "runs/cartpole", folder / "runs/cartpole-gamecore")
    config = folder / "runs/cartpole-gamecore/TRIAL/config.yaml"
    config.write_text(config.read_text().replace("CartPole-v1", "gamecore:examples/gamecore/actor.py:CartPole"))
    now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    main = folder / "runs/kuhn/TRIAL/players/main/checkpoints"
    frozen = min((folder / "runs/kuhn/TRIAL/league/models").glob("main@*"))
    forks().load(["matplotlib.pyplot"])
    made = Place(
        folder, servers, league=f"test-pages-{tag}", other=f"test-pages-other-{tag}",
        gone=f"test-pages-gone-{tag}", frozen=frozen.stem,
        version=int(min(main.glob("*.safetensors")).stem), at=now,
    )  # fmt: skip
    shutil.copytree(folder / "runs/kuhn/TRIAL/league", folder / "saved")
    for run in (made.league, made.other, made.gone):
        status, output = made.run("python -m league.models --run NAME restore FOLDER", run, pages.Run())
        assert status == 0, output
    shutil.rmtree(folder / "saved")
    yield made
    purge = pages.Run(more="--yes")
    for run in (made.league, made.other, f"{made.other}-again"):
        made.run("python -m workers.runs purge NAME", run, purge)


@pytest.fixture(scope="module")
def live(place: Place) -> Iterator[str]:
    """Yield the name of a run that goes on until it is stopped."""
    name = f"{place.league}-live"
    settings = ("project=live", "trial=TRIAL", "actors=1", "env.goal=null", "total_steps=1000000000", f"run={name}")
    with launched(place.folder, place.servers, "live", *settings) as run:
        run.until(lambda: "steps " in run.output)
        yield name


@pytest.mark.parametrize("command", [one for one in RUN if pages.TABLE[one].where in ("saved", "league", "gone")])  # type: ignore[union-attr]
def test_a_command_of_a_page_does_what_the_page_says(command: str, place: Place):
    how = pages.TABLE[command]
    assert isinstance(how, pages.Run)
    run = place.gone if how.where == "gone" else place.other if "NAME" in command else place.league
    status, output = place.run(command, run, how)
    assert status == how.status and how.says in output and "Traceback" not in output, output
    said = iter([pages.comparable(line) for line in output.splitlines()])
    for line in pages.shown(command):  # a shorter run may add a note to a line
        assert any(one.startswith(line) for one in said), (
            f"the page shows {line!r}, which is missing or out of order in:\n{output}"
        )


def test_the_output_on_the_pages_is_found():
    assert len([one for one in RUN if pages.shown(one)]) >= 2
    assert pages.shown("python -m workers.train broker=foo env.id=CartPol-v1 actors=0")[-1].startswith("N settings")


@pytest.mark.parametrize("name", ["networks.md", "trained.md"])
def test_python_of_a_page_runs(name: str, place: Place):
    """Runs the page's first blocks, up to one that is a file or a class of the reader's."""
    page = ROOT / "docs" / name
    blocks = [text for language, text in pages.BLOCK.findall(page.read_text()) if language == "python"]
    alone = "\n".join(itertools.takewhile(lambda text: "class " not in text, blocks))
    assert "import" in alone
    environment = {**place.environment(place.league), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", alone], cwd=place.of_page(page), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    sorted(
        (one for one in RUN if pages.TABLE[one].where in ("live", "last")),  # type: ignore[union-attr]
        key=lambda one: pages.TABLE[one].where == "last",  # type: ignore[union-attr]
    ),
)
def test_a_command_about_a_live_run_does_what_the_page_says(command: str, place: Place, live: str):
    how = pages.TABLE[command]
    assert isinstance(how, pages.Run)
    status, output = place.run(command, live, how)
    assert status == how.status and how.says in output and "Traceback" not in output, output


@pytest.mark.parametrize("command", VERIFIED)
def test_a_training_of_the_pages_passes_the_launchers_verification(
    command: str, place: Place, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(place.folder)
    words = pages.training(command)
    assert words is not None
    _, settings = arranged(words)
    found = compose("train", settings)
    assert found is not None
    chosen = found.hydra.runtime.choices.get("algorithm")
    config = with_choices(from_hydra(settings_of(found)), chosen, settings)
    name_run(config)
    verify(config, "train")


def test_the_request_on_the_page_is_answered_by_the_deployment_above_it(place: Place):
    if shutil.which("curl") is None:
        pytest.skip("this machine has no curl")
    start, ask = (one for one in COMMANDS if "gateway.port=8001" in one or "localhost:8001" in one)
    with deployed(place, start.replace("8001", "0")) as url:
        answer = subprocess.run(
            ["bash", "-c", ask.replace("localhost:8001", url)], capture_output=True, text=True, timeout=PATIENCE
        )
    assert json.loads(answer.stdout)["action"] in (0, 1), answer


def test_the_game_process_of_the_page_plays_at_the_deployment_above_it(place: Place):
    start, game = "python -m workers.deploy run=runs/cartpole-gamecore", "python examples/gamecore/game.py"
    assert start in COMMANDS and game in COMMANDS
    with deployed(place, f"{start} gateway.port=0") as url:
        process = subprocess.Popen(shlex.split(f"{sys.executable} {game[7:]} --games 2 --url {url}"), cwd=place.folder)
        try:
            deadline = time.monotonic() + PATIENCE
            while not decisions(url):
                assert time.monotonic() < deadline and process.poll() is None
                time.sleep(0.1)
        except BaseException:
            process.kill()
            process.wait()
            raise
    assert process.wait(PATIENCE) == 0  # the gateway has ended


def decisions(url: str) -> int:
    """Return the number of decisions of the gateway at `url`."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return int(json.load(answer)["decisions"])


@contextlib.contextmanager
def deployed(place: Place, command: str) -> Iterator[str]:
    """Serve by a page's command; yield the URL at which it answers."""
    words = shlex.split(command)[3:]
    given = place.environment(place.league)
    with (
        contextlib.chdir(place.folder),
        Launched(place.folder / f"deploy-{secrets.token_hex(2)}.log", "workers.deploy", *words, given=given) as served,
    ):
        port = served.until(lambda: re.search(r'"port": (\d+)', served.output))[1]
        yield f"http://127.0.0.1:{port}"
