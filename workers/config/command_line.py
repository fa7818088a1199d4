"""The command line of every role, composed by Hydra: all wrong settings are reported at once, without a traceback."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import select
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from warren.environment import secret
from warren.errors import ConfigurationError, WarrenError, unknown_name
from warren.user_code import EXTRAS, install
from workers.config import roles, staying
from workers.config.league_choices import with_choices
from workers.config.own_folders import OwnFolders
from workers.config.schema import CONF, Config, from_hydra
from workers.servers import BROKER_VARIABLE, REDIS_VARIABLE
from workers.servers.checks import redact

# ValueError: a number as a group's option; AssertionError: a league's setting where no league is chosen.
REFUSALS = (HydraException, OmegaConfBaseException, ValueError, AssertionError)
# The settings of a group that identify what a run is about; the run may have changed the group's others.
IDENTIFYING = ("env.id", "league.env", "algorithm.name", "network.name", "sampling")
# Tables whose files hold only some of the names that may be set. (That of hosts holds none.)
OPEN = ("league", "network", "env.kwargs", "env.reward_channels")
of_resumed_league: list[str] = []  # overrides of this command line that the resumed run's configuration takes
PIPE_CLOSED = 141  # exit status where the reader of the output is gone (`| head`), as shells have it
STOPPED = 130  # exit status after Ctrl-C, as shells have it
ERROR_STATUS = 2  # exit status after an error that the user can correct


def role(name: str, run: Callable[[Config], int] | None = None) -> Callable[[], None]:
    """Return the entry point of `python -m workers.NAME`.

    `run` receives the configuration and returns the exit status; None: the `run` of the role's module in the table.
    """
    work = run or partial(run_of_table, name)

    def entry() -> None:
        status: list[int] = []

        def job(composed: DictConfig) -> None:
            if STOPPED not in status:  # Ctrl-C ends all runs of a sweep
                status.append(guarded(lambda: work(of_run(name, configured(composed)))))

        options, overrides = arranged(sys.argv[1:])
        if any(given.startswith("resume=") for given in overrides):  # whose league these are about is in its folder
            of_resumed_league[:] = [given for given in overrides if given.startswith("++league.")]
            overrides = [given for given in overrides if given not in of_resumed_league]
        sys.argv[1:] = options + overrides
        given = get_args_parser().parse_args(options)
        OwnFolders.config_dir = given.config_dir
        if given.help:
            sys.exit(guarded(lambda: show_help(name, overrides)))
        code = guarded(lambda: check_overrides(name, sys.argv[1:]))
        if code:
            sys.exit(code)
        told_to_stop = staying.watch_stops() if name != "train" and staying.restarted() else None
        main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)
        if code := guarded(lambda: main() or 0):  # what it prints by itself, as for --cfg, may be cut off by `| head`
            sys.exit(code)
        if told_to_stop is not None and status == [0]:
            staying.stay_unless(told_to_stop)
        # The interpreter's last garbage collections visit every object that torch and the rest imported: a second of
        # work a process, when all stop at the same time and have few seconds for it. Destructors run all the same.
        gc.disable()
        gc.freeze()
        sys.exit(next(filter(None, status), 0))

    return entry


def show_help(name: str, overrides: list[str]) -> int:
    """Print the help of a role with the values that the overrides leave, and return the exit status."""
    check_overrides(name, overrides)
    from workers.config import help

    for line in help.text(name, overrides):
        print(redact(line))
    return 0


def run_of_table(name: str, config: Config) -> int:
    """Do the work of a role by the module that the table names for such a run; no other is imported."""
    found = roles.find(name)
    assert found is not None
    if (module := found.module(config)) is None:
        from workers.config.validation import verify  # and with it torch, which not every command line needs

        verify(config, name)  # it raises, with all that is wrong
        raise ConfigurationError(found.otherwise)
    return int(importlib.import_module(module).run(config))


def of_run(name: str, config: Config) -> Config:
    """Return the configuration of a role: the given one or, if a person started the role, that of the run it joins."""
    chosen = HydraConfig.get()
    # A launcher gives its roles the run folder's configuration. Flower shows a run, and has a port of its own.
    if roles.find(name) is None or name == roles.FLOWER.name or chosen.job.config_name != name:
        return config
    joining = importlib.import_module("workers.runtime.run_settings")  # which is above this package
    found: Config = joining.joined(name, config, named(name, chosen.overrides.task))
    return found


def named(name: str, overrides: Iterable[str]) -> set[str]:
    """Return the settings that a command line names; of a chosen group, those that identify what its run is about."""
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    groups = {one for one in given if (CONF / one).is_dir()}
    if not groups:
        return given
    plain, chosen = hydra.compose(name), hydra.compose(name, list(overrides))
    told = {one for one in IDENTIFYING if one.partition(".")[0] in groups}  # also if the group is the default
    differ = {one for one in IDENTIFYING if OmegaConf.select(plain, one) != OmegaConf.select(chosen, one)}
    return given - groups | told | differ


def configured(composed: DictConfig) -> Config:
    """Convert Hydra's composition into a Config. Raises ConfigurationError for a value of a wrong type."""
    chosen = HydraConfig.get()
    return with_choices(from_hydra(composed), chosen.runtime.choices.get("algorithm"), chosen.overrides.task)


