"""docs/protocol.md agrees with the gateway: kinds, fields, errors, bounds."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.game_clients import Http, Tcp
from support.python_source import nodes

from workers.config.schema import GatewayConfig
from workers.gateway import protocol, sessions
from workers.gateway.http import LONGEST_HEAD
from workers.gateway.tcp import LONGEST_HEAD as LONGEST_TCP_HEAD

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocol.md"
GATEWAY = Path(protocol.__file__).parent


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its header."""
    text = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert text
    lines = [line for line in text[1].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def message(node: ast.expr, module: ModuleType) -> list[str]:
    """Return the texts that an expression in a module may give, with "..." for values."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*message(node.body, module), *message(node.orelse, module)]
    if isinstance(node, ast.Name) and node.id.isupper():
        return [str(getattr(module, node.id))]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)]
    if ast.unparse(node) == "self._wait":
        return [sessions.WAIT_FOR_WEIGHTS]
    assert ast.unparse(node) == "msg"  # from the HTTP parser
    return []


def refusals() -> set[tuple[int, str]]:
    """Return (status, message) of every refusal in the code of gateways."""
    found = set()
    for path in GATEWAY.rglob("*.py"):
        name = ".".join(path.relative_to(GATEWAY.parents[1]).with_suffix("").parts)
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                status, said = node.args[:2]
                assert isinstance(status, ast.Constant) and isinstance(status.value, int)
                found |= {(status.value, text) for text in message(said, importlib.import_module(name))}
    return found


def shape(status: int, text: str) -> tuple[int, str]:
    """Return status and text with adjacent values, and their unit of seconds, merged into one "..."."""
    return status, re.sub(r"(\.\.\.( s)?)+", "...", text)


def test_every_refusal_has_its_row_and_every_row_its_refusal() -> None:
    listed = {shape(int(row[0]), text) for row in rows("Errors") for text in words(row[1])}
    made = {shape(status, text) for status, text in refusals()}
    assert len(made) > 25
    assert made - listed == set()
    assert listed - made == set()


def test_kinds_and_fields_are_those_that_are_read() -> None:
    assert {kind for row in rows("Requests") for kind in words(row[0])} == {k.decode() for k in protocol._KINDS}
    assert {name for row in rows("Fields") for name in words(row[0])} == {name.decode() for name in protocol._FIELDS}
    assert f"1 to {protocol.LONGEST_FIELD} bytes" in PAGE.read_text()


def test_bounds_are_the_defaults() -> None:
    listed = {words(name)[0].removeprefix("gateway."): value for name, value, _ in rows("Times and bounds")}
    defaults = GatewayConfig()
    for name, value in listed.items():
        number = re.match(r"[\d,]+", value)
        assert (float(number[0].replace(",", "")) if number else None) == getattr(defaults, name), name
    assert {"receive", "answer", "idle", "drain"} | {one for one in vars(defaults) if one.startswith("max_")} == set(
        listed
    )
    assert f"{LONGEST_HEAD:,} bytes over HTTP" in PAGE.read_text()
    assert f"a head {LONGEST_TCP_HEAD:,} over TCP" in PAGE.read_text()


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("kind", [word for row in rows("Requests") for word in words(row[0])])
def test_each_kind_does_what_the_table_says(gateways: Any, kind: str, raw: bool) -> None:
    closed, opened = next(row[1:3] for row in rows("Requests") if kind in words(row[0]))
    gateway = gateways()

    def ask(session: str, step_kind: str) -> int:
        body = b'{"observation": [0, 0, 0]}'
        if raw:
            return int(Tcp(gateway.server.tcp_port).ask(body, session=session, step_kind=step_kind)[0]["status"])
        return Http(gateway.server.port).ask(body, session=session, step_kind=step_kind)[0]

    def status(cell: str) -> int:
        return int(cell) if cell.isdigit() else 200

    assert ask("a", kind) == status(closed)
    assert len(gateway.sessions) == ("opens" in closed)
    assert ask("b", "start") == 200
    before = len(gateway.sessions)
    assert ask("b", kind) == status(opened)
    assert before - len(gateway.sessions) == ("closes" in opened)
