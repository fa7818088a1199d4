"""Watching what was trained, and playing against it, in a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gymnasium import error

from envs import Turn, TwoPlayerVectorEnv
from envs.gymnasium_envs import with_pip
from warren.errors import ConfigurationError
from workers.config.command_line import guarded
from workers.evaluation.video import Video
from workers.runtime.trained import Trained, load
from workers.ui import returns

Chooser = Callable[[TwoPlayerVectorEnv, Turn], int]  # the action of the player to move in game 0


def watch(
    trained: Trained, games: int, render: str | None, greedy: bool, say: Callable[[str], None], film: Path | None = None
) -> None:
    """Play so many episodes; a line each, and their mean return. `film`: what is seen goes to this file."""
    video = None
    if film is not None:
        video, render = Video(film), "rgb_array"
    env = trained.make(**({"render_mode": render} if render else {}))
    found = []
    if video is not None:
        video.fps = float(env.metadata.get("render_fps") or video.fps)
    try:
        for episode in range(games):
            observation, _ = env.reset(seed=episode)
            trained.begin()
            total, steps, over = 0.0, 0, False
            while not over:
                if video is not None:
                    video.add(env.render())
                observation, reward, terminated, truncated, _ = env.step(trained.act(observation, greedy=greedy))
                total, steps, over = total + float(reward), steps + 1, terminated or truncated
            found.append(total)
            say(f"episode {episode + 1}: return {total:g} in {steps} steps")
    except error.DependencyNotInstalled as missing:
        raise ConfigurationError(f"--render {render}: {with_pip(str(missing))}") from None
    finally:
        env.close()
        if video is not None:
            video.close()
    if video is not None:
        say(f"{video.frames} frames are in {video.path}")
    say(f"mean return {returns.shown(float(np.mean(found)))} of {games} episodes")


def play(
    games: TwoPlayerVectorEnv,
    choosers: tuple[Chooser, Chooser],
    number: int,
    say: Callable[[str], None],
    begin: Callable[[], None] = lambda: None,
) -> list[float]:
    """Play so many games, `choosers` by seat; the returns of seat 0. Moves are said as they are made.

    `begin` is called when a game has ended and another begins.
    """
    turn = games.reset()
    returns: list[float] = []
    while len(returns) < number:
        seat = int(turn.to_move[0])
        action = choosers[seat](games, turn)
        say(f"player {seat} plays {games.action_text(0, action)}")
        turn = games.step(np.array([action]))
        for result in games.pop_finished().returns:
            returns.append(float(result[0]))
            say(f"game {len(returns)} is over: player 0 {result[0]:+g}, player 1 {result[1]:+g}")
            begin()
    return returns


def person(ask: Callable[[str], str], say: Callable[[str], None]) -> Chooser:
    """Somebody at the keyboard; EOFError ends the game."""

    def choose(games: TwoPlayerVectorEnv, turn: Turn) -> int:
        legal = np.flatnonzero(turn.action_mask[0])
        say(games.text(0))
        named = ", ".join(
            str(action) if (name := games.action_text(0, int(action))) == str(action) else f"{action} ({name})"
            for action in legal
        )
        while True:
            answer = ask(f"your move as player {turn.to_move[0]}, one of {named}: ").strip()
            if answer.isdigit() and int(answer) in legal:
                return int(answer)
            say(f"{answer!r} is not one of them")

    return choose


def machine(trained: Trained, greedy: bool) -> Chooser:
    """A player that was trained."""

    def choose(_: TwoPlayerVectorEnv, turn: Turn) -> int:
        return int(trained.act(turn.observation[0], turn.action_mask[0], greedy=greedy))

    return choose


def run(given: argparse.Namespace, ask: Callable[[str], str] = input, say: Callable[[str], None] = print) -> int:
    """What the command line asks for; exit status 0, also when the person leaves."""
    trained = load(given.folder, given.player)
    say(f"{trained.env_id}, {trained.source}")
    if not trained.two_player:
        watch(trained, given.games, given.render, not given.sample, say, given.video)
        return 0
    greedy = given.greedy
    machines = [trained, *([load(given.folder, given.against)] if given.against else [])]
    mine, other = machine(trained, greedy), machine(machines[-1], greedy) if given.against else person(ask, say)
    choosers = (other, mine) if given.seat == 0 else (mine, other)

    def begin() -> None:
        for player in machines:
            player.begin()

    try:
        returns = np.array(play(trained.games(seed=given.seed), choosers, given.games, say, begin))
    except (EOFError, KeyboardInterrupt):
        say("")
        return 0
    name = given.against or "you"
    say(f"{name}: {(returns if given.seat == 0 else -returns).mean():+.2f} a game against {given.player}")
    return 0


def main(description: str | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.play", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="a run folder, as in runs/cartpole/TRIAL; of runs/cartpole the newest"
    )
    parser.add_argument("--games", type=int, default=3, help="episodes or games; default: 3")
    parser.add_argument("--sample", action="store_true", help="of one agent: draw actions as in training")
    parser.add_argument("--render", metavar="MODE", help="of one agent: as the environment draws itself, as in human")
    parser.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help="of one agent: film it, as the environment draws itself: .gif or .mp4",
    )
    parser.add_argument("--player", default="main", help="of a league: who plays; default: main")
    parser.add_argument("--against", metavar="PLAYER", help="of a league: another of its players, in your place")
    parser.add_argument("--greedy", action="store_true", help="of a league: the likeliest action, always")
    parser.add_argument("--seat", type=int, choices=(0, 1), default=0, help="of a league: yours; default: 0")
    parser.add_argument("--seed", type=int, default=0, help="of a league: of the cards, or whatever chance does")
    options = parser.parse_args()
    return guarded(lambda: run(options))
