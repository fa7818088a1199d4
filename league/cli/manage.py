"""Change players while a league runs: add, pause, resume, freeze, remove them, and set their fields.

python -m league.manage --redis URL --run NAME kinds                      what kinds there are, with their options
... add NAME KIND option=value                                          as in: add main pfsp weighting=linear
... add NAME KIND --rule learning_rate=0.001 --initial main@1200         hyperparameters, and what a reset returns to
... add NAME KIND --initial main                                         its newest weights, at each reset anew
... add NAME KIND --model main@1200                                      a player that is that model and learns nothing
... pause NAME...        resume NAME...        remove NAME...            (removed players are gone for good)
... freeze NAME...                                                       at its newest model, and for good: it learns
                                                                        no more (a terminal asks first; --yes does not)
... set NAME config.weighting=linear rules.learning_rate='{"rule": "log_uniform", "low": 1e-5, "high": 1e-3}'

Every change is one event of the league's stream, which says who made it (--by). Commands can be repeated.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

from league.cli.overview import standing_of
from league.matchmaking import KINDS, kind_of
from league.matchmaking.view import NEWEST, ModelRef, Player
from league.models.command_line import add_source, existing, guarded, value_of
from league.models.pool import Pool
from league.redis.store import Store
from league.rules.hyperparameters import Constant, Hyperparameters
from league.state.fields import to_json
from warren.errors import ConfigurationError, PlayerError, UnknownName
from warren.user_code import make_importable

MODELS = ("model", "initial")
MAPPINGS = ("config", "rules", "hyperparameters")
FINAL = {  # commands that cannot be undone
    "freeze": "this is for good: a frozen player learns no more.",
    "remove": "this is for good: a removed player's name stays taken.",
}
SETTABLE = ("kind", "paused", *MODELS, *MAPPINGS)


def assignments(given: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` each, values as JSON or text. Raises ConfigurationError for anything else."""
    wrong = [f"{one!r} is not an assignment; write name=value" for one in given if "=" not in one[1:]]
    if wrong:
        raise ConfigurationError(wrong)
    return {name: value_of(value) for name, _, value in (one.partition("=") for one in given)}


def add(store: Store, pool: Pool, given: argparse.Namespace) -> str:
    """Add a player; return a message, also where it exists as asked for. Raises PlayerError if it exists otherwise."""
    config, rules = assignments(given.options), assignments(given.rule)
    _check_kind(store, given.kind, config)
    # Freeze both models, or they could leave the pool before the player needs them.
    model, initial = _frozen(store, pool, given.model), _kept(store, pool, given.initial)
    models = {"model": model, "initial": initial}
    if store.add_player(given.name, given.kind, config, frozen=model is not None, rules=rules, by=given.by, **models):
        return f"added {given.name} ({given.kind})"
    there = store.player(given.name)
    if there.removed:
        raise PlayerError(f"player {given.name!r} was removed, and its name stays taken by its history; choose another")
    asked = {"kind": given.kind, "config": config, "rules": rules, **models}
    differing = [name for name, value in asked.items() if getattr(there, name) != value]
    if differing:
        now = ", ".join(f"{name}={_text(getattr(there, name))}" for name in differing)
        raise PlayerError(f"player {given.name!r} exists with {now}; use `set` to change it, or choose another name")
    return f"{given.name} exists"


def _kept(store: Store, pool: Pool, ref: ModelRef | None) -> ModelRef | None:
    """Freeze the model and return its reference; of `player@newest` only check that the league has the player.

    Raises PlayerError where it has not.
    """
    if ref is not None and ref.version == NEWEST:
        store.player(ref.player)
        return ref
    return None if ref is None else pool.freeze(*ref)


def _frozen(store: Store, pool: Pool, ref: ModelRef | None) -> ModelRef | None:
    """Freeze a model that plays for a player, and return its reference; of `player@newest` the version of now."""
    if ref is not None and ref.version == NEWEST:
        return pool.freeze(store.player(ref.player).name)
    return _kept(store, pool, ref)


def _initial(text: str) -> ModelRef:
    """Return the model, or the newest weights of the player, that `text` names."""
    return ModelRef.parse(text) if "@" in text else ModelRef(text, NEWEST)


