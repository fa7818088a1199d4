"""Tests of the pages: the modules, settings, files and names that they mention exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from warren.errors import ConfigurationError
from workers.command import CHOOSES, LEAGUE
from workers.config import applicable
from workers.config.overrides import compose, in_full, settings_of
from workers.config.resuming import is_fixed
from workers.config.roles import ROLES
from workers.config.schema import from_hydra

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
PACKAGES = ("agents", "benchmarks", "envs", "league", "tasks", "warren", "workers")
COMMANDS = ("train", *(role.name for role in ROLES))
PLACEHOLDER = re.compile(r"\b(NAME|TRIAL|RUN|YOURS|local)\b")  # a reader replaces these
names = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language ("" for commands)."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def code(page: Path) -> str:
    """Return all code of a page, inline and in blocks."""
    text = page.read_text()
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join([*re.findall(r"`([^`]+)`", outside), *blocks(page, r"\w*")])


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Return (role, its settings) of every line that starts a role, directly or by `make`."""
    found = []
    for line in re.sub(r"\\\n\s*", "", code(page)).splitlines():  # a command on two lines
        if line.startswith("$ ") or "--multirun" in line:
            continue  # `$ ` lines show wrong settings, --multirun gives several values
        for made, given in re.findall(r'make (train|league) ARGS="([^"]*)"', line):
            chosen = made == "train" or any(word.startswith(CHOOSES) for word in shlex.split(given))
            found.append(("train", [*([] if chosen else [LEAGUE]), *shlex.split(given)]))
        if match := re.search(rf"python -m workers\.({'|'.join(COMMANDS)})\b(.*)", line):
            words = shlex.split(match[2], comments=True)
            found.append((match[1], [word for word in words if "=" in word and not word.startswith("-")]))
    return found


@names
def test_every_table_has_a_header(page: Path) -> None:
    """A blank line ends a table: rows below it would be shown as text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    tables = [block for block in text.split("\n\n") if block.lstrip("\n").startswith("|")]
    rule = re.compile(r"^\|[\s:|-]+\|$", re.MULTILINE)  # below a table's header
    assert [block.strip().splitlines()[0] for block in tables if not rule.search(block)] == []


@names
def test_every_module_that_is_started_exists(page: Path) -> None:
    modules = set(re.findall(r"python -m ([\w.]+)", code(page)))
    ours = {module for module in modules if module.partition(".")[0] in PACKAGES}
    missing = [module for module in ours if importlib.util.find_spec(module) is None]
    assert missing == []


@names
def test_every_setting_of_a_role_is_one(page: Path) -> None:
    for role, given in commands(page):
        settings = [in_full(one) for one in given]
        if any(one.startswith("NAME=") for one in settings):
            continue  # the reader replaces it
        if any(one.startswith("resume=") for one in settings):  # the folder is not here, and may be a league's
            settings = ["experiment=kuhn", *(one for one in settings if not one.startswith("resume="))]
            fixed = [one for one in settings[1:] if is_fixed(one.lstrip("+").partition("=")[0])]
            assert fixed == [], f"{role} {' '.join(given)}"
        try:
            found = compose(role, settings)
            assert found is not None
            config = from_hydra(settings_of(found))
            assert list(applicable.problems(config, role, settings)) == [], f"{role} {' '.join(given)}"
        except ConfigurationError as error:
            pytest.fail(f"{role} {' '.join(given)}: {error}")


@names
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]*(?:#[^)\s]+)?)\)", page.read_text()):
        path, _, heading = link.partition("#")
        if "://" in path:
            continue
        target = page if not path else (page.parent / path)
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings]
            assert heading in anchors, link


def test_the_site_and_the_index_have_every_page() -> None:
    """`make site` checks more, but needs MkDocs."""
    pages = {page.name for page in ROOT.glob("docs/*.md")}
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"- (?:[^:\n]+: )?([\w/]+\.md)$", nav, re.MULTILINE)
    assert sorted(set(named)) == sorted(named)
    assert {page for page in named if not page.startswith("reference/")} == pages
    linked = set(re.findall(r"\]\((\w+\.md)", (ROOT / "docs/index.md").read_text()))
    assert pages - linked == {"index.md"}


@names
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(rf"(?<![\w./-])((?:{'|'.join(PACKAGES)}|conf|docs|examples)/[\w./]*\w)", code(page))
    missing = [path for path in named if not PLACEHOLDER.search(path) and not (ROOT / path).exists()]
    assert missing == []


@names
def test_every_dotted_name_on_a_page_can_be_imported(page: Path) -> None:
    outside = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    dotted = re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)\b", outside)
    services = {"league.request", "league.report", "league.learning"}
    # Names on the wire begin with warren too.
    missing = [name for name in set(dotted) - services if not name.startswith("warren.") and not reachable(name)]
    assert missing == []


def reachable(name: str) -> bool:
    """Return whether a dotted name is a module, a name in one, or a setting `league.NAME`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return is_setting(name)
            found = getattr(found, part)
        return True
    return False


def is_setting(name: str) -> bool:
    from workers.config.league import LeagueConfig

    return name.startswith("league.") and name.split(".")[1] in (*LeagueConfig.__dataclass_fields__, "learn", "NAME")


@names
def test_python_on_a_page_parses_and_its_imports_exist(page: Path) -> None:
    for block in blocks(page, "python"):
        tree = ast.parse("async def page():\n" + "\n".join(f"    {line}" for line in block.splitlines()))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@pytest.mark.parametrize(("number", "file"), [(0, "nim/nim.py"), (1, "kuhn/kuhn.py")])
def test_the_game_on_the_page_is_the_one_of_the_example(number: int, file: str) -> None:
    _, _, body = (ROOT / "examples" / file).read_text().partition('"""\n\n')
    assert blocks(ROOT / "docs/your_game.md", "python")[number] == body
