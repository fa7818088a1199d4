"""Pictures of a league: payoff, returns, ratings, lineage, exploitability; in the run folder and in TensorBoard.

python -m workers.league_pictures runs/kuhn/TRIAL      # from the saved league, with nothing running

history, board = History(), Board(folder)              # in a role, once
history.follow(store)                                  # each minute: what happened since the last time
draw_all(folder, history, uniform=0.9, board=board)    # FOLDER/pictures/*.png and FOLDER/tensorboard/league
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import envs.exploitability
from league.empirical_game.returns import Returns
from league.models.command_line import guarded
from league.models.snapshots import STREAM, returns_in
from league.state.history import History
from league.state.replay import read_file
from warren.errors import ConfigurationError, LeagueError
from warren.files import write_whole
from workers.evaluation import curves, heat_maps
from workers.evaluation.lineage import lineage
from workers.evaluation.scores import read_scores

PICTURES = "pictures"
BOARD = "tensorboard/league"
IMAGES_EVERY = 900.0  # s between images in TensorBoard, which keeps every one; the files are always the newest


def figures(
    history: History, returns: Returns, scores: Sequence[Mapping[str, Any]], uniform: float | None
) -> Iterator[tuple[str, Figure]]:
    """Make each picture for which there is something to draw, with its name; the most telling come first, in case the
    end is cut short."""
    drawings: tuple[tuple[str, Callable[[], Figure | None]], ...] = (
        ("exploitability", lambda: curves.exploitability(scores, uniform)),
        ("kinds", lambda: curves.kinds(scores)),
        ("references", lambda: curves.references(scores)),
        ("payoff", lambda: heat_maps.payoff(history, returns)),
        ("returns", lambda: heat_maps.returns(history, returns)),
        ("ratings", lambda: curves.ratings(history)),
        ("lineage", lambda: lineage(history)),
    )
    for name, make in drawings:
        figure = make()
        if figure is not None:
            yield name, figure


def draw_all(
    folder: Path,
    history: History,
    *,
    returns: Returns | None = None,
    uniform: float | None = None,
    board: Board | None = None,
) -> list[Path]:
    """Draw a league's pictures into `folder`/pictures, and write them and its curves to `board`; return the files.

    Scores are those of the evaluator in `folder`, `returns` its cells between frozen players, and `uniform` is the
    exploitability of the uniform policy, for a line to compare with. Each file is replaced in one step: no reader sees
    half a picture.
    """
    scores = read_scores(folder)
    target = folder / PICTURES
    target.mkdir(parents=True, exist_ok=True)
    made, paths = dict[str, Figure](), []
    for name, figure in figures(history, returns or Returns(), scores, uniform):
        drawn = BytesIO()
        figure.savefig(drawn, format="png")
        write_whole(target / f"{name}.png", drawn.getvalue())
        made[name] = figure
        paths.append(target / f"{name}.png")
    if board is not None:
        board.write(history, scores, made)
    return paths


class Board:
    """The league in TensorBoard: Elo of each player that learns, counters, scores over the league's s, and pictures.

    A board that is opened anew writes all curves again from the stream and the scores, so none has gaps or doubles.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of imports that only boards need

        self._writer = SummaryWriter(str(folder / BOARD), purge_step=0, max_queue=1000, flush_secs=30)
        self._elo: dict[str, float] = {}  # moment up to which a player's curve is written
        self._scores = 0  # lines that are written
        self._images_at = -float("inf")

    def write(self, history: History, scores: Sequence[Mapping[str, Any]], made: Mapping[str, Figure]) -> None:
        """Write the points that are new since the last call, and images every IMAGES_EVERY s."""
        for name, series in history.ratings.items():
            times, values = series.points()
            new = (times > self._elo.get(name, -float("inf"))) & ~np.isnan(values)
            for moment, value in zip(times[new], values[new], strict=True):
                self._scalar(f"elo/{name}", value, moment - history.began, moment)
            self._elo[name] = float(times[-1])
        state, seconds = history.state, history.now - history.began
        for name in ("issued", "counted", "expired", "aborted", "games"):
            self._scalar(f"league/{name}", state.counters[name], seconds, history.now)
        self._scalar("league/frozen", len(state.roster.historical), seconds, history.now)
        for score in scores[self._scores :]:
            curves = {f"exploitability/{name}": score[name] for name in ("main_agent", "mixture")}
            curves |= {f"reference/{name}": value for name, value in score["references"].items()}
            for tag, value in {**curves, "league/evaluation_games": score["games"]}.items():
                if value is not None:
                    self._scalar(tag, value, score["seconds"], score["time"])
        self._scores = len(scores)
        if time.monotonic() >= self._images_at + IMAGES_EVERY:
            self._images_at = time.monotonic()
            self.draw(made, seconds, history.now)
        self._writer.flush()

    def draw(self, made: Mapping[str, Figure], seconds: float, moment: float) -> None:
        """Add pictures as images."""
        for name, figure in made.items():
            pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # type: ignore[attr-defined]
            self._writer.add_image(name, pixels, int(seconds), walltime=moment, dataformats="HWC")

    def close(self) -> None:
        """Flush the curves and close their file."""
        self._writer.close()

    def _scalar(self, tag: str, value: float, seconds: float, moment: float) -> None:
        self._writer.add_scalar(tag, value, int(seconds), walltime=moment)


def uniform_of(env_id: str, **parameters: Any) -> float | None:
    """Return the exploitability of uniformly random play; None for a game that cannot be solved exactly."""
    try:
        form = envs.exploitability.load(env_id, **parameters)
    except ConfigurationError:
        return None
    return envs.exploitability.of(form, envs.exploitability.uniform(form))


def saved(folder: Path) -> tuple[History, Returns]:
    """Read the league that was saved in a run folder. Raises LeagueError when there is none."""
    for league in (folder / "league", folder):
        if (league / STREAM).exists():
            history = History()
            history.take(read_file(league / STREAM))
            return history, returns_in(league)
    raise LeagueError(f"{folder} holds no saved league (league/{STREAM} is missing); name the folder of a league run")


def _uniform_of_run(folder: Path) -> float | None:
    """Return `uniform_of` the run's game; None if its folder has no settings."""
    path = folder / "config.yaml"
    if not path.exists():
        return None
    from omegaconf import OmegaConf

    from workers.config.saved_settings import read_tree

    league = OmegaConf.to_container(read_tree(path)).get("league") or {}  # type: ignore[union-attr]
    return uniform_of(league["env"], **(league.get("env_kwargs") or {})) if "env" in league else None


def run(given: argparse.Namespace) -> int:
    """Draw the pictures that the command line asks for, and print their paths."""
    history, returns = saved(given.folder)
    paths = draw_all(given.folder, history, returns=returns, uniform=_uniform_of_run(given.folder))
    print(json.dumps([str(path) for path in paths]) if given.json else "\n".join(map(str, paths)))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return its exit status, 2 for an error."""
    parser = argparse.ArgumentParser(prog="python -m workers.league_pictures", description="Draw a saved league.")
    parser.add_argument("folder", type=Path, help="of a run, or of a saved league")
    parser.add_argument("--json", action="store_true", help="print the files as JSON")
    return guarded(lambda: run(parser.parse_args(argv)))
