"""A round robin between saved players of one or several runs: every pair on duplicate deals, with intervals."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import envs
from league.cli.tables import output, table
from league.empirical_game.solvers import alpha_rank
from league.models.snapshots import people_in
from warren.arguments import LARGEST_SEED, whole
from warren.errors import ConfigurationError
from warren.files import write_whole
from warren.progress import shown
from workers.config.command_line import STOPPED, guarded
from workers.evaluation import heat_maps
from workers.evaluation.duplicate_deals import Estimate, Side, estimate, games_for, play_deals, require_two_sides
from workers.evaluation.saved_sides import MIXTURE, league_in, mixture_of, player_of
from workers.evaluation.scores import UNIFORM

GAMES, CONFIDENCE = 4000, 0.95  # games per pair; confidence of each interval
OUT = Path("runs/tournament")


@dataclass(frozen=True)
class Entrant:
    """A side of a tournament."""

    name: str
    side: Side
    game: str | None  # its game and that game's parameters; None: it plays any game
    bound: float | None = None  # largest return, as its league's settings have it
    run: Path | None = None  # its run folder
    player: str = ""  # its name in that run


class Tournament:
    """Games between `entrants`, played in rounds of equally many deals for each pair."""

    def __init__(self, games: envs.TwoPlayerVectorEnv, entrants: Sequence[Entrant], seed: int) -> None:
        require_two_sides(games)
        self.games, self.entrants = games, entrants
        self.bound = games.max_return or max((entrant.bound or 0.0 for entrant in entrants), default=0.0) or None
        self.pairs = list(combinations(range(len(entrants)), 2))
        self._generator = torch.Generator().manual_seed(seed)
        self._rounds: list[np.ndarray] = []  # [pairs, deals] each: return of a pair's first player, over both seats

    def play(self, deals: int) -> Iterator[tuple[int, int]]:
        """Play `deals` of each pair, and yield each pair when a part of them is played; only whole rounds count."""
        while deals > 0:
            count = min(deals, self.games.num_envs)
            found = []
            for first, second in self.pairs:
                sides = self.entrants[first].side, self.entrants[second].side
                found.append(play_deals(self.games, *sides, count, self._generator).mean(axis=0))
                yield first, second
            self._rounds.append(np.array(found))
            deals -= count

    @property
    def deals(self) -> int:
        """Return the number of deals of each pair that count so far."""
        return sum(part.shape[1] for part in self._rounds)

    def cells(self) -> list[list[Estimate | None]]:
        """Return the gain per game of each entrant (row) against each (column); None against itself."""
        n = len(self.entrants)
        cells: list[list[Estimate | None]] = [[None] * n for _ in range(n)]
        for (first, second), values in zip(self.pairs, np.concatenate(self._rounds, axis=1), strict=True):
            cells[first][second] = estimate(values, self.bound, CONFIDENCE)
            cells[second][first] = estimate(-values, self.bound, CONFIDENCE)
        return cells

    def overall(self) -> list[Estimate]:
        """Return the gain per game of each entrant against the others on average."""
        values = np.concatenate(self._rounds, axis=1)
        found = []
        for place in range(len(self.entrants)):
            mine = [
                values[row] if pair[0] == place else -values[row]
                for row, pair in enumerate(self.pairs)
                if place in pair
            ]
            found.append(estimate(np.mean(mine, axis=0), self.bound, CONFIDENCE))
        return found

    def of_person(self, met: Mapping[int, np.ndarray]) -> Estimate:
        """Return a person's gain per game; `met`: the person's returns, by the place of the entrant."""
        return estimate(np.concatenate(list(met.values())), self.bound, CONFIDENCE)


def entrant_of(word: str) -> Entrant:
    """Return the entrant that a word of the command line names: RUN, RUN:PLAYER, RUN:mixture or uniform.

    Raises ConfigurationError or UnknownName for a run or a player that does not exist.
    """
    if word == UNIFORM:
        return Entrant(word, Side.of(None), None)
    path, _, player = word.rpartition(":") if not Path(word).exists() else (word, "", "main")
    folder, league = league_in(Path(path or word))
    found = mixture_of(folder, league) if player == MIXTURE else player_of(folder, player)
    game = json.dumps([league.env, league.env_kwargs], sort_keys=True)
    return Entrant(f"{folder.name}:{player}", found.side, game, league.max_return, folder, player)


def entrants_of(words: Sequence[str]) -> tuple[list[Entrant], str]:
    """Return (entrants, their game). Raises ConfigurationError for fewer than two, for doubles, or several games."""
    found, problems = [], []
    for word in words:
        try:
            found.append(entrant_of(word))
        except ConfigurationError as error:
            problems += [problem if word in problem else f"{word}: {problem}" for problem in error.problems]
    if problems:
        raise ConfigurationError(problems)
    names = [entrant.name for entrant in found]
    if len(names) < 2:
        raise ConfigurationError(f"{', '.join(names)}: a tournament needs two players; name another, or {UNIFORM}")
    sides = [(entrant.run and entrant.run.resolve(), entrant.player) for entrant in found]
    if twice := sorted({name for name, side in zip(names, sides, strict=True) if sides.count(side) > 1}):
        raise ConfigurationError(f"{', '.join(twice)} is named twice; name each player once")
    games = {entrant.game for entrant in found if entrant.game is not None}
    if len(games) != 1:
        played = "; ".join(f"{entrant.name}: {entrant.game}" for entrant in found if entrant.game)
        raise ConfigurationError(f"players of one game can meet, these are of {len(games)}: {played or 'none'}")
    return told_apart(found), games.pop()


def told_apart(entrants: Sequence[Entrant]) -> list[Entrant]:
    """Return the entrants, with as much of the folder's path in their names as tells them apart: PROJECT/TRIAL."""
    found, depth = list(entrants), 2
    while len(counts := Counter(entrant.name for entrant in found)) < len(found):
        for place, entrant in enumerate(found):
            if entrant.run is not None and counts[entrant.name] > 1:
                folder = "/".join(entrant.run.resolve().parts[-depth:])
                found[place] = replace(entrant, name=f"{folder}:{entrant.player}")
        depth += 1
    return found