def arranged(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line, in any order, into Hydra's own options and the overrides."""
    overrides: list[str] = get_args_parser().parse_intermixed_args(argv).overrides
    options = list(argv)
    for override in overrides:
        options.remove(override)
    return options, [in_full(override) for override in overrides]


def in_full(override: str) -> str:
    """Return an override in the form by which Hydra adds a name to an open table; `verify` refuses wrong names."""
    name = override.partition("=")[0]
    open_table = name == "hosts" or name.startswith(tuple(f"{table}." for table in OPEN))
    return f"++{override}" if open_table and "=" in override else override


def urls_from_environment(options: argparse.Namespace) -> None:
    """Set --broker-url and --redis-url from the environment, where they were not given."""
    options.broker_url = options.broker_url or secret(BROKER_VARIABLE)
    options.redis_url = options.redis_url or secret(REDIS_VARIABLE)


def guarded(run: Callable[[], int]) -> int:
    """Run `run` and return its exit status; print a WarrenError as one message, without traceback or password.

    A missing package of one of Warren's extras is printed in the same way.
    """
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if not _output_closed():  # another pipe, or a socket, broke
            raise
        return PIPE_CLOSED
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"error: {redact(str(problem))}", file=sys.stderr)
        if len(error.problems) > 1:
            print(f"{len(error.problems)} settings are wrong; no run was started", file=sys.stderr)
        return ERROR_STATUS
    except WarrenError as error:
        print(f"error: {redact(str(error))}", file=sys.stderr)
        return error.exit_status
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        print(f"error: {missing} is not installed, and this command needs it; {install(missing)}", file=sys.stderr)
        return ERROR_STATUS
    except KeyboardInterrupt:
        return STOPPED


def _output_closed() -> bool:
    """Return whether standard output is a pipe that its reader closed; if so, drop what is still to be printed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)  # no events asked for: a closed other end is reported anyway
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter reports it again at its end
    return True


def check_overrides(role_name: str, argv: list[str]) -> int:
    """Compose once ahead of Hydra and return 0. Raises ConfigurationError with every wrong override and its remedy."""
    arguments = get_args_parser().parse_args(argv)
    if arguments.help or arguments.hydra_help or arguments.info:
        return 0
    OwnFolders.config_dir = arguments.config_dir or OwnFolders.config_dir
    name, overrides = arguments.config_name or role_name, arguments.overrides
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            for one in sweep(role_name, overrides) if arguments.multirun else [overrides]:
                overrides = one
                problems = [*_no_truth_values(hydra.compose(name, overrides), overrides)]
                if problems:
                    raise ConfigurationError(problems)
            return 0
        except REFUSALS as error:
            wrong = dict(_explain_each(name, overrides))
            problems = list(wrong.values()) or [_first_line(error)]
            # The other overrides may be wrong in other ways; one run should report everything.
            if wrong:
                from workers.config.validation import verify  # and with it torch, which not every command line needs

                left = hydra.compose(name, [override for override in overrides if override not in wrong])
                try:
                    verify(from_hydra(left), role_name)
                except ConfigurationError as more:
                    problems += more.problems
        finally:
            GlobalHydra.instance().clear()
    raise ConfigurationError(problems)


def _no_truth_values(composed: DictConfig, overrides: list[str]) -> Iterator[str]:
    """Yield a sentence for each number given to a boolean setting: OmegaConf takes any number but 0 for true."""
    for override in overrides:
        name, _, value = override.lstrip("+~").partition("=")
        if re.fullmatch(r"-?[\d.]+", value) and value not in ("0", "1") and re.fullmatch(r"[\w.]+", name):
            try:
                taken = OmegaConf.select(composed, name)
            except OmegaConfBaseException:
                continue
            if isinstance(taken, bool):
                yield f"{name}: {value} is neither true nor false; use one of them"


def sweep(role_name: str, overrides: list[str]) -> list[list[str]]:
    """Return the overrides of each run of `--multirun`: four for seed=1,2 actors=2,4. Raises ConfigurationError."""
    if role_name != "train":
        raise ConfigurationError(f"--multirun: workers.{role_name} joins one run; sweep with workers.train")
    # All runs would write into one folder, or have one name on the servers.
    fixed = [one for one in overrides if re.match(r"(trial|run|resume)=", one) and "," not in one]
    if fixed:
        raise ConfigurationError(f"--multirun: {' '.join(fixed)} would be the same for all runs; leave it out")
    try:
        (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(overrides), None)
    except HydraException:  # for example, not written as name=value: composing reports it
        return [overrides]
    return batch


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
                yield override, redact(unknown_name(f"{key}:", value, error.options or ()))
            elif isinstance(error, OverrideParseException) and "=" in override:
                yield override, redact(_unreadable(override, key, value))
            elif not re.fullmatch(r"[\w./@]+", key) or "=" not in override.lstrip("~"):
                yield override, redact(f"{override}: is not a setting; write settings as name=value")
            elif key.startswith("league.") and "league" not in dict(option.split("=", 1) for option in chosen):
                yield override, f"{key}: no league is chosen; choose one as well, as in league=kuhn"
            elif _chooses_group(override) and (wrong := _WRONG_IN_FILE.match(str(error))):
                yield override, f"{wrong['file']}.yaml: {unknown_name('setting', wrong['key'], known)}"
            elif key not in known:
                yield override, unknown_name("setting", key, known, "(--cfg job lists them)")
            else:
                yield override, redact(f"{override}: {_first_line(error)}")


# Hydra's error for a file of settings that sets a name that does not exist.
_WRONG_IN_FILE = re.compile(r"In '(?P<file>[^']+)': ConfigKeyError.*full_key: (?P<key>\S+)", re.DOTALL)


def _unreadable(override: str, key: str, value: str) -> str:
    if value[:1] in "[{\"'":
        return f"{override}: the value cannot be read; is a bracket or a quote of it left open?"
    quoted = f"{key}='{value}'" if '"' in value else f'{key}="{value}"'
    return f"{override}: the value cannot be read; put it in quotes: {shlex.quote(quoted)}"


def _chooses_group(override: str) -> bool:
    return (CONF / override.partition("=")[0]).is_dir()


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
