"""Corrected arguments of a dead letter: a file that `show ID --json` wrote and a person changed, made arguments again.

JSON lacks arrays, bytes and times: `shown` writes a text in the place of each. A text of these that was left as it was
stands for the letter's own value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tasks.admin.dead_letters import DeadLetter
from warren.errors import BrokerError, ClaimError, CodecError, ConfigurationError
from workers.ui.letter_texts import SHOWN_DEPTH, shown

CORRECTED = ("args", "kwargs")  # the fields of the file that may be changed
WRITE_ANEW = "write it anew by `show ID --json --whole`"


def facts(letter: DeadLetter, whole: bool) -> dict[str, Any]:
    """Return what `show` tells of a letter, for JSON; `whole`: with long texts and lists uncut.

    The field `whole` says that nothing of the arguments was cut.
    """
    told: dict[str, Any] = {**letter.as_dict(), "exchange": letter.exchange, "key": letter.key}
    told["headers"] = shown(letter.headers, whole)
    try:
        body = letter.read()
    except (CodecError, ClaimError, BrokerError) as error:
        return {**told, "unreadable": str(error)}
    if not _is_call(body):
        return {**told, "body": shown(body, whole)}
    parts = {"args": body[0], "kwargs": body[1]}
    told |= {name: shown(part, whole) for name, part in parts.items()}
    told["whole"] = whole or all(told[name] == shown(part, True) for name, part in parts.items())
    return told


def read_file(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ConfigurationError if it holds none or cannot be read."""
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"--from {path}: {error.strerror}; name a file that `show ID --json` wrote") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"--from {path}: is no JSON ({error}); {WRITE_ANEW}") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"--from {path}: is no JSON object; {WRITE_ANEW}")
    return found