def people_among(entrants: Sequence[Entrant]) -> dict[str, dict[int, np.ndarray]]:
    """Return person -> place of an entrant -> returns of the person's rated games against it, in its own league."""
    found: dict[str, dict[int, list[float]]] = {}
    for place, entrant in enumerate(entrants):
        for game in people_in(entrant.run / "league").values() if entrant.run is not None else ():
            if game.opponent == entrant.player:
                found.setdefault(game.person, {}).setdefault(place, []).append(game.returned)
    return {person: {place: np.array(held) for place, held in of.items()} for person, of in found.items()}


def run(given: argparse.Namespace, console: Console | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    if given.games < 2:
        raise ConfigurationError(f"--games: {given.games} is too few; use 2 at least, one in each seat")
    torch.set_num_threads(1)  # small networks are faster with one thread
    entrants, game = entrants_of(given.players)
    try:
        given.out.mkdir(parents=True, exist_ok=True)  # not after all games
    except OSError as error:
        raise ConfigurationError(f"--out {given.out}: cannot be made ({error.strerror}); name another folder") from None
    if not os.access(given.out, os.W_OK):
        raise ConfigurationError(f"--out {given.out}: this user may not write there; name another folder")
    env, kwargs = json.loads(game)
    deals = -(-given.games // 2)
    games = games_for(deals, given.seed, env, kwargs)
    tournament, interrupted = Tournament(games, entrants, given.seed), False
    try:
        total = len(tournament.pairs) * -(-deals // games.num_envs)
        for _ in shown(tournament.play(deals), f"parts of pairs, {2 * games.num_envs} games each", total):
            pass
    except KeyboardInterrupt:
        interrupted = True
        if not tournament.deals:
            return STOPPED
        print(f"interrupted; each pair has played {2 * tournament.deals:,} games", file=sys.stderr)
    console = console or output()
    console.print(standings(tournament, env, console.width))
    save(tournament, env, given.out)
    print(f"written: {given.out / 'tournament.json'}, {given.out / 'tournament.png'}")
    return STOPPED if interrupted else 0


def standings(tournament: Tournament, env: str, width: int) -> Table:
    """Return a table for a terminal `width` characters wide, the best on average first."""
    overall, cells, ranked = tournament.overall(), tournament.cells(), alpha_rank(means(tournament))
    order = np.argsort([-found.mean for found in overall], kind="stable").tolist()
    people = people_among(tournament.entrants)
    columns = {
        "player": [*(tournament.entrants[place].name for place in order), *(f"{name} (a person)" for name in people)],
        f">return, {CONFIDENCE:.0%}": [
            *(str(overall[place]) for place in order),
            *(str(tournament.of_person(met)) for met in people.values()),
        ],
        ">alpha-rank": [*(f"{ranked[place]:.3f}" for place in order), *("" for _ in people)],
    }
    for number, other in enumerate(order, 1):
        against = [cells[place][other] for place in order]
        gained = [met[other].mean() if other in met else None for met in people.values()]
        shown_means = [None if cell is None else cell.mean for cell in against] + gained
        columns[f">{number}"] = ["" if mean is None else f"{mean:+.3f}" for mean in shown_means]
    caption = f"{env}: {2 * tournament.deals:,} games of each pair; return a game against all others, and each"
    if people:
        caption += "; people by their rated games, against these players as they were then"
    spare = (*(f">{number}" for number in range(len(order), 0, -1)), ">alpha-rank")
    made = table(columns, width, spare, caption=caption)
    if len(made.columns) < len(columns):
        made.caption = f"{caption}; tournament.json has what is too wide for this terminal"
    return made


def means(tournament: Tournament) -> np.ndarray:
    """Return the mean returns of rows against columns, float64 [n, n]; 0 on the diagonal."""
    return np.array([[0.0 if cell is None else cell.mean for cell in row] for row in tournament.cells()])


def save(tournament: Tournament, env: str, folder: Path) -> None:
    """Write tournament.json and tournament.png into `folder`, which exists."""
    cells, overall = tournament.cells(), tournament.overall()
    names = [entrant.name for entrant in tournament.entrants]
    found = {
        "env": env,
        "players": names,
        "games": 2 * tournament.deals,
        "confidence": CONFIDENCE,
        "overall": [asdict(each) for each in overall],
        "people": {
            person: {names[place]: asdict(tournament.of_person({place: held})) for place, held in met.items()}
            for person, met in people_among(tournament.entrants).items()
        },
        "cells": [[None if cell is None else asdict(cell) for cell in row] for row in cells],
    }
    write_whole(folder / "tournament.json", json.dumps(found, indent=1))
    order = np.argsort([-each.mean for each in overall], kind="stable")
    figure = heat_maps.between([names[place] for place in order], means(tournament)[np.ix_(order, order)])
    figure.savefig(folder / "tournament.png", format="png")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.tournament",
        description="Let saved players of one or several leagues meet, every pair on the same deals in both seats. "
        "Ctrl-C: the result so far.",
    )
    parser.add_argument(
        "players",
        nargs="+",
        metavar="PLAYER",
        help=f"RUN (its main agent), RUN:PLAYER as in runs/kuhn/TRIAL:main@1200, RUN:{MIXTURE}, or {UNIFORM}",
    )
    parser.add_argument("--games", type=int, default=GAMES, help=f"of each pair; default: {GAMES:,}")
    parser.add_argument("--seed", type=whole(0, LARGEST_SEED), default=1)
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the table and the picture; default: {OUT}")
    return guarded(lambda: run(parser.parse_args(argv)))
