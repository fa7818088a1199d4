"""The command line of every role, composed by Hydra: all wrong settings are reported at once, without a traceback."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import io
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from warren import standard_streams
from warren.environment import secret
from warren.errors import ConfigurationError, WarrenError
from warren.standard_streams import DISK_FULL, PIPE_CLOSED
from warren.user_code import EXTRAS, install
from workers.config import roles, staying
from workers.config.league_choices import with_choices
from workers.config.overrides import arranged, compose, options_of, options_of_group, prints, set_aside, settings_of
from workers.config.own_folders import OwnFolders
from workers.config.schema import CONF, Config, from_hydra
from workers.config.too_many import told_too_many
from workers.servers import BROKER_VARIABLE, REDIS_VARIABLE
from workers.servers.checks import redact

# The settings of a group that identify what a run is about; the run may have changed the group's other settings.
IDENTIFYING = ("env.id", "league.env", "algorithm.name", "network.name", "sampling")
STOPPED = 130  # exit status after Ctrl-C, as in shells
UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)  # of a path
NO_RUN = "settings are wrong; no run was started"  # what commands that start runs say below several problems
ERROR_STATUS = 2  # exit status after an error that the user can correct


def role(name: str, run: Callable[[Config], int] | None = None) -> Callable[[], None]:
    """Return the entry point of `python -m workers.NAME`.

    `run` receives the configuration and returns the exit status; None: the `run` of the role's module in the table.
    """
    work = run or partial(run_of_table, name)
    return command(name, lambda config, _: work(config))


def command(name: str, run: Callable[[Config, Sequence[str]], int]) -> Callable[[], None]:
    """Return the entry point of `python -m workers.NAME`.

    `run` receives the configuration and the overrides of the command line, and returns the exit status.
    """

    def entry() -> None:
        status: list[int] = []

        def job(settings: DictConfig) -> None:
            if STOPPED not in status:  # Ctrl-C ends all runs of a sweep
                given = [*HydraConfig.get().overrides.task, *of_resumed]
                status.append(guarded(lambda: run(of_run(name, settings), given), NO_RUN))

        options, overrides = arranged(sys.argv[1:])
        overrides, of_resumed = set_aside(overrides)
        arguments, words = options_of(options), options + overrides
        OwnFolders.config_dir = arguments.config_dir
        if arguments.help:
            sys.exit(guarded(lambda: show_help(name, overrides)))
        found: list[DictConfig | None] = []

        def compose_once() -> int:
            found.append(compose(name, words))
            return 0

        if code := guarded(compose_once, NO_RUN):
            sys.exit(code)
        told_to_stop = staying.watch_stops() if name != "train" and staying.restarted() else None
        main = partial(run_by_hydra, name, words) if found[0] is None else partial(run_composed, found[0])
        if code := guarded(lambda: main(job) or 0, NO_RUN):  # `| head` may cut off what Hydra prints, as for --cfg
            sys.exit(code)
        if told_to_stop is not None and status == [0]:
            staying.stay_unless(told_to_stop)
        # At exit the interpreter's garbage collections would visit every object that torch and the rest imported. That
        # is a second of work per process, and all processes stop at once, within few seconds. Destructors still run.
        gc.disable()
        gc.freeze()
        sys.exit(next(filter(None, status), 0))

    return entry


def show_help(name: str, overrides: list[str]) -> int:
    """Print the help of a role, with its settings' values after the overrides, and return the exit status."""
    compose(name, overrides)
    from workers.config import help

    for line in help.text(name, overrides):
        print(redact(line))
    return 0


def run_of_table(name: str, config: Config) -> int:
    """Do a role's work: import only the module that the table names for this kind of run, and call its `run`."""
    found = roles.find(name)
    assert found is not None
    if (module := found.module(config)) is None:
        from workers.config.validation import verify  # imports torch, which not every command line needs

        verify(config, name)  # raises with all problems
        raise ConfigurationError(found.otherwise)
    return int(importlib.import_module(module).run(config))


