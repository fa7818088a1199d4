"""The league measured: `python -m benchmarks.league PART`; `--help` names its parts.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import redis
import torch

from benchmarks.apparatus.report import finish
from benchmarks.league import decisions as league_decisions
from benchmarks.league import distributed as league_distributed
from benchmarks.league import exploiters as league_exploiters
from benchmarks.league import growth as league_growth
from benchmarks.league import pairs as league_pairs
from benchmarks.league import picture, sides
from benchmarks.league import scores as league_scores
from benchmarks.league import speed as league_speed
from benchmarks.league import strength as league_strength
from benchmarks.league import tasks as league_tasks
from benchmarks.league import teams as league_teams
from benchmarks.league import updates as league_updates
from benchmarks.league.figures import PEERS, Line, chosen, mixed, read, summary
from workers import servers


def speed(given: argparse.Namespace) -> dict[str, Any]:
    """Start private servers and measure speed."""
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as folder,
        servers.acquire("private", folder=Path(folder)) as found,
    ):
        figures = league_speed.measure(found.redis_url, given.players, given.seconds) if not given.tasks else {}
        return figures | league_tasks.measure(found.broker_url, found.redis_url, given.players, given.seconds)


def growth(given: argparse.Namespace) -> dict[str, Any]:
    """Play at full rate on private servers."""
    with (
        tempfile.TemporaryDirectory(prefix="warren-bench-") as folder,
        servers.acquire("private", folder=Path(folder) / "servers") as found,
    ):
        client = redis.Redis.from_url(found.redis_url)
        return league_growth.measure(client, Path(folder) / "league", given.seconds, given.every, given.history)


def scores(given: argparse.Namespace) -> dict[str, Any]:
    """Score a league of untrained players."""
    torch.set_num_threads(1)  # like an evaluator
    return league_scores.measure(given.game, given.players)


def pairs(given: argparse.Namespace) -> dict[str, Any]:
    """Play cells in each seat, and by pairs."""
    torch.set_num_threads(1)  # like an evaluator
    return league_pairs.measure(given.games, given.seeds, given.players, given.decisions, given.error)


def strength(given: argparse.Namespace) -> dict[str, Any]:
    """Train all sides, and draw their curves."""
    plan = league_strength.Plan(
        given.games, given.seeds, given.curves, given.budget, given.sides, given.peers, given.clock, given.first_seed,
        given.jobs, given.cores, given.respond, given.points,
        given.search,
    )  # fmt: skip
    if wrong := league_strength.problems(plan):
        raise SystemExit("\n".join(f"error: {problem}" for problem in wrong))
    found = league_strength.measure(plan)
    if given.pictures is not None:
        for game in given.games:
            lines, counted = league_strength.chosen(plan, game), given.clock == league_strength.DECIDED
            picture.draw(given.pictures / f"league_{game}.png", game, lines, picture.GOALS.get(game), counted)
        picture.compare(
            given.pictures / "league_control.png", {game: league_strength.chosen(plan, game) for game in given.games}
        )
    return found


def kept(given: argparse.Namespace) -> dict[str, Any]:
    """Compute the figures of curves that were kept, and draw league beside control."""
    curves: dict[str, list[Line]] = {}
    seeds = given.seeds and range(given.seeds[0], given.seeds[1] + 1)
    for path in given.files:
        if not (lines := read(path)):
            raise SystemExit(f"error: {path}: there are no curves; give a file that `strength` or `curve --out` wrote")
        for line in chosen(lines, seeds, given.settings):
            curves.setdefault(line["game"], []).append(line)
    if wrong := [f"{game}, {problem}" for game, lines in curves.items() for problem in mixed(lines)]:
        remedy = "choose with --seeds FIRST LAST or --settings NAME"
        raise SystemExit("\n".join(f"error: {problem}; {remedy}" for problem in wrong))
    if seeds and not curves:
        raise SystemExit(
            f"error: --seeds {seeds[0]} {seeds[-1]}: no run has such a seed" if seeds else "error: no runs"
        )
    if given.picture is not None:
        picture.compare(given.picture, curves)
    return {name: figure for game, lines in curves.items() for name, figure in summary(game, lines).items()}


def decisions(given: argparse.Namespace) -> dict[str, Any]:
    """Train leagues in processes of their own."""
    return league_decisions.measure(given.games, given.seconds, given.rounds)


def updates(given: argparse.Namespace) -> dict[str, Any]:
    """Update players together and one after the other."""
    torch.set_num_threads(1)
    return league_updates.measure(given.players, given.rounds, given.learned)


def exploiters(given: argparse.Namespace) -> dict[str, Any]:
    """Let exploiters learn against a main agent that does not learn."""
    torch.set_num_threads(1)  # faster for networks this small
    return league_exploiters.measure(given.seeds, given.seconds, given.budget, given.minimax)


def distributed(given: argparse.Namespace) -> dict[str, Any]:
    """Train leagues through servers and in this process."""
    torch.set_num_threads(1)  # faster for networks this small
    given.folder.mkdir(parents=True, exist_ok=True)
    return league_distributed.measure(given.game, given.seeds, given.decisions, given.folder)


def teams(given: argparse.Namespace) -> dict[str, Any]:
    """Train leagues of teams, of roles and of three players, and let the newest players meet the first."""
    torch.set_num_threads(1)  # faster for networks this small
    return league_teams.measure(given.games, given.seconds, given.seeds)


def strength_options(part: argparse.ArgumentParser) -> None:
    """Add the options of `strength`."""
    part.add_argument("--games", nargs="+", choices=sides.GAMES, default=list(sides.TUNED))
    part.add_argument("--sides", nargs="+", choices=sides.SIDES, help="default: the league and its control")
    part.add_argument("--seeds", type=int, default=3)
    part.add_argument("--first-seed", type=int, default=1, help="new seeds for settings chosen on others")
    part.add_argument("--clock", choices=["wall", "processor", "decisions"], default="wall", help="peers: wall only")
    part.add_argument("--budget", type=float, help="s, or decisions of the main agent, of each run; default: by game")
    part.add_argument("--peers", nargs="*", choices=PEERS, default=["nfsp", "psro"], help="on Leduc")
    part.add_argument("--jobs", type=int, default=1, help="runs at a time, of one thread each")
    part.add_argument("--cores", type=int, nargs="*", default=[], help="cores that runs stay on, in turn")
    part.add_argument(
        "--respond", type=int, default=league_strength.RESPOND,
        help="decisions of best responses to the mixture, in games without an exact figure",
    )  # fmt: skip
    part.add_argument(
        "--search", type=int, default=league_strength.SEARCH, help="games of Connect Four against a tree search"
    )
    part.add_argument("--points", type=int, default=league_strength.POINTS, help="of each curve, at most")
    part.add_argument("--curves", type=Path, default=Path("runs/league_strength"), help="folder for GAME.jsonl")
    part.add_argument("--pictures", type=Path, help="folder for league_GAME.png and league_control.png")
    part.set_defaults(measure=strength)


def figures_options(part: argparse.ArgumentParser) -> None:
    """Add the options of `figures`."""
    part.add_argument("files", type=Path, nargs="+", metavar="FILE", help="of one version, clock and budget")
    part.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "LAST"), help="only runs of these")
    part.add_argument("--settings", metavar="NAME", help="only these runs of the sides that have such settings")
    part.add_argument("--picture", type=Path, help="league beside control")
    part.set_defaults(measure=kept)


def teams_options(part: argparse.ArgumentParser) -> None:
    """Add the options of `teams`."""
    part.add_argument("--games", nargs="+", choices=league_teams.MEASURES, default=list(league_teams.MEASURES))
    part.add_argument("--seconds", type=float, default=30.0, help="of the processor, each run")
    part.add_argument("--seeds", type=int, default=3)
    part.set_defaults(measure=teams)


def pairs_options(part: argparse.ArgumentParser) -> None:
    """Add the options of `pairs`."""
    part.add_argument("--games", nargs="+", choices=sides.GAMES, default=["kuhn", "leduc", "liars_dice"])
    part.add_argument("--seeds", type=int, default=3)
    part.add_argument("--players", type=int, default=5, help="frozen players, who all meet each other")
    part.add_argument("--decisions", type=int, default=1_000_000, help="of the leagues whose snapshots meet")
    part.add_argument("--error", type=float, default=0.02, help="to either side, as a share of the largest return")
    part.set_defaults(measure=pairs)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.league",
        description=(__doc__ or "").partition("\n")[0],
        epilog="`python -m benchmarks.league PART --help` has a part's options",
    )
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("speed", help="rates of matches, results and models, and memory, beside alternatives")
    part.add_argument("--players", type=int, default=league_speed.PLAYERS)
    part.add_argument("--seconds", type=float, default=2.0, help="time of each side in each round")
    part.add_argument("--tasks", action="store_true", help="only calls through tasks")
    part.set_defaults(measure=speed)
    part = parts.add_parser("growth", help="Redis, the folder and a restore over time, at full match rate")
    part.add_argument("--seconds", type=float, default=120.0)
    part.add_argument("--every", type=float, default=60.0, help="s between snapshots of the league")
    part.add_argument("--history", type=int, default=2_000_000, help="events of the past that the folder keeps")
    part.set_defaults(measure=growth)
    part = parts.add_parser("scores", help="time to score a large league")
    part.add_argument("--game", choices=sides.GAMES, default="leduc", help="one small enough to be written out")
    part.add_argument("--players", type=int, default=200)
    part.set_defaults(measure=scores)
    pairs_options(parts.add_parser("pairs", help="games until cells are known, in each seat and by pairs on one deal"))
    strength_options(
        parts.add_parser("strength", help="exploitability, beside the control, other sides and OpenSpiel's learners")
    )
    figures_options(
        parts.add_parser("figures", help="the figures of curves that were kept, such as docs/curves/league_leduc.jsonl")
    )
    part = parts.add_parser("decisions", help="decisions per second of a league in one process, with and without C")
    part.add_argument("--games", nargs="+", choices=sides.GAMES, default=["kuhn", "leduc", "connect_four"])
    part.add_argument("--seconds", type=float, default=20.0, help="of the processor, each run")
    part.add_argument("--rounds", type=int, default=3)
    part.set_defaults(measure=decisions)
    part = parts.add_parser("updates", help="updates of Leduc's players, together and one by one, on one core")
    part.add_argument("--players", type=int, nargs="+", default=league_updates.PLAYERS)
    part.add_argument("--rounds", type=int, default=3)
    part.add_argument("--learned", type=int, default=12, help="rounds of the league that weights and batches are of")
    part.set_defaults(measure=updates)
    part = parts.add_parser("exploiters", help="games until exploiters beat a main agent of Leduc that stands still")
    part.add_argument("--seeds", type=int, default=5)
    part.add_argument("--seconds", type=float, default=60.0, help="of the processor, for which the main agent learns")
    part.add_argument("--budget", type=int, default=200_000, help="decisions of an exploiter, of both seats")
    part.add_argument("--minimax", type=float, default=0.1)
    part.set_defaults(measure=exploiters)
    part = parts.add_parser("distributed", help="a league through RabbitMQ and Redis, beside the same in one process")
    part.add_argument("--game", choices=["kuhn", "leduc", "liars_dice"], default="kuhn")
    part.add_argument("--seeds", type=int, default=5)
    part.add_argument("--decisions", type=int, default=6_000_000, help="of all players together, each side and seed")
    part.add_argument("--folder", type=Path, default=Path("runs/distributed"), help="for the runs, which stay")
    part.set_defaults(measure=distributed)
    teams_options(parts.add_parser("teams", help="teams, roles and three players against a run's first snapshots"))
    given = parser.parse_args()
    figures = given.measure(given)
    for name, value in figures.items():
        print(f"{name:28} {value}")
    finish(f"league {given.part}", figures)


if __name__ == "__main__":
    main()
