"""The command line of dead letters: listed, shown, sent again as they were or corrected, dropped."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import redis
from rich.text import Text

from league.cli.tables import output, table
from tasks import brokers
from tasks.admin.dead_letters import NONE_KEPT, DeadLetter, DeadLetters
from warren.errors import BrokerError, ClaimError, ConfigurationError
from workers.config.command_line import guarded, urls_from_environment
from workers.ui.letter_corrections import corrected, facts, read_file
from workers.ui.letter_texts import age, plain
from workers.ui.run_options import connect

DEALS = ("replay", "requeue", "drop")  # requeue: the former word for replay
TELL_EVERY = 2.0  # s between lines of progress

Known = dict[str, Any]  # facts about a letter: DeadLetter.as_dict


def run(options: argparse.Namespace) -> int:
    """Carry out the command line; return the exit status."""
    urls_from_environment(options)
    problems = []
    if options.action in DEALS and bool(options.which or options.reason) == options.all:
        problems.append(f"{options.action}: name services or ids, or a --reason, or give --all")
    if options.action == "show" and len(options.which) != 1:
        problems.append("show: name one id")
    if options.file and (options.action not in ("replay", "requeue") or len(options.which) != 1 or options.reason):
        problems.append("--from: corrects one letter; write replay ID --from FILE")
    options.given = read_file(options.file) if options.file and not problems else None
    topology, app = connect(options, *problems)
    if not brokers.of(app).dead_letters:
        print(json.dumps({"run": options.run, "letters": []}) if options.json else NONE_KEPT)
        return 0
    with DeadLetters(app, topology) as letters:
        found = letters.count()
        if found is None:
            said = f"run {options.run} has no queues of dead letters on this broker; check the run's name"
            print(json.dumps({"run": options.run, "letters": []}) if options.json else said)
            return 0
        actions = {"list": _list, "show": _show, "replay": _replay, "requeue": _replay, "drop": _drop}
        return actions[options.action](letters, found, options)


def _list(letters: DeadLetters, count: int, options: argparse.Namespace) -> int:
    known = [one for one in _look(letters, count) if _is_selected(one, options)]
    if options.json:
        print(json.dumps({"run": options.run, "letters": known}, indent=2))
    elif not known:
        asked = bool(options.which or options.reason)
        print(f"run {options.run} has no dead letters{' of that name or reason' if asked else ''}")
    else:
        _print_table(known if options.each else None, known)
    return 0


def _print_table(each: list[Known] | None, known: list[Known]) -> None:
    console = output()
    columns: dict[str, list[str | Text]]
    if each is not None:
        columns = {
            "id": [plain(one["id"]) for one in each],
            "service": [plain(one["service"]) for one in each],
            ">age": [age(one["died_at"]) for one in each],
            ">bytes": [f"{one['bytes']:,}" for one in each],
            "reason": [plain(one["reason"]) for one in each],
        }
    else:
        groups: dict[tuple[str, str], list[Known]] = {}
        for one in known:
            groups.setdefault((one["service"], one["reason"]), []).append(one)
        columns = {
            "service": [plain(service) for service, _ in groups],
            ">letters": [f"{len(some):,}" for some in groups.values()],
            ">oldest": [
                age(min((one["died_at"] for one in some if one["died_at"]), default=None)) for some in groups.values()
            ],
            ">newest": [
                age(max((one["died_at"] for one in some if one["died_at"]), default=None)) for some in groups.values()
            ],
            ">bytes": [f"{sum(one['bytes'] for one in some):,}" for some in groups.values()],
            "reason": [plain(reason) for _, reason in groups],
        }
    console.print(table(columns, console.width, (">newest", ">bytes")))


def _show(letters: DeadLetters, count: int, options: argparse.Namespace) -> int:
    wanted, *others = _ids(_look(letters, count), options.which)
    if others:
        raise ConfigurationError(
            f"show: {options.which[0]} has {1 + len(others)} dead letters; name one id, as `list --each` shows them"
        )
    letter = _held(letters, wanted)
    told = facts(letter, options.whole)
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        told.pop("whole", None)
        for name, value in told.items():
            print(f"{name}: {plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}")
    return 0


def _replay(letters: DeadLetters, count: int, options: argparse.Namespace) -> int:
    if options.given is not None:
        return _replay_corrected(letters, count, options)
    chosen = _chosen(letters, count, options)
    return _deal(_again(letters), chosen, letters.send_again, "sent again", options)


def _replay_corrected(letters: DeadLetters, count: int, options: argparse.Namespace) -> int:
    found = set(_ids(_look(letters, count), options.which))
    if len(found) != 1:
        raise ConfigurationError(f"--from: {options.which[0]} names {len(found)} letters; name one by its id")
    letter = _held(letters, *found)
    arguments = corrected(letter, options.given)
    return _deal([letter], [*found], lambda one: letters.send_again(one, arguments), "sent again", options)


def _drop(letters: DeadLetters, count: int, options: argparse.Namespace) -> int:
    chosen = _chosen(letters, count, options)
    if chosen and not options.yes:
        question = f"drop {len(chosen)} dead letters of run {options.run} for good? [y/N] "
        print(question, end="", flush=True, file=sys.stderr if options.json else sys.stdout)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            print(json.dumps({"run": options.run, "dropped": 0}) if options.json else "nothing was dropped")
            return 0
    return _deal(_again(letters), chosen, letters.drop, "dropped", options)


def _deal(
    found: Iterable[DeadLetter],
    chosen: list[str],
    deal: Callable[[DeadLetter], None],
    done: str,
    options: argparse.Namespace,
) -> int:
    """Call `deal` with those of `found` that have these ids; print how many were dealt with, and why others stayed."""
    wanted, number, stayed, last = set(chosen), 0, dict[str, int](), time.monotonic()
    try:
        for letter in found:
            if letter.id not in wanted:
                continue
            try:
                deal(letter)
                number += 1
            except (BrokerError, ClaimError) as error:
                stayed[str(error)] = stayed.get(str(error), 0) + 1
            if time.monotonic() - last > TELL_EVERY:
                last = time.monotonic()
                print(f"{number} of {len(chosen)} {done}", file=sys.stderr)
    finally:
        if options.json:
            print(json.dumps({"run": options.run, done.replace(" ", "_"): number, "stayed": stayed}))
        else:
            print(f"{number} {done}")
        for why, times in stayed.items():
            print(f"error: {times} stayed: {plain(why)}", file=sys.stderr)
    return 1 if stayed else 0


def _look(letters: DeadLetters, count: int) -> list[Known]:
    """Read all letters; return the facts about each, without bodies."""
    known, last = [], time.monotonic()
    for letter in letters.each():
        known.append(letter.as_dict())
        if time.monotonic() - last > TELL_EVERY:
            last = time.monotonic()
            print(f"{len(known)} of {count} read", file=sys.stderr)
    return known


def _again(letters: DeadLetters) -> Iterator[DeadLetter]:
    letters.put_back()
    return letters.each()


def _held(letters: DeadLetters, wanted: str) -> DeadLetter:
    """Return the first letter of that id. Raises ConfigurationError if another program has taken it meanwhile."""
    for letter in _again(letters):
        if letter.id == wanted:
            return letter
    raise ConfigurationError(f"{wanted}: is no dead letter any more, or another program looks at it; try again")


def _chosen(letters: DeadLetters, count: int, options: argparse.Namespace) -> list[str]:
    """Return the ids of the letters that are to be dealt with. Raises ConfigurationError if there are none."""
    known = [one for one in _look(letters, count) if _has_reason(one, options.reason)]
    if options.reason and not known:
        raise ConfigurationError(f"--reason: {options.reason!r} is in the reason of no dead letter; `list` shows them")
    return _ids(known, options.which) if options.which else [one["id"] for one in known]


def _ids(known: list[Known], which: Iterable[str]) -> list[str]:
    """Return the ids of the named letters. Raises ConfigurationError for unknown and ambiguous names."""
    found, problems = list[str](), list[str]()
    for name in which:
        of_service = [one["id"] for one in known if one["service"] == name]
        by_id = sorted({one["id"] for one in known if one["id"].startswith(name)})
        if name in by_id:
            by_id = [name]
        if of_service:
            found += of_service
        elif len(by_id) == 1:
            found += by_id
        elif by_id:
            problems.append(f"{name}: {len(by_id)} dead letters have ids that begin so; write more of the id")
        else:
            services = ", ".join(sorted({plain(one["service"]) for one in known})) or "none"
            problems.append(
                f"{name}: is neither the id nor the service of a dead letter; services with some: {services}"
            )
    if problems:
        raise ConfigurationError(problems)
    return found


def _is_selected(one: Known, options: argparse.Namespace) -> bool:
    named = any(one["service"] == name or one["id"].startswith(name) for name in options.which)
    return (named or not options.which) and _has_reason(one, options.reason)


def _has_reason(one: Known, part: str | None) -> bool:
    return not part or part.lower() in one["reason"].lower()


def main(description: str | None = None, arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.dead", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "action", nargs="?", default="list", choices=["list", "show", *DEALS], metavar="list|show|replay|drop"
    )
    parser.add_argument(
        "which", nargs="*", metavar="SERVICE|ID", help="services (actor.push) or ids, or their beginnings"
    )
    parser.add_argument("--run", default=os.environ.get("WARREN_RUN"), help="name of the run")
    parser.add_argument("--broker-url")
    parser.add_argument("--redis-url")
    parser.add_argument("--reason", metavar="TEXT", help="only letters with this text in their reason")
    parser.add_argument("--from", dest="file", type=Path, metavar="FILE", help="with replay ID: corrected arguments")
    parser.add_argument("--all", action="store_true", help="with replay and drop: all letters")
    parser.add_argument("--each", action="store_true", help="with list: a line per letter, with its id")
    parser.add_argument("--whole", action="store_true", help="with show: long texts and lists uncut")
    parser.add_argument("--yes", action="store_true", help="with drop: do not ask")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_intermixed_args(arguments)

    def job() -> int:
        try:
            return run(options)
        except (*brokers.GONE, redis.RedisError) as error:
            raise BrokerError(f"a server went away: {error}; what was not sent again or dropped stays") from error

    return guarded(job)
