"""The overrides of a command line: their order, their one composition by Hydra, and an error for each wrong one."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import hydra

# The one private part of Hydra that is used: it gives its parser of options no public name.
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from warren.errors import ConfigurationError, unknown_name
from workers.config.own_folders import OwnFolders
from workers.config.schema import CONF, from_hydra
from workers.servers.checks import redact

# ValueError: a number as a group's option; AssertionError: a league's setting where no league is chosen.
REFUSALS = (HydraException, OmegaConfBaseException, ValueError, AssertionError)
# Tables whose files hold only some of the names that may be set. (The table `hosts` has no names in files.)
OPEN = ("algorithm", "league", "network", "env.kwargs", "env.reward_channels", "replay.buffer_settings")


_add_argument = argparse.ArgumentParser.add_argument


def _add_any_help(parser: argparse.ArgumentParser, *words: str, **given: Any) -> argparse.Action:
    """Add an option, also with Hydra's help of --shell-completion, an object that becomes a text when it is shown.

    Since Python 3.14, argparse looks for a % in each help at once, and so refuses an object that holds nothing.
    """
    kind: Any = type(given.get("help"))
    if kind.__module__.startswith("hydra."):
        kind.__contains__ = lambda self, part: False
    return _add_argument(parser, *words, **given)


argparse.ArgumentParser.add_argument = _add_any_help  # type: ignore[assignment]


def options_of(argv: list[str]) -> argparse.Namespace:
    """Parse a command line with Hydra's own parser and return its options and overrides."""
    found: argparse.Namespace = get_args_parser().parse_args(argv)
    return found


def options_of_group(name: str) -> list[str]:
    """Return a group's options, the user's own included; [] if `name` is not a group. Hydra must be initialized."""
    return list(GlobalHydra.instance().config_loader().get_group_options(name))


