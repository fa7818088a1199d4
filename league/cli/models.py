"""The model pool by hand: list, add, replace, freeze, describe, remove, save and restore, while a league runs or not.

python -m league.models --redis URL --run NAME list
... show main@1200          export main@1200 FILE        lineage main@1200
... add PLAYER FILE         add PLAYER FILE --freeze     replace PLAYER FILE (as its newest version)
... freeze main@1200        set main@1200 note='"best"'  remove main@1200 [--frozen]
... save FOLDER             restore FOLDER               (the whole league with its models)

`list`, `show` and `export` work for a run that trains without a league, too.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from league.matchmaking.view import ModelRef
from league.models.command_line import add_source, client, existing, existing_pool, guarded, run_prefix, value_of
from league.models.model import ModelInfo
from league.models.pool import Pool
from league.models.snapshots import Snapshots
from league.redis.store import Store
from warren.errors import PoolError
from warren.files import write_whole

READING = ("list", "show", "export")  # commands that work for a run without a league too
CHECKPOINT = ("policy.", "algorithm.", "averages.")  # beginnings of the names of a checkpoint's tensors


def read_weights(path: Path) -> bytes:
    """Return the bytes of a safetensors file. Raises PoolError if it is missing, is a checkpoint or no such file."""
    try:
        data = path.read_bytes()
        names = shapes_in(data)
    except OSError as error:
        raise PoolError(f"{path} cannot be read ({error.strerror}); name a safetensors file") from None
    except SafetensorError as error:
        raise PoolError(f"{path} is not a safetensors file ({error}); write one with safetensors.torch") from None
    if names and all(name.startswith(CHECKPOINT) for name in names):
        raise PoolError(
            f"{path} is a checkpoint of a run, with more than a model's weights; python -m workers.clone makes a "
            "player of it"
        )
    return data


def shapes_in(data: bytes) -> dict[str, tuple[int, ...]]:
    """Return name -> shape of the tensors in the bytes of a safetensors file. Raises SafetensorError."""
    return {name: tuple(tensor["shape"]) for name, tensor in deserialize(data)}  # type: ignore[no-untyped-call]


def check_fits(pool: Pool, model: ModelRef, data: bytes, path: Path) -> None:
    """Raise PoolError unless the bytes read at `path` hold tensors of the names and shapes of `model` in the pool."""
    given, own = shapes_in(data), shapes_in(pool.get(*model).data)
    for name in sorted(given.keys() | own.keys()):
        if given.get(name) != own.get(name):
            here, there = (str(list(shapes[name])) if name in shapes else "absent" for shapes in (given, own))
            raise PoolError(
                f"{path}: {name} is {here}, and in {model} {there}; a player's models are of one network, give weights "
                "of it"
            )


def add(pool: Pool, given: argparse.Namespace) -> None:
    """Add a file as a new version of a player, above its newest; `replace` needs a player that has models already."""
    data = read_weights(given.file)
    newest = pool.version(given.player)
    if given.command == "replace" and newest is None:
        raise PoolError(f"the pool holds no model of {given.player!r} to replace; add one")
    if newest is not None:
        check_fits(pool, ModelRef(given.player, newest), data, given.file)
    version = given.version if given.version is not None else (newest or 0) + 1
    parent = ModelRef.parse(given.parent) if given.parent else None
    if not pool.put(given.player, version, given.step, data, parent):
        raise PoolError(
            f"the pool holds version {newest} of {given.player!r}, and versions only go up: leave --version out, or "
            f"give {(newest or 0) + 1} or more"
        )
    ref = ModelRef(given.player, version)
    if given.freeze:
        pool.freeze(*ref)
    print(ref)


def show(info: ModelInfo) -> dict[str, Any]:
    """Return a model's entry as printed for a person."""
    return {
        "model": str(info.ref),
        "step": info.step,
        "made": datetime.fromtimestamp(info.created, UTC).isoformat(timespec="seconds"),
        "MB": round(info.size / 1e6, 3),
        "frozen": info.frozen,
        "place": info.place,
        "parent": str(info.parent or ""),
        **info.attributes,
    }


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m league.models", description=(__doc__ or "").partition("\n")[0])
    add_source(made)
    made.add_argument("--json", action="store_true", help="one JSON object a line")
    commands = made.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="all models, without loading them")
    listing.add_argument("player", nargs="?")
    for name in ("add", "replace"):
        adding = commands.add_parser(name, help=f"{name} a model from a safetensors file")
        adding.add_argument("player")
        adding.add_argument("file", type=Path)
        adding.add_argument("--version", type=int, help="default: one more than the newest")
        adding.add_argument("--step", type=int, default=0, help="environment steps that it was made at")
        adding.add_argument("--parent", help="the model it began from, PLAYER@VERSION")
        adding.add_argument("--freeze", action="store_true", help="keep it for good")
    for name in ("show", "freeze", "lineage"):
        commands.add_parser(name).add_argument("ref", type=ModelRef.parse)
    exporting = commands.add_parser("export", help="write a model to a file")
    exporting.add_argument("ref", type=ModelRef.parse)
    exporting.add_argument("file", type=Path)
    setting = commands.add_parser("set", help="set attributes")
    setting.add_argument("ref", type=ModelRef.parse)
    setting.add_argument("attributes", nargs="+", metavar="NAME=VALUE")
    removing = commands.add_parser("remove", help="take a model out")
    removing.add_argument("ref", type=ModelRef.parse)
    removing.add_argument("--frozen", action="store_true", help="even a frozen one")
    for name in ("save", "restore"):
        commands.add_parser(name, help=f"{name} the whole league").add_argument("folder", type=Path)
    return made


def run(given: argparse.Namespace) -> int:
    """Do what the command line asks."""
    if given.command in READING:
        read(existing_pool(given), given)
        return 0
    if given.command == "restore":  # before `existing`, since the run has no league yet
        connection, prefix = client(given), run_prefix(given)
        store, pool = Store(connection, f"{prefix}league:"), Pool(connection, prefix)
    else:
        store, pool = existing(given)
    match given.command:
        case "add" | "replace":
            add(pool, given)
        case "freeze":
            print(pool.freeze(*given.ref))
        case "lineage":
            print(" <- ".join(map(str, pool.lineage(given.ref))))
        case "set":
            pairs = (attribute.partition("=") for attribute in given.attributes)
            pool.describe(given.ref, **{name: value_of(value) for name, _, value in pairs})
        case "remove":
            pool.remove(given.ref, frozen=given.frozen)
        case "save" | "restore":
            snapshots = Snapshots(given.folder, store, pool)
            snapshots.save() if given.command == "save" else snapshots.restore()
    return 0


def read(pool: Pool, given: argparse.Namespace) -> None:
    """List, show or export models: these commands need no league.

    Raises PoolError if the pool lacks the model, OSError if the file cannot be written.
    """

    def say(row: dict[str, Any]) -> None:
        print(json.dumps(row) if given.json else "  ".join(f"{key} {value}" for key, value in row.items()))

    match given.command:
        case "list":
            for info in pool.models(given.player):
                say(show(info))
        case "show":
            found = pool.info(given.ref)
            if found is None:
                raise PoolError(f"model {given.ref} is not in the pool; `python -m league.models list` shows what is")
            say(show(found))
        case "export":
            write_whole(given.file, pool.get(*given.ref).data)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; exit status 2 for an error."""
    return guarded(lambda: run(parser().parse_args(argv)))