def freeze(store: Store, pool: Pool, player: Player, by: str) -> str:
    """Freeze a player's newest model, and the player at that model; leave a player that is frozen already unchanged."""
    if player.frozen:
        return f"{player.name} is frozen at {player.model}"
    model = pool.freeze(player.name)
    store.freeze(player.name, model, by)
    return f"froze {player.name} at {model}, for good; {_go_on(player.name, model)}"


def _go_on(name: str, model: ModelRef | None) -> str:
    return f"to train on from there, add another player: add NAME KIND --initial {model or f'{name}@VERSION'}"


def change(store: Store, pool: Pool, player: Player, given: Mapping[str, Any], by: str) -> str:
    """Set fields of a player; `mapping.entry` sets one entry. Raises WarrenError, and sets nothing, if one is wrong."""
    wanted: dict[str, Any] = {}
    for name, value in given.items():
        field, dot, entry = name.partition(".")
        if field not in SETTABLE:
            raise UnknownName("field of a player", field, SETTABLE, "`freeze` and `remove` are commands")
        if dot and field not in MAPPINGS:
            raise ConfigurationError(f"{field!r} of a player has no entries such as {entry!r}; {_all(MAPPINGS)} have")
        kept = {} if field == "hyperparameters" else getattr(player, field)
        wanted[field] = {**wanted.get(field, kept), entry: value} if dot else _checked(field, value)
    if {"kind", "config"} & wanted.keys():
        _check_kind(store, wanted.get("kind", player.kind), wanted.get("config", player.config))
    if {"rules", "hyperparameters"} & wanted.keys():
        rules = wanted.get("rules", player.rules)
        wanted["hyperparameters"] = _values(player, rules, wanted.get("hyperparameters", {}), store.rng)
    # Freeze them, or they could leave the pool before the player needs them.
    wanted |= {
        field: kept(store, pool, wanted[field])
        for field, kept in (("model", _frozen), ("initial", _kept))
        if field in wanted
    }
    store.change(player.name, by, **wanted)
    return f"set {', '.join(f'{field}={_text(value)}' for field, value in wanted.items())} of {player.name}"


def _checked(field: str, value: Any) -> Any:
    """Return `value` in the type that the store takes for `field`. Raises ConfigurationError for another type."""
    if field == "paused" and not isinstance(value, bool):
        raise ConfigurationError(f"{field}={_text(value)} is neither true nor false")
    if field in MAPPINGS and not isinstance(value, dict):
        raise ConfigurationError(
            f"{field}={_text(value)} is not a JSON object; write {field}='{{...}}', or {field}.NAME="
        )
    if field in MODELS:
        read = _initial if field == "initial" else ModelRef.parse
        return read(str(value)) if value not in ("", None) else None
    return value


def _values(
    player: Player, rules: Mapping[str, Any], given: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Any]:
    """Return the value of each hyperparameter that has a rule: as given, else its present one, else one newly drawn."""
    by_rule = Hyperparameters(rules)
    for name, value in given.items():
        if name not in rules:
            raise UnknownName("hyperparameter", name, rules, f"give it a rule first, as in rules.{name}={_text(value)}")
        if isinstance(by_rule.rules[name], Constant):
            raise ConfigurationError(
                f"hyperparameter {name!r} is constant by its rule; set rules.{name}={_text(value)}"
            )
    # Values are kept only where the rule is unchanged: a place in a cycle, for instance, is not a learning rate.
    kept = {name for name, rule in rules.items() if player.rules.get(name) == rule}
    return {
        **by_rule.initial(rng),
        **{name: value for name, value in player.hyperparameters.items() if name in kept},
        **given,
    }


def _check_kind(store: Store, name: str, config: Mapping[str, Any]) -> None:
    for other in kind_of(name, config).named:
        if store.player(other).removed:
            raise PlayerError(f"player {other!r} was removed from the league for good; name another")


def kinds() -> str:
    """Return all kinds of player with their options and defaults, a line each."""
    lines = []
    for name in KINDS:
        options = " ".join(
            field.name if field.default is MISSING else f"{field.name}={_text(field.default)}"
            for field in fields(KINDS[name])
        )
        lines.append(f"{name:<18}{options}")
    return "\n".join(lines)


