"""Watching trained players, and playing against them, in a terminal."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import error

import envs
from envs import Turn, TwoPlayerVectorEnv
from envs.many_agents.team import Team
from envs.one_agent.gymnasium_envs import with_pip
from warren.arguments import LARGEST_SEED, whole
from warren.errors import ConfigurationError
from warren.trees import map_tree
from workers.config.command_line import guarded
from workers.evaluation.rated import RatedGames
from workers.evaluation.scores import UNIFORM
from workers.evaluation.table import Side, person, play, uniform
from workers.replays.drawn import draw_unseen
from workers.replays.episodes import EpisodeRecorder, write
from workers.replays.video import Video
from workers.runtime.trained import Trained, load
from workers.ui import returns

# Options with their defaults that apply to games of two players alone, and to runs of one agent alone.
OF_TWO = {"player": "main", "against": None, "greedy": False, "seat": 0, "seed": 0, "rated": None}
OF_ONE = {"sample": False, "render": None, "video": None, "record": None, "best": False}


def watch(
    trained: Trained,
    games: int,
    render: str | None,
    greedy: bool,
    say: Callable[[str], None],
    film: Path | None = None,
    record: Path | None = None,
) -> None:
    """Play `games` episodes; say a line of each, and their mean return.

    `film`: the file for a film of them; `record`: the file for observations and actions, to be imitated.
    """
    video, asked = None, f"--render {render}"
    if film is not None:
        video, render, asked = Video(film), "rgb_array", f"--video {film}"
        draw_unseen()
        say(f"filming {games} episodes to {film}: every step is drawn, which takes longer than to play it")
    env = _drawn(trained, render, asked) if render else trained.make()
    if record is not None and isinstance(env, Team):
        raise ConfigurationError(f"--record: {trained.env_id} has many agents, whose games are not recorded")
    found, kept = [], None
    if record is not None:
        kept = EpisodeRecorder(trained.env_id, trained.policy.learning_space, trained.policy.action_space)
    play_one: Callable[..., tuple[float, int]] = _game if isinstance(env, Team) else partial(_episode, kept=kept)
    if video is not None:
        video.fps = float(env.metadata.get("render_fps") or video.fps)
    try:
        for episode in range(games):
            total, steps = play_one(trained, env, episode, greedy, video)
            found.append(total)
            say(f"episode {episode + 1}: return {total:g} in {steps} steps")
    except error.DependencyNotInstalled as missing:
        raise ConfigurationError(f"{asked}: {with_pip(str(missing))}") from None
    finally:
        env.close()
        if video is not None:
            video.close()
        if record is not None and kept is not None and kept.count:
            _write(record, kept)
            say(f"{kept.count} episodes are in {record}")
    if video is not None:
        say(f"{video.frames} frames are in {video.path}")
    say(f"mean return {returns.shown(float(np.mean(found)))} of {games} episodes")


def _drawn(trained: Trained, render: str, asked: str) -> Any:
    """Make the environment so that it draws itself; `asked` is the option that needs this."""
    try:
        env = trained.make(render_mode=render)
    except ConfigurationError as error:
        if isinstance(error.__cause__, TypeError) and "'render_mode'" in str(error.__cause__):
            raise ConfigurationError(
                f"{asked}: {trained.env_id} draws nothing, as its constructor takes no argument render_mode; leave "
                f"--{asked[2:].partition(' ')[0]} out, or give the class this argument and a method render()"
            ) from None
        raise
    modes = env.metadata.get("render_modes")  # none are named by a class that leaves gymnasium's metadata as they are
    if modes and render not in (*modes, "rgb_array"):
        env.close()
        remedy = "film it by --video FILE" if "rgb_array" in modes else "choose one of them"
        raise ConfigurationError(f"{asked}: {trained.env_id} draws itself as {' or '.join(modes)} alone; {remedy}")
    return env


def _write(record: Path, kept: EpisodeRecorder) -> None:
    try:
        write(record, kept.episodes())
    except OSError as error:
        raise ConfigurationError(
            f"--record {record}: cannot be written ({error.strerror}); name another file"
        ) from None


def _episode(
    trained: Trained, env: Any, seed: int, greedy: bool, video: Video | None, kept: EpisodeRecorder | None
) -> tuple[float, int]:
    """Play an episode, and record it in `kept`; return (its return, its steps)."""
    observation, info = env.reset(seed=seed)
    trained.begin()
    total, steps, over = 0.0, 0, False
    while not over:
        if video is not None:
            video.add(env.render())
        legal = trained.legal(info)
        action = trained.act(observation, legal, greedy=greedy)
        if kept is not None:
            kept.decided(map_tree(np.copy, observation), action, legal)
        observation, reward, terminated, truncated, info = env.step(action)
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
        if kept is not None:
            kept.earned(float(reward))
    if kept is not None:
        kept.end()
    return total, steps


def _game(trained: Trained, team: Team, seed: int, greedy: bool, video: Video | None) -> tuple[float, int]:
    """Play a game of agents together; return (the mean of their returns, its steps)."""
    observations, info = team.reset(seed=seed)
    trained.begin()
    total, steps = 0.0, 0
    while not team.over:
        if video is not None:
            video.add(team.render())
        actions = trained.act_together(team, observations, info, greedy=greedy)
        observations, reward, _, _, info = team.step(actions)
        total, steps = total + float(reward.mean()), steps + 1
    return total, steps


def machine(trained: Trained, name: str, greedy: bool) -> Side:
    """Return the side of a trained player."""

    def choose(_: TwoPlayerVectorEnv, turn: Turn) -> int:
        return int(trained.act(turn.observation[0], turn.action_mask[0], greedy=greedy))

    return Side(name, choose, trained.begin)


def run(given: argparse.Namespace, ask: Callable[[str], str] = input, say: Callable[[str], None] = print) -> int:
    """Do what the command line asks for; return exit status 0, also when the person leaves."""
    if given.games < 1:
        raise ConfigurationError(f"--games: {given.games} is too few; use 1 at least")
    if given.rated is not None:
        _refuse_unrated(given)
    if is_game(given.folder):
        _refuse(given, OF_ONE, f"{given.folder} is a game of two players")
        opponent, games = opponent_in(given)
        return match((person(ask, say), opponent), games, given, say)
    trained = load(given.folder, given.player, best=given.best)
    say(f"{trained.env_id}, {trained.source}")
    if trained.two_player:
        _refuse(given, OF_ONE, f"{trained.env_id} is a game of two players")
    else:
        _refuse(given, OF_TWO, f"{trained.env_id} is played by one agent")
        watch(trained, given.games, given.render, not given.sample, say, given.video, given.record)
        return 0
    if given.against:
        first = machine(load(given.folder, given.against), given.against, given.greedy)
    else:
        first = person(ask, say)
    rated, seed = None, given.seed
    if given.rated is not None:
        rated, seed = RatedGames(given.folder, given.rated, given.player), secrets.randbits(31)
        trained.policy.generator.manual_seed(seed)
    return match((first, machine(trained, given.player, given.greedy)), trained.games(seed=seed), given, say, rated)


def _refuse_unrated(given: argparse.Namespace) -> None:
    """Raise ConfigurationError for options with which a person's games against a league's player cannot be rated."""
    whys = {"against": "two players would meet", "greedy": "a player of the league draws its actions",
            "seed": "nobody may know the cards"}  # fmt: skip
    problems = [
        f"--rated: with --{name} {why}; leave one of the two out"
        for name, why in whys.items()
        if getattr(given, name) != OF_TWO[name]
    ]
    if is_game(given.folder):
        problems.append(f"--rated: {given.folder} is a game; name the run folder of a league that plays it")
    if problems:
        raise ConfigurationError(problems)


def _refuse(given: argparse.Namespace, options: dict[str, Any], why: str) -> None:
    """Raise ConfigurationError naming each of `options` that was given although it would change nothing."""
    useless = [name for name, default in options.items() if getattr(given, name) != default]
    if useless:
        raise ConfigurationError([f"--{name}: {why}, for which it says nothing; leave it out" for name in useless])


def is_game(given: Path) -> bool:
    """Return whether a command line names a game instead of a folder."""
    return ":" in str(given) and not given.exists()


def opponent_in(given: argparse.Namespace) -> tuple[Side, TwoPlayerVectorEnv]:
    """Return (the opponent of a person who named a game, the game). Raises ConfigurationError, UnknownName."""
    game, against = str(given.folder), given.against or UNIFORM
    if against == UNIFORM:
        return uniform(given.seed), envs.make_two_player(game, 1, given.seed)
    if not Path(against).is_dir():
        raise ConfigurationError(
            f"--against {against}: for {game}, name a run folder of a league of that game (and with --player which of "
            f"its players; default: main), or {UNIFORM}, which plays any legal move"
        )
    trained = load(against, given.player)
    if not trained.two_player or trained.env_id != game:
        raise ConfigurationError(f"--against {against}: its players were trained on {trained.env_id}, not on {game}")
    return machine(trained, f"{given.player} of {against}", given.greedy), trained.games(seed=given.seed)


def match(
    sides: tuple[Side, Side],
    games: TwoPlayerVectorEnv,
    given: argparse.Namespace,
    say: Callable[[str], None],
    rated: RatedGames | None = None,
) -> int:
    """Play games between the two, the first of `sides` in the seat that was chosen; return exit status 0.

    `rated` counts the games that come to their end.
    """
    first, second = sides
    returns: list[float] = []
    try:
        for result in play(games, sides, given.games, say, given.seat):
            if rated is not None:
                rated.count(len(returns) % 2 if given.seat is None else given.seat, result)
            returns.append(result)
    except (EOFError, KeyboardInterrupt):
        say("")
        say(f"{first.name} left during game {len(returns) + 1}")
    if returns:
        say(f"{first.name}: {np.mean(returns):+.2f} a game against {second.name}")
    if rated is not None and returns:
        say(rated.rating())
    return 0


def seat(given: str) -> int | None:
    """Return a seat of a command line; None for both in turn."""
    if given not in ("0", "1", "alternate"):
        raise argparse.ArgumentTypeError(f"{given!r} must be 0, 1 or alternate")
    return None if given == "alternate" else int(given)


def main(description: str | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.play", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER or GAME",
        help="a run folder, as in runs/cartpole/TRIAL, of runs/cartpole the newest; or openspiel:tic_tac_toe, say",
    )
    parser.add_argument("--games", type=int, default=3, help="episodes or games; default: 3")
    parser.add_argument("--sample", action="store_true", help="of one agent: draw actions as in training")
    parser.add_argument("--best", action="store_true", help="of one agent: the weights of its best evaluation")
    parser.add_argument("--render", metavar="MODE", help="of one agent: a mode to draw in, as in human")
    parser.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help="of one agent: film it, as the environment draws itself: .gif or .mp4",
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="of one agent: write observations and actions, for workers.imitate"
    )
    parser.add_argument("--player", default="main", help="of a league: the player that plays; default: main")
    parser.add_argument(
        "--against",
        metavar="PLAYER",
        help="of a league: another of its players, in your place; of a GAME: a league's run folder, or uniform",
    )
    parser.add_argument("--greedy", action="store_true", help="of a league: the likeliest action, always")
    parser.add_argument(
        "--seat", type=seat, default=0, metavar="{0,1,alternate}", help="of two players: your seat; default: 0"
    )
    parser.add_argument(
        "--rated", metavar="NAME", help="of a league that trains: count your games, as NAME, for a rating"
    )
    parser.add_argument(
        "--seed", type=whole(0, LARGEST_SEED), default=0, help="of a league: seed of the cards and other chance"
    )
    options = parser.parse_args()
    return guarded(lambda: run(options))
