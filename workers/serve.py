"""`python -m workers.serve FILE.py:CLASS`: one process that serves a class of the user's own.

The run comes from WARREN_BROKER_URL, WARREN_REDIS_URL and WARREN_RUN. `python -m workers.run` starts such processes;
by hand one more can be added to any run.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from pathlib import Path

from tasks import context
from tasks.worker.celery_worker import log_to_stderr
from tasks.worker.server import Serving
from warren.arguments import table
from warren.errors import ConfigurationError
from workers.config.command_line import guarded
from workers.launch.hosts.membership import Membership
from workers.launch.kinds.user_code import arguments, find, find_class
from workers.launch.kinds.user_middleware import install_from_environment
from workers.runtime.lease import present
from workers.runtime.metrics_endpoint import served_to_launcher
from workers.servers import check

logger = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Make the object and serve it until told to stop; return the exit status."""
    log_to_stderr(options.log_level)
    kwargs = table("--kwargs", options.kwargs, '{"lr": 0.1}')
    place, problem = find(options.place, Path.cwd())
    if problem:
        raise ConfigurationError(problem)
    app, topology = context.current()
    install_from_environment()
    check(app.conf.broker_url, app.conf.result_backend)
    made = find_class(place, options.name or place.attribute or "")
    name = options.process or f"{options.name or made.__name__}-{options.rank}-{os.getpid()}"
    with present(app, topology, f"service {name}"):
        # The constructor's events and calls go to the run, too.
        worker = made(**arguments(made, kwargs, options.rank))
        serving = Serving(app, topology, [worker], name, log_level=options.log_level)
        membership = Membership(app.conf.result_backend, topology)

        def ready() -> None:
            logger.info("%s serves %s", name, ", ".join(spec.name for spec in serving.specs))
            membership.serves(name)

        with served_to_launcher(topology.run, "service", name, app):
            status = serving.run(on_ready=ready)
    # The last garbage collections would visit all objects of torch, while many processes have few seconds to end.
    gc.disable()
    gc.freeze()
    return status


def main() -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.serve", description=__doc__)
    parser.add_argument("place", metavar="FILE.py:CLASS", help="or module:CLASS; the class may be left out")
    parser.add_argument("--name", help="the class to serve, where the place names none")
    parser.add_argument("--process", help="name of this process; one of its own in the run")
    parser.add_argument("--rank", type=int, default=0, help="given to a constructor that takes a rank")
    parser.add_argument("--kwargs", default="{}", help="the constructor's other arguments, as JSON")
    parser.add_argument("--log-level", default="INFO")
    return guarded(lambda: run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
