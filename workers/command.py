"""The command `warren`: its first word names the one of Warren's programs to run, the other words are for that program.

`warren train actors=4` is `python -m workers.train actors=4`, with one difference: the working directory is searched
for modules last. So a user's folder called envs/ or tasks/ does not hide a package of Warren.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """A module that is run as `python -m` runs it, and its purpose."""

    module: str
    purpose: str


PROGRAMS = {
    "Train": {
        "train": Program("workers.train", "train an agent, with servers, learner and actors, to its goal or Ctrl-C"),
        "league": Program("workers.train", "train a league: Kuhn poker, or experiment=NAME"),
        "imitate": Program("workers.imitate", "clone the player of recorded games, from a file and without servers"),
        "scale": Program("workers.scale", "give a run that goes on more or fewer processes"),
        "runs": Program("workers.runs", "list, stop and purge runs on the servers"),
        "failures": Program("workers.failures", "tell why processes of a run failed, also after its end"),
        "check": Program("envs.check", "try an environment by random play, and tell what a run would trip over"),
        "doctor": Program("workers.doctor", "tell what will go wrong in a run on this machine, with remedies"),
        "rights": Program("workers.rights", "make a user for each role on RabbitMQ and Redis"),
        "servers": Program("workers.servers", "tell how a run's servers are, control RabbitMQ, install servers"),
    },
    "Use what was trained": {
        "play": Program("workers.play", "watch what was trained, or play against it"),
        "dashboard": Program("workers.dashboard", "show leagues and runs in a browser, while they go on and after"),
        "deploy": Program("workers.deploy", "serve a trained policy to games over HTTP and TCP"),
        "export": Program("workers.export", "write a trained policy as an ONNX model, and verify it"),
        "clone": Program("workers.clone", "put a trained policy into a league as an opponent"),
    },
    "Leagues": {
        "show": Program("league.show", "show standings, payoffs, and who waits for what"),
        "manage": Program("league.manage", "add, pause, change and remove players"),
        "models": Program("league.models", "list a league's models, and put them into a pool or a folder"),
        "replay": Program("workers.replay", "play recorded matches again, check and film them"),
        "rebuild": Program("league.replay", "rebuild a league from its event stream, and compare"),
        "exploitability": Program("workers.exploitability", "tell how much a league, or a player, can be beaten"),
        "tournament": Program("workers.tournament", "let saved players of one or several leagues meet"),
        "pictures": Program("workers.league_pictures", "draw a saved league, with nothing running"),
    },
    "Services": {
        "run": Program("workers.run", "start services and environments of your own from one YAML file"),
        "serve": Program("workers.serve", "serve one class of your own in this process"),
        "script": Program("workers.script", "run one environment of your own: a script or a function"),
        "services": Program("workers.services", "list what a run serves, by which workers, and how busy they are"),
        "dead": Program("workers.dead", "look at what failed for good, send it again or drop it"),
    },
    "Build what has no wheels": {
        "horovod": Program("workers.learning.allreduce.build_horovod", "build Horovod, for allreduce=horovod"),
        "gfootball": Program("envs.build_football", "build Google Research Football"),
    },
    "Roles of a run, started by hand": {
        "learner": Program("workers.learner", "train one player on the segments that arrive"),
        "actor": Program("workers.actor", "play, and send experience to the learner"),
        "env": Program("workers.env", "step environments for actors that decide (sampling=served)"),
        "gateway": Program("workers.gateway", "let games that drive themselves play by the run's policy"),
        "league-worker": Program("workers.league", "decide who plays whom, and count results"),
        "evaluator": Program("workers.evaluator", "play frozen players against each other"),
        "flower": Program("workers.flower", "show the run in the Flower dashboard"),
    },
}  # fmt: skip
HELP = """\
usage: warren COMMAND [WORD ...]

Train game-playing agents by league self-play, on Celery, RabbitMQ and Redis.
"""
ERROR_STATUS = 2
LEAGUE = "experiment=kuhn"  # default of `warren league`
CHOOSES = ("experiment=", "league=", "resume=")


def main() -> None:
    """Run the program that the command line names, and exit with its status."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "help"):
        sys.exit(_help())
    if name == "--version":
        import warren

        print(warren.__version__)
        sys.exit()
    programs = {known: program for group in PROGRAMS.values() for known, program in group.items()}
    if name not in programs:
        from warren.errors import unknown_name

        print(f"error: {unknown_name('command', name, programs, '(warren --help lists them)')}", file=sys.stderr)
        sys.exit(ERROR_STATUS)
    if name == "league" and not any(word.startswith(CHOOSES) for word in words):
        words = [LEAGUE, *words]
    _run(programs[name].module, words)


def _help() -> str | None:
    print(HELP)
    for title, group in PROGRAMS.items():
        print(f"{title}:")
        for name, program in group.items():
            print(f"  {name:14} {program.purpose}")
        print()
    print("warren COMMAND --help tells of each; `warren --version` prints the version.")
    return None


def _run(module: str, words: list[str]) -> None:
    """Run a module as `python -m` does, but search for the user's modules last."""
    from warren.user_code import make_importable

    make_importable(Path.cwd())
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
