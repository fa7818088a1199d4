"""Settings for `--help`: name, value, type and meaning, which is the comment at the field in the source.

The source is read as text, so that help imports none of the modules that it describes.
"""

from __future__ import annotations

import ast
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import formatannotation
from pathlib import Path
from typing import Any

from workers.config import groups
from workers.config.schema import CONF, Config

PLACE = Path(__file__).resolve().parent
AGENTS = CONF.parent / "agents"
WIDTH, COLUMN = 118, 38  # characters of a line, and the column of the meanings


@cache
def of_file(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the comments at the fields of each class in a file: class -> field -> text."""
    text = path.read_text(encoding="utf-8")
    comments = {
        token.start[0]: (token.string.lstrip("# "), not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, dict[str, str]] = {}
    for kind in (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)):
        fields = [node for node in kind.body if isinstance(node, ast.AnnAssign)]
        found[kind.name] = {ast.unparse(one.target): _comment_of(one, comments) for one in fields}
    return found


def _comment_of(field: ast.AnnAssign, comments: Mapping[int, tuple[str, bool]]) -> str:
    """Return the comment behind a field, else the lines of comment right above it."""
    first, last = field.lineno, field.end_lineno or field.lineno
    behind = [text for line, (text, alone) in comments.items() if first <= line <= last and not alone]
    if behind:
        return " ".join(behind)
    above: list[str] = []
    while (line := first - 1 - len(above)) in comments and comments[line][1]:
        above.insert(0, comments[line][0])
    return " ".join(above)


def meanings(algorithm: str = "", network: str = "") -> dict[str, str]:
    """Return dotted name -> meaning of each setting of a run, those of its algorithm and network included."""
    schema = of_file(PLACE / "schema.py")
    found = dict(schema["Config"])
    tables = [("broker", schema["BrokerConfig"]), ("env", schema["EnvConfig"]), ("gateway", schema["GatewayConfig"])]
    watching = of_file(PLACE / "watching.py")
    tables += [("evaluation", watching["EvaluationConfig"]), ("metrics", watching["MetricsConfig"])]
    tables.append(("replay", of_file(PLACE / "replay_settings.py")["ReplayConfig"]))
    tables.append(("imitation", of_file(PLACE / "imitation.py")["ImitationConfig"]))
    tables.append(("league", of_file(PLACE / "league.py")["LeagueConfig"]))
    tables += [("algorithm", one) for one in _classes(AGENTS / "algorithms", algorithm)]
    tables += [("network", one) for one in _classes(AGENTS / "networks", network)]
    build = of_file(AGENTS / "policies" / "build.py")
    tables += [("network", build["ValueConfig"]), ("network", build["DistributionConfig"])]
    tables += [(f"network.{table}", build[kind]) for table, kind in groups.TABLES.items()]
    own = "{}, or one of your own: file.py:build".format
    for prefix, texts in tables:
        for name, text in texts.items():
            found[f"{prefix}.{name}"] = text or found.get(f"{prefix}.{name}", "")
    found["algorithm.name"] = own("which algorithm learns; better chosen by algorithm=NAME")
    found["network.name"] = own("which network; better chosen by network=NAME")
    return found


def _classes(folder: Path, name: str) -> Iterator[Mapping[str, str]]:
    """Yield field -> text of each class of settings in a folder: first the shared ones, then those of `name`."""
    own = [path for path in (folder / f"{name}.py", folder / name / "config.py") if name and path.exists()]
    for path in [*sorted(folder.glob("*.py")), *own]:
        for kind, texts in of_file(path).items():
            if kind.endswith("Config"):
                yield texts


def types(algorithm: str = "", network: str = "") -> dict[str, str]:
    """Return dotted name -> type of each setting of a run, those of its algorithm, network and league included."""
    found = dict(_types(Config))
    for table, settings in (
        ("algorithm", groups.algorithms().get(algorithm)),
        ("network", groups.networks().get(network)),
        ("league", groups.league()),
    ):
        found |= {} if settings is None else dict(_types(settings, f"{table}."))
    return found


def _types(settings: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    for one in fields(settings):
        if is_dataclass(inner := one.default_factory):
            yield from _types(inner, f"{prefix}{one.name}.")
            continue
        text = one.metadata.get("type") or (one.type if isinstance(one.type, str) else formatannotation(one.type))
        for pattern, word in _TYPES:
            text = re.sub(pattern, word, text)
        yield f"{prefix}{one.name}", text


# Pattern of a Python type -> the words that help shows for it.
_TYPES = (
    (r"dict(\[.*?\])?", "table"), (r"(?:tuple|list)\[(\w+)(?:, \.\.\.)?\]", r"list of \1"),
    (r"None", "null"), (r" \| ", " or "), (r"\bstr\b|Sampling", "text"),
)  # fmt: skip


def typed(value: Any) -> str:
    """Return a value as a command line takes it."""
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def lines(settings: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of help for settings, each given as (name, value as it is typed, meaning)."""
    for name, value, meaning in settings:
        given = f"  {name}={value}"
        if not meaning:
            yield given
            continue
        if len(given) >= COLUMN:
            yield given
            given = ""
        indent = " " * COLUMN
        yield textwrap.fill(
            meaning, WIDTH, initial_indent=f"{given:{COLUMN}}", subsequent_indent=indent, break_on_hyphens=False
        )
