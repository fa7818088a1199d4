"""Command lines of name=value: the settings of a dataclass, whose comments --help prints."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from warren.errors import ConfigurationError, unknown_name
from workers.config.command_line import guarded

T = TypeVar("T")
_COMMENT = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)


def command(doc: str | None, config: type[T], run: Callable[[T], int]) -> int:
    """Run `run` with the settings of the command line and return its exit status; print `doc` for --help."""
    given = sys.argv[1:]
    if not given or "--help" in given or "-h" in given:
        print(f"{(doc or '').rstrip()}\n\n{settings_text(config)}")
        return 0 if given else 2
    return guarded(lambda: run(parse(config, given)))


def settings_text(config: type[Any]) -> str:
    """Return the settings of `config` as text, a line per setting: its default, and the comment of its field."""
    lines = [*_described(config)]
    width = max(len(setting) for setting, _ in lines)
    return "\n".join(["Settings:", *(f"  {setting:{width}}  {said}".rstrip() for setting, said in lines)])


def _described(of: type[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    comments = dict(_COMMENT.findall(inspect.getsource(of)))
    for one in fields(of):
        made: Any = one.default_factory
        if is_dataclass(made):
            yield from _described(made, f"{prefix}{one.name}.")  # type: ignore[arg-type]
        else:
            default = one.default if made is MISSING else made()
            shown = {None: "=null", True: "=true", False: "=false", MISSING: ""}
            plain = default is None or default is MISSING or isinstance(default, bool)
            yield f"{prefix}{one.name}{shown[default] if plain else f'={default}'}", comments.get(one.name, "")


def parse(config: type[T], given: Sequence[str]) -> T:
    """Return the settings that a command line gives, as a `config`. Raises ConfigurationError with all problems."""
    known = _names(config)
    wrong = [f"{one}: is not a setting; {_meant(one)}" for one in given if "=" not in one]
    wrong += [
        unknown_name("setting", name, known)
        for name in (one.partition("=")[0] for one in given if "=" in one)
        if name not in known and not ("kwargs" in known and name.startswith("kwargs."))
    ]
    if not wrong and not any(one.startswith("run=") for one in given):
        wrong.append("run: not given; name a run folder, as in run=runs/cartpole/TRIAL")
    if wrong:
        raise ConfigurationError(wrong)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(config), OmegaConf.from_dotlist(list(given)))
        made = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, YAMLError) as error:
        key = getattr(error, "full_key", None) or "settings"
        raise ConfigurationError(f"{key}: {str(error).splitlines()[0]}") from None
    assert isinstance(made, config)
    return made


def _meant(word: str) -> str:
    """Return the remedy for a word without "=", which may be the run's folder, as other commands take it."""
    return f"write run={word} for this folder" if Path(word).is_dir() else "write settings as name=value"


def _names(of: Any, prefix: str = "") -> list[str]:
    names = []
    for one in fields(of):
        names.append(f"{prefix}{one.name}")
        if is_dataclass(one.default_factory):
            names += _names(one.default_factory, f"{prefix}{one.name}.")
    return names
