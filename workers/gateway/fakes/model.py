"""`python -m workers.gateway.fakes.model FILE.py:CLASS`: your Actor, with a policy of random weights, and no run."""

from __future__ import annotations

import argparse
import sys

from envs.one_agent import gamecore_actors
from warren.arguments import table
from workers.config.command_line import guarded
from workers.gateway.fakes.arguments import of_server
from workers.gateway.fakes.serving import serve_until_told_to_stop


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.gateway.fakes.model", description=__doc__)
    parser.add_argument("place", metavar="FILE.py:CLASS", help="or module:CLASS")
    parser.add_argument("--kwargs", default="{}", help="of its constructor, as JSON")
    of_server(parser)
    options = parser.parse_args()

    def run() -> int:
        kwargs = table("--kwargs", options.kwargs)
        return serve_until_told_to_stop(gamecore_actors.find(options.place), options, kwargs)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main())