def run_by_hydra(name: str, words: Sequence[str], job: Callable[[DictConfig], None]) -> None:
    """Let Hydra run `job`, once for each run of a sweep, or print what an option such as --cfg in `words` asks for.

    Raises OSError if that cannot be printed: Hydra itself would print a traceback and exit. Raises ConfigurationError
    for options that Hydra does not take together.
    """
    given, sys.argv = sys.argv, [sys.argv[0], *words]  # hydra.main reads them there, and has no parameter for them
    printed = io.StringIO()
    try:
        with redirect_stdout(printed) if prints(options_of([*words])) else nullcontext():
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(job)()
    except ValueError as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        if Path(hydra.__file__).parent not in Path(last.filename).parents:  # of a run's own code
            raise
        raise ConfigurationError(f"{' '.join(words)}: {error}; python -m workers.{name} --help lists options") from None
    finally:
        sys.argv = given
        print(printed.getvalue(), end="")


def run_composed(found: DictConfig, job: Callable[[DictConfig], None]) -> None:
    """Run `job` with the composed settings as Hydra would: HydraConfig gets Hydra's own ones, which `job` reads."""
    HydraConfig.instance().set_config(found)
    try:
        job(settings_of(found))
    finally:
        HydraConfig.instance().cfg = None


def of_run(name: str, settings: DictConfig) -> Config:
    """Return the configuration of a role: the given one or, if a person started the role, that of the run it joins."""
    chosen, config = HydraConfig.get(), configured(settings)
    # Roles that a launcher started have the run folder's configuration already. Flower keeps a port of its own.
    if roles.find(name) is None or name == roles.FLOWER.name or chosen.job.config_name != name:
        return config
    joining = importlib.import_module("workers.runtime.run_settings")  # above this package
    found: Config = joining.joined(name, config, named(name, settings, chosen.overrides.task))
    return found


def named(name: str, chosen: DictConfig, overrides: Iterable[str]) -> set[str]:
    """Return the settings that a command line names; of a chosen group, only its settings in IDENTIFYING.

    `chosen`: the configuration that the command line composes to.
    """
    given = {override.lstrip("+~").partition("=")[0] for override in overrides}
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        groups = {one for one in given if options_of_group(one)}
        if not groups:
            return given
        plain = hydra.compose(name)
    told = {one for one in IDENTIFYING if one.partition(".")[0] in groups}  # even if the option is the default
    differ = {one for one in IDENTIFYING if OmegaConf.select(plain, one) != OmegaConf.select(chosen, one)}
    return given - groups | told | differ


def configured(settings: DictConfig) -> Config:
    """Convert Hydra's composition into a Config. Raises ConfigurationError for a value of a wrong type."""
    chosen = HydraConfig.get()
    return with_choices(from_hydra(settings), chosen.runtime.choices.get("algorithm"), chosen.overrides.task)


def urls_from_environment(options: argparse.Namespace) -> None:
    """Set --broker-url and --redis-url from the environment, where they were not given."""
    options.broker_url = options.broker_url or secret(BROKER_VARIABLE)
    options.redis_url = options.redis_url or secret(REDIS_VARIABLE)


def guarded(run: Callable[[], int], summary: str = "errors in all") -> int:
    """Run `run` and return its exit status; print a WarrenError as one message, without traceback or password.

    A missing package of one of Warren's extras is printed in the same way. `summary` follows the number of problems,
    where there are several.
    """
    standard_streams.prepare()
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if not standard_streams.output_closed():  # another pipe, or a socket, broke
            raise
        return PIPE_CLOSED
    except OSError as error:
        if too_many := told_too_many(error):
            return _refused(too_many)
        if error.errno in UNUSABLE and isinstance(error.filename, str):
            return _refused(f"{error.filename}: {error.strerror}; let this user use it, or name another place")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        standard_streams.drop_output()
        print(
            f"error: {error}; free some of the disk that the output goes to, or that the error names", file=sys.stderr
        )
        return DISK_FULL
    except RuntimeError as error:
        if not (too_many := told_too_many(error)):
            raise
        return _refused(too_many)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"error: {redact(str(problem))}", file=sys.stderr)
        if len(error.problems) > 1:
            print(f"{len(error.problems)} {summary}", file=sys.stderr)
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


def _refused(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return ERROR_STATUS
