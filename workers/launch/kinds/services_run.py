"""A run from a file: the command line of `python -m workers.run`."""

from __future__ import annotations

import argparse
import re
import socket
from functools import partial
from pathlib import Path

from tasks.topology import Topology
from warren.errors import ConfigurationError, unknown_name
from workers.config.command_line import NO_RUN, guarded
from workers.launch.folder import RunFolder
from workers.launch.kinds.run_file import RunFile, read
from workers.launch.kinds.services_monitor import ServicesMonitor
from workers.launch.kinds.services_spec import services
from workers.launch.kinds.user_code import check_script, describe
from workers.launch.launcher import Launcher
from workers.launch.processes.interrupts import raised
from workers.ui.run_view import RunView


@raised()
def run(options: argparse.Namespace) -> int:
    """Run this host's share to the end; return the exit status: 0 when all environments are done, 130 after Ctrl-C."""
    file, problems = read(Path(options.file), options.settings)
    host, more = host_of(file, options.host)
    problems += more
    events, roles, more = examine(file)
    problems += more
    if problems:
        raise ConfigurationError(problems)
    spec = services(file, host, roles, events)
    with RunFolder.take(spec.folder) as folder, RunView(spec.title) as view:
        outcome = Launcher(spec, folder, view, partial(ServicesMonitor, view)).run()
        if spec.leads and outcome.status == 0:
            view.say("all environments are done")
        return outcome.status


def examine(file: RunFile) -> tuple[list[str], list[str], list[str]]:
    """Inspect the code at the file's paths; return the events it handles, the roles that serve, and the problems."""
    problems, events, roles = [], set(), set()
    services = [entry for entry in file.entries if not entry.finite]
    described = describe({entry.name: (entry.place, entry.kwargs) for entry in services}) if services else {}
    for name, told in described.items():
        problems += [f"services.{name}: {problem}" for problem in told.problems]
        events |= set(told.events)
        roles |= {service.partition(".")[0] for service in told.services}
    for entry in file.entries:
        if entry.finite and (problem := check_script(entry.place)):
            problems.append(f"envs.{entry.name}.path: {problem}")
    return sorted(events), sorted(roles), problems


def host_of(file: RunFile, asked: str | None) -> tuple[str | None, list[str]]:
    """Return the name of this machine in the run (None without hosts), and its problems."""
    machine = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())
    if file.hosts:
        host = asked or (machine if machine in file.hosts else None)
        if host is None:
            return None, [f"hosts: give the name of this machine, one of {', '.join(file.hosts)}, with --host NAME"]
        return host, [] if host in file.hosts else [unknown_name("host", host, file.hosts)]
    if asked is not None and file.join is None:
        return None, [f"--host {asked}: {file.path} has no hosts; list them there, or join another run with join=RUN"]
    try:
        Topology(asked or machine)
    except ConfigurationError:
        return None, [f"--host {asked}: is not a name; use letters, digits, '-' and '_'"]
    return (asked or machine) if file.join else None, []


def main(description: str | None = None) -> int:
    """Parse the command line, run the file and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.run", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = "Actor.num=2, Actor.kwargs.lr=0.1, run=NAME, join=RUN, broker=MODE, listen=ADDRESS, restarts=5, "
    parser.add_argument(
        "arguments", nargs="*", metavar="FILE [SETTING=VALUE]", help=f"{known}folder=runs, log_level=INFO"
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="the file, as Oneagent has it")
    parser.add_argument("--host", help="name of this machine among the file's hosts")
    options = parser.parse_intermixed_args()
    files = [options.config] if options.config else [argument for argument in options.arguments if "=" not in argument]
    if len(files) != 1:
        parser.error("name one file" if not files else f"name one file, not {', '.join(files)}")
    options.file = files[0]
    options.settings = [argument for argument in options.arguments if argument != options.file]
    return guarded(lambda: run(options), NO_RUN)