def corrected(letter: DeadLetter, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return (args, kwargs) as the file's content `given` has them.

    Raises ConfigurationError if it is of another letter, changes more than the arguments or has not their form;
    CodecError, ClaimError and BrokerError if the letter's own arguments cannot be read.
    """
    body = letter.read()
    if not _is_call(body):
        raise ConfigurationError(f"{letter.id}: its body is no call's, so it has no arguments to correct")
    _check_fields(letter, given)
    if not isinstance(given["args"], list):
        raise ConfigurationError(f"args: is {given['args']!r:.80}, not a list; write the arguments in [...]")
    if not isinstance(given["kwargs"], dict):
        raise ConfigurationError(f"kwargs: is {given['kwargs']!r:.80}, not an object; write them as {{NAME: VALUE}}")
    stand_ins = dict[str, list[Any]]()
    for text, value in (pair for part in body[:2] for pair in _stand_ins(part, 0)):
        stand_ins.setdefault(text, []).append(value)
    merge = _Merge(stand_ins)
    try:
        return merge(body[0], given["args"], "args", 0), merge(body[1], given["kwargs"], "kwargs", 0)
    except RecursionError:
        raise ConfigurationError("the file's arguments nest too deeply; flatten them") from None


def _is_call(body: Any) -> bool:
    return isinstance(body, list | tuple) and len(body) == 3


def _check_fields(letter: DeadLetter, given: dict[str, Any]) -> None:
    """Raise ConfigurationError unless the file is what `show` tells of this letter, with other arguments at most."""
    if given.get("id") != letter.id:
        raise ConfigurationError(f"the file is of letter {given.get('id')!r:.80}, not of {letter.id}; {WRITE_ANEW}")
    whole, cut = facts(letter, True), facts(letter, False)
    fixed = sorted((whole.keys() | given.keys()) - {*CORRECTED, "whole"})
    problems = [
        f"{name}: is not as `show` tells it; a correction changes args and kwargs alone: {WRITE_ANEW}"
        for name in fixed
        if name not in whole or given.get(name) not in (whole[name], cut[name])
    ]
    problems += [f"{name}: is missing; {WRITE_ANEW}" for name in CORRECTED if name not in given]
    if given.get("whole") is not True:
        problems.append(f"the file's arguments were shown cut; {WRITE_ANEW}")
    if problems:
        raise ConfigurationError(problems)


def _stand_ins(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield (text, value) of the values within `value` in whose places `shown` writes a text."""
    if isinstance(value, dict | list | tuple) and depth < SHOWN_DEPTH:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _stand_ins(part, depth + 1)
    elif not isinstance(value, bool | int | float | str | None):
        yield shown(value, True, depth), value


class _Merge:
    """Makes values of JSON again, with the letter's own values for the texts of `stand_ins`: text -> the values."""

    def __init__(self, stand_ins: dict[str, list[Any]]) -> None:
        self.stand_ins = stand_ins

    def __call__(self, own: Any, given: Any, path: str, depth: int) -> Any:
        """Return `given`, which may be changed, in the place of the letter's value `own`."""
        if own is None or isinstance(own, bool | int | float | str):
            return own if isinstance(own, np.generic) and given == own else self._new(given, path)
        if isinstance(own, dict | list | tuple) and depth < SHOWN_DEPTH:
            if isinstance(own, dict) and isinstance(given, dict):
                return self._table(own, given, path, depth)
            if not isinstance(own, dict) and isinstance(given, list):
                return self._list(own, given, path, depth)
            return self._new(given, path)
        return own if given == shown(own, True, depth) else self._in_place_of_array(own, given, path)

    def _list(self, own: list[Any] | tuple[Any, ...], given: list[Any], path: str, depth: int) -> Any:
        if len(given) != len(own) and given[: len(own)] != shown(own, True, depth):
            self._new(given, path)  # refuses a text that may have been shifted to the place of its twin
        kept = [self(old, new, f"{path}[{n}]", depth + 1) for n, (old, new) in enumerate(zip(own, given, strict=False))]
        added = [self._new(new, f"{path}[{n}]") for n, new in enumerate(given[len(own) :], len(own))]
        return type(own)((*kept, *added))

    def _table(self, own: dict[Any, Any], given: dict[str, Any], path: str, depth: int) -> dict[Any, Any]:
        keys = {str(key): key for key in own}  # as `shown` writes them
        if len(keys) < len(own):
            raise ConfigurationError(f"{path}: JSON cannot tell its keys apart, so this letter cannot be corrected")
        return {
            keys.get(name, name): self(own[keys[name]], new, f"{path}[{name!r}]", depth + 1)
            if name in keys
            else self._new(new, f"{path}[{name!r}]")
            for name, new in given.items()
        }

    def _new(self, given: Any, path: str) -> Any:
        """Return a value that JSON holds; a text of `stand_ins` may have been moved here."""
        if isinstance(given, dict):
            return {name: self._new(part, f"{path}[{name!r}]") for name, part in given.items()}
        if isinstance(given, list):
            return [self._new(part, f"{path}[{number}]") for number, part in enumerate(given)]
        meant = self.stand_ins.get(given, []) if isinstance(given, str) else []
        if len(meant) > 1:
            raise ConfigurationError(
                f"{path}: {given!r:.80} stands for {len(meant)} values of the letter; leave each at its place, and "
                "write further arguments behind the others or by name in kwargs"
            )
        return meant[0] if meant else given

    def _in_place_of_array(self, own: Any, given: Any, path: str) -> Any:
        """Return an array, a tensor or a scalar of the dtype of `own` with the numbers `given`."""
        if isinstance(given, str) and given in self.stand_ins:
            return self._new(given, path)
        text = shown(own, True)
        if not hasattr(own, "dtype") or not isinstance(given, list | bool | int | float):
            raise ConfigurationError(
                f"{path}: is {given!r:.80} in the place of {text!r:.80}, which JSON cannot hold; leave this text, or "
                "write lists of numbers for an array"
            )
        try:
            if hasattr(own, "new_tensor"):
                return own.new_tensor(given)
            made = np.array(given, own.dtype)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise ConfigurationError(f"{path}: are no numbers for {text!r:.80} ({error}); correct them") from None
        return made if isinstance(own, np.ndarray) else made[()]