def arranged(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line, in any order, into Hydra's own options and the overrides."""
    overrides: list[str] = get_args_parser().parse_intermixed_args(argv).overrides
    options = list(argv)
    for override in overrides:
        options.remove(override)
    return options, [in_full(override) for override in overrides]


def in_full(override: str) -> str:
    """Return an override, with ++ in front if its table is open, so that Hydra adds or sets the name.

    `verify` refuses wrong names. A `+` in front of a setting of algorithm, network or league becomes ++, because Hydra
    refuses to add a name that has a default already.
    """
    name = override.partition("=")[0]
    if re.match(r"\+(algorithm|network|league)\.", name):
        return f"+{override}"
    whole = name == "hosts" or (name in OPEN and "." in name)  # the others are groups
    open_table = whole or name.startswith(tuple(f"{table}." for table in OPEN))
    return f"++{override}" if open_table and "=" in override else override


def set_aside(overrides: list[str]) -> tuple[list[str], list[str]]:
    """Split overrides into those that Hydra composes and those of a resumed run's league and algorithm.

    The latter change the run folder's configuration, which holds those tables.
    """
    if not any(given.startswith("resume=") for given in overrides):
        return overrides, []
    of_run = [given for given in overrides if given.lstrip("+~").startswith(("league.", "algorithm."))]
    return [given for given in overrides if given not in of_run], of_run


def compose(role_name: str, argv: list[str]) -> DictConfig | None:
    """Compose a command line once and return it, with Hydra's own settings; None if Hydra itself has to run.

    Hydra composes the runs of a sweep one after the other; here all of them are composed first. Raises
    ConfigurationError with every wrong override and its remedy.
    """
    arguments = options_of(argv)
    if arguments.help or arguments.hydra_help or arguments.info:
        return None
    if arguments.config_dir and not Path(arguments.config_dir).is_dir():
        raise ConfigurationError(f"--config-dir: {arguments.config_dir} is not a folder; name one that holds settings")
    OwnFolders.config_dir = arguments.config_dir or OwnFolders.config_dir
    name, overrides = arguments.config_name or role_name, arguments.overrides
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            for one in sweep(role_name, overrides) if arguments.multirun else [overrides]:
                overrides = one
                found = hydra.compose(name, overrides, return_hydra_config=True)
                problems = [*_no_truth_values(found, overrides), *_names_of_options(found, overrides)]
                if problems:
                    raise ConfigurationError(problems)
            return None if _for_hydra(arguments) else found
        except REFUSALS as error:
            wrong = dict(_explain_each(name, overrides))
            problems = list(wrong.values()) or [_first_line(error)]
            # The other overrides may be wrong in other ways; one run should report everything.
            if wrong:
                from workers.config.validation import verify  # imports torch, which not every command line needs

                left = hydra.compose(name, [override for override in overrides if override not in wrong])
                try:
                    verify(from_hydra(left), role_name)
                except ConfigurationError as more:
                    problems += more.problems
        finally:
            GlobalHydra.instance().clear()
    raise ConfigurationError(problems)


def settings_of(found: DictConfig) -> DictConfig:
    """Return the composed settings without Hydra's own."""
    return OmegaConf.masked_copy(found, [str(key) for key in found if key != "hydra"])


def _for_hydra(arguments: argparse.Namespace) -> bool:
    """Return whether a command line asks for what Hydra does beyond composing: sweeps, prints, its own settings."""
    options = ("multirun", "resolve", "config_path", "experimental_rerun")
    return (
        prints(arguments)
        or any(getattr(arguments, one) for one in options)
        or any(override.lstrip("+~").startswith("hydra") for override in arguments.overrides)
    )


def prints(arguments: argparse.Namespace) -> bool:
    """Return whether a command line asks Hydra to print something, and to run nothing."""
    return any(getattr(arguments, one) for one in ("cfg", "info", "hydra_help", "shell_completion"))


def _no_truth_values(found: DictConfig, overrides: list[str]) -> Iterator[str]:
    """Yield a sentence for each number given to a boolean setting: OmegaConf takes any number but 0 for true."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if re.fullmatch(r"-?[\d.]+", value) and value not in ("0", "1") and re.fullmatch(r"[\w.]+", name):
            try:
                taken = OmegaConf.select(found, name)
            except OmegaConfBaseException:
                continue
            if isinstance(taken, bool):
                yield f"{name}: {value} is neither true nor false; use one of them"


def _names_of_options(found: DictConfig, overrides: list[str]) -> Iterator[str]:
    """Yield a sentence for each name of an algorithm or network that is given without the settings of its option."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        group = name.removesuffix(".name")
        if name not in ("algorithm.name", "network.name") or value not in options_of_group(group):
            continue
        if value != found.hydra.runtime.choices.get(group, value):
            yield f"{name}={value}: write {group}={value}, which has the settings of {value!r} too"


def sweep(role_name: str, overrides: list[str]) -> list[list[str]]:
    """Return the overrides of each run of `--multirun`: four for seed=1,2 actors=2,4. Raises ConfigurationError."""
    if role_name != "train":
        raise ConfigurationError(f"--multirun: workers.{role_name} joins one run; sweep with workers.train")
    # All runs would write into one folder, or have one name on the servers.
    fixed = [one for one in overrides if re.match(r"(trial|run|resume)=", one) and "," not in one]
    if fixed:
        raise ConfigurationError(f"--multirun: {' '.join(fixed)} would be the same for all runs; leave it out")
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException:  # for example, not written as name=value: composing reports it
        return [overrides]
    if any(one.is_sweep_override() and not one.is_discrete_sweep() for one in parsed):
        return [overrides]  # interval(0,1): composing reports that too
    values = {
        one.get_key_element(): [*one.sweep_string_iterator()] if one.is_sweep_override() else [
            one.get_value_element_as_str()
        ]
        for one in parsed
    }  # fmt: skip
    return [
        [f"{name}={value}" for name, value in zip(values, chosen, strict=True)] for chosen in product(*values.values())
    ]


def _explain_each(name: str, overrides: list[str]) -> Iterator[tuple[str, str]]:
    chosen = [override for override in overrides if _chooses_group(override) and _composes(name, [override])]
    known = _keys(hydra.compose(name, chosen))
    for override in overrides:
        try:
            # With the chosen groups: a setting may exist only in one of their options.
            hydra.compose(name, [override] if override in chosen else [*chosen, override])
        except REFUSALS as error:
            key, _, value = override.partition("=")
            key = key.lstrip("+~")
            # An override may hold a broker's password.
            if isinstance(error, MissingConfigException):
                options = error.options or ()
                of_file = "own" in options and all(value.rpartition(":"))
                why = f"code of yours is {key}=own {key}.name={value}" if of_file else ""
                yield override, redact(f"{override}: {why}" if why else unknown_name(f"{key}:", value, options))
            elif isinstance(error, OverrideParseException) and "=" in override:
                yield override, redact(_unreadable(override, key, value))
            elif not re.fullmatch(r"[\w./@]+", key) or "=" not in override.lstrip("~"):
                yield override, redact(f"{override}: is not a setting; write settings as name=value")
            elif key.startswith("league.") and "league" not in dict(option.split("=", 1) for option in chosen):
                yield override, f"{key}: no league is chosen; choose one as well, as in league=kuhn"
            elif _chooses_group(override) and (wrong := _WRONG_IN_FILE.match(str(error))):
                unknown = wrong["kind"] == "ConfigKeyError"
                why = unknown_name("setting", wrong["key"], known) if unknown else f"{wrong['key']}: {wrong['why']}"
                yield override, redact(f"{wrong['file']}.yaml: {why}")
            elif key not in known:
                yield override, unknown_name("setting", key, known, "(--cfg job lists them)")
            elif "Ambiguous value" in str(error):
                yield override, redact(_several(override, key, value))
            else:
                yield override, redact(f"{override.lstrip('+')}: {_wanted(value, error) or _first_line(error)}")


# Hydra's error for a file of settings that sets a name that does not exist, or a value of a wrong type.
_WRONG_IN_FILE = re.compile(
    r"In '(?P<file>[^']+)': (?P<kind>ConfigKeyError|ValidationError)[^\n]*\n(?P<why>[^\n]*).*full_key: (?P<key>\S+)",
    re.DOTALL,
)


# OmegaConf's words for a value of a wrong type, and what is to be given instead.
_WANTED = {
    "could not be converted to Integer": "give a whole number",
    "could not be converted to Float": "give a number",
    "is not a valid bool": "give true or false",
}


def _wanted(value: str, error: Exception) -> str:
    """Return what to give instead of a value of a wrong type; "" if the error does not tell."""
    wanted = next((remedy for words, remedy in _WANTED.items() if words in _first_line(error)), "")
    try:
        number = float(value)
    except ValueError:
        return wanted
    return f"{wanted}, as in {number:.0f}" if "whole" in wanted and number.is_integer() else wanted


def _unreadable(override: str, key: str, value: str) -> str:
    if value[:1] in "[{\"'":
        return f"{override}: the value cannot be read; is a bracket or a quote of it left open?"
    return f"{override}: the value cannot be read; put it in quotes: {_quoted(key, value)}"


def _several(override: str, key: str, value: str) -> str:
    remedies = f"for one text {_quoted(key, value)}, for a list {shlex.quote(f'{key}=[{value}]')}"
    return f"{override}: commas separate values; write {remedies}, for a run of each add --multirun"


def _quoted(key: str, value: str) -> str:
    return shlex.quote(f"{key}='{value}'" if '"' in value else f'{key}="{value}"')


def _chooses_group(override: str) -> bool:
    return bool(options_of_group(override.partition("=")[0]))


def _composes(name: str, overrides: list[str]) -> bool:
    try:
        hydra.compose(name, overrides)
    except REFUSALS:
        return False
    return True


def _keys(config: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for key in map(str, config):
        keys.append(f"{prefix}{key}")
        child = OmegaConf.select(config, key)
        if isinstance(child, DictConfig):
            keys += _keys(child, f"{prefix}{key}.")
    return keys


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return re.sub(r"\s+", " ", str(cause).splitlines()[0]) if str(cause) else type(cause).__name__
