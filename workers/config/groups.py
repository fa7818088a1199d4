"""Structured configs of the groups algorithm, network and league: a dataclass for each of their options.

The settings' own dataclasses stand beside code that imports torch, which a launcher must not import. So this module
reads their source and makes dataclasses with the same fields, from which Hydra checks types and fills in defaults.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, is_dataclass, make_dataclass
from functools import cache
from inspect import formatannotation
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from hydra.core.config_store import ConfigStore

from workers.servers.modes import MODES

PLACE = Path(__file__).resolve().parent
AGENTS = PLACE.parents[1] / "agents"
OF_ANY_NETWORK = ("NormalizationConfig", "PrivilegedConfig", "ValueConfig", "DistributionConfig")
TABLES = {"box_actions": "BoxActionsConfig", "discrete_actions": "DiscreteActionsConfig"}  # any network has these, too


def _fixed(default: Any = MISSING, **more: Any) -> Any:
    """Stand in for `workers.config.schema.fixed`, without its metadata, which Hydra does not need."""
    return field(default=default, **more)


class _Names(dict[str, Any]):
    """The names that annotations and defaults may use: those below, and classes and constants of the same source."""

    def __init__(self, source: Source) -> None:
        super().__init__(Any=Any, Mapping=dict, fixed=_fixed, field=field)
        self._source = source

    def __missing__(self, name: str) -> Any:
        if name in self._source.nodes:
            return self._source.made(name)
        if name in self._source.constants:
            return self._source.value(self._source.constants[name])
        raise KeyError(name)  # a builtin


class Source:
    """The settings classes of some files, none of which is imported."""

    def __init__(self, *paths: Path) -> None:
        texts = [path.read_text(encoding="utf-8") for path in paths]
        trees = [ast.parse(text) for text in texts if "Config:" in text or "Config(" in text]
        body = [node for tree in trees for node in tree.body]
        self.nodes = {one.name: one for one in body if isinstance(one, ast.ClassDef) and one.name.endswith("Config")}
        self.constants = {ast.unparse(one.targets[0]): one.value for one in body if isinstance(one, ast.Assign)}
        self._names = _Names(self)
        self._made: dict[str, type] = {}

    def made(self, name: str) -> type:
        """Return a dataclass with the fields, types and defaults of the class `name`; a required field is null."""
        if name not in self._made:
            node = self.nodes[name]
            bases = tuple(self.made(base.id) for base in node.bases if isinstance(base, ast.Name))
            self._made[name] = make_dataclass(name, [*self._fields(node)], bases=bases)
        return self._made[name]

    def _fields(self, node: ast.ClassDef) -> Iterator[tuple[str, Any, Any]]:
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and not ast.unparse(one.annotation).startswith("ClassVar"):
                hint, default = self.value(one.annotation), MISSING if one.value is None else self.value(one.value)
                required = default is MISSING or (
                    isinstance(default, Field) and default.default is MISSING and default.default_factory is MISSING
                )
                if required and get_origin(hint) is dict:
                    default = field(default_factory=dict)
                elif required:
                    hint, default = hint | None, None
                made: Any = default if isinstance(default, Field) else field(default=default)
                made.metadata = {"type": formatannotation(hint)}  # shown by help
                yield ast.unparse(one.target), _typed(hint), made

    def value(self, node: ast.expr) -> Any:
        """Return the value of an annotation, a default or a constant."""
        return eval(ast.unparse(node), {}, self._names)


def _typed(hint: Any) -> Any:
    """Return a type that Hydra accepts, and that lets a command line add to a table that is null or holds tables."""
    if isinstance(hint, UnionType) and any(get_origin(part) is dict for part in get_args(hint)):
        return Any
    return dict[str, Any] if get_origin(hint) is dict and is_dataclass(get_args(hint)[1]) else hint


@cache
def algorithms() -> Mapping[str, type]:
    """Return the structured config of each algorithm by its name."""
    folder = AGENTS / "algorithms"
    own = {path.parent.name: path for path in folder.glob("*/config.py")}
    source = Source(*folder.glob("*.py"), *own.values())
    named = {name: _class_in(path) for name, path in own.items()}
    return {name: _named(name, source.made(kind)) for name, kind in named.items()}


@cache
def networks() -> Mapping[str, type]:
    """Return the structured config of each network by its name, with the settings that any network has."""
    folder = AGENTS / "networks"
    entered = {path: f'@NETWORKS.register("{path.stem}")' for path in folder.glob("*.py")}
    files = {path.stem: path for path, line in entered.items() if line in path.read_text(encoding="utf-8")}
    source = Source(*folder.glob("*.py"), AGENTS / "policies" / "build.py")
    made = {table: source.made(kind) for table, kind in TABLES.items()}
    tables = make_dataclass("Tables", [(table, kind, field(default_factory=kind)) for table, kind in made.items()])
    shared = (*(source.made(kind) for kind in OF_ANY_NETWORK), tables)
    return {name: _named(name, source.made(_class_in(path)), *shared) for name, path in files.items()}


@cache
def league() -> type:
    """Return the structured config of a league."""
    return Source(PLACE / "league.py").made("LeagueConfig")


def _class_in(path: Path) -> str:
    (name,) = Source(path).nodes
    return name


def _named(name: str, *bases: type) -> type:
    """Return a dataclass of the fields of `bases` and, as the first one, of `name`, which chooses the option."""
    return make_dataclass(bases[0].__name__, [], bases=(*bases, make_dataclass("Named", [("name", str, name)])))


# Hydra copies its sources, and with them this store, for each composition and each list of a group's options.
ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]


def register() -> None:
    """Enter in Hydra's store the schemas on which the files of conf/ are based, and the options of `broker`."""
    store = ConfigStore.instance().store
    for name, node in algorithms().items():
        store(group="schema/algorithm", name=name, node=node)
    for name, node in networks().items():
        store(group="schema/network", name=name, node=node)
    store(group="schema", name="league", node=league())
    for mode in MODES:  # the group `broker` has an option for each mode, and no files
        store(group="broker", name=mode, node={"mode": mode})