def _all(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _text(value: Any) -> str:
    return (
        str(value)
        if isinstance(value, str | ModelRef)
        else to_json(dict(value) if isinstance(value, Mapping) else value)
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m league.manage", description=(__doc__ or "").partition("\n")[0])
    add_source(made)
    made.add_argument("--by", default="manage", help="author of the change, for the league's history; default: manage")
    made.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="with your own kinds"
    )
    made.add_argument("--yes", action="store_true", help="do not ask before what cannot be undone (freeze, remove)")
    made.add_argument("--json", action="store_true", help="print the changed players, one JSON object per line")
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("kinds", help="all kinds of player with their options")
    adding = commands.add_parser("add", help="add a player")
    adding.add_argument("name")
    adding.add_argument("kind", help="of `kinds`")
    adding.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="of the kind")
    adding.add_argument("--rule", action="append", default=[], metavar="FIELD=VALUE", help="of a hyperparameter")
    adding.add_argument(
        "--initial",
        type=_initial,
        metavar="PLAYER[@VERSION]",
        help="weights at its start and after a reset; without a version the newest ones at that moment",
    )
    adding.add_argument(
        "--model", type=ModelRef.parse, metavar="PLAYER@VERSION", help="be this model, and learn nothing"
    )
    for name, meaning in (
        ("pause", "give no more matches and no learning periods"),
        ("resume", "undo pause"),
        ("freeze", "freeze the newest model, and the player at it, for good: it learns no more"),
        ("remove", "take out of the league for good"),
    ):
        commands.add_parser(name, help=meaning).add_argument("names", nargs="+", metavar="NAME")
    setting = commands.add_parser("set", help="set fields of a player")
    setting.add_argument("name")
    setting.add_argument("fields", nargs="+", metavar="FIELD=VALUE", help=_all(SETTABLE))
    return made


def run(given: argparse.Namespace) -> int:
    """Do what the command line asks."""
    for module in given.modules:
        if not all(module.split(".")):
            raise ConfigurationError(
                f"--import {module!r} is no module's name; write it as import does, as in my.kinds"
            )
        make_importable(Path.cwd())
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(f"--import {module}: {error}; give a module that Python finds here") from None
    if given.command == "kinds":
        print(kinds())
        return 0
    store, pool = existing(given)
    names = [given.name] if hasattr(given, "name") else list(dict.fromkeys(given.names))
    if given.command == "add":
        _say(given, store, given.name, add(store, pool, given))
        return 0
    roster = store.view().roster
    players = [roster[name] for name in names]  # look up all names first: a wrong one changes nothing
    if gone := [player.name for player in players if player.removed and given.command != "remove"]:
        raise PlayerError(f"player {gone[0]!r} was removed from the league for good; add another")
    if given.command == "resume" and (frozen := [player for player in players if player.frozen]):
        raise PlayerError(
            f"player {frozen[0].name!r} is frozen at {frozen[0].model}, which is for good, so it cannot be resumed; "
            f"{_go_on(frozen[0].name, frozen[0].model)}"
        )
    if given.command in FINAL and not given.yes and not _agreed(given.command, names):
        return 1
    plain: dict[str, Callable[[str, str], None]] = {
        "pause": store.pause,
        "resume": store.resume,
        "remove": store.remove,
    }
    for player in players:
        match given.command:
            case "freeze":
                said = freeze(store, pool, player, given.by)
            case "set":
                said = change(store, pool, player, assignments(given.fields), given.by)
            case command:
                plain[command](player.name, given.by)
                said = f"{player.name} is {standing_of(store.player(player.name))}"
        _say(given, store, player.name, said)
    return 0


def _agreed(command: str, names: Sequence[str]) -> bool:
    """Ask the person at the terminal for a confirmation; return True without one in a script."""
    if not sys.stdin.isatty():
        return True
    print(f"{command} {', '.join(names)}: {FINAL[command]} Go on? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(given: argparse.Namespace, store: Store, name: str, said: str) -> None:
    if not given.json:
        print(said)
        return
    player = store.player(name)
    shown = {
        field: getattr(player, field)
        for field in ("kind", "paused", "frozen", "removed", "parent", "generation", *MAPPINGS)
    }
    models = {field: str(getattr(player, field) or "") or None for field in MODELS}
    print(json.dumps({"player": name, **shown, **models}))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; exit status 2 for an error."""
    return guarded(lambda: run(parser().parse_args(argv)))
