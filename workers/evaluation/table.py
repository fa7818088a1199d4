"""Sides at a table: a game for people, move by move, each side a person at the keyboard or a player."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from envs import Turn, TwoPlayerVectorEnv

Chooser = Callable[[TwoPlayerVectorEnv, Turn], int]  # the action of the player to move in game 0
YOU = "you"


@dataclass(frozen=True)
class Side:
    """A side of the table, a person or a player. `begin` is called when a game has ended and another begins."""

    name: str
    choose: Chooser
    begin: Callable[[], None] = lambda: None


def play(
    games: TwoPlayerVectorEnv, sides: tuple[Side, Side], number: int, say: Callable[[str], None], seat: int | None = 0
) -> Iterator[float]:
    """Play `number` games, and yield the return of the first of `sides` after each; `say` reports each move.

    A person is not told hidden moves.
    The first side takes team `seat`; None: each team in turn. The second side takes all others.
    """
    turn = games.reset()
    for game in range(number):
        mine = game % len(games.teams) if seat is None else seat
        at_table = [sides[0 if team == mine else 1] for team in games.team_of]
        say(f"game {game + 1}: {', '.join(_is(side, player) for player, side in enumerate(at_table))}")
        while True:
            player = int(turn.to_move[0])
            action = at_table[player].choose(games, turn)
            unseen = games.hidden_moves and at_table[player].name != YOU in (side.name for side in sides)
            say(f"player {player} {'has moved' if unseen else f'plays {games.action_text(0, action)}'}")
            turn = games.step(np.array([action]))
            if turn.done[0]:
                break
        finished = games.pop_finished()
        (returns,) = finished.returns
        if text := games.last_text(0):
            say(text)
        gained = np.roll(games.by_team(finished.returns)[0], -mine)
        got = ", ".join(f"player {player} {returned:+g}" for player, returned in enumerate(returns))
        say(f"game {game + 1} is over: {got}; {_result(sides, float(gained[0] - gained[1:].max()))}")
        for side in sides:
            side.begin()
        yield float(gained[0])


def person(ask: Callable[[str], str], say: Callable[[str], None]) -> Side:
    """Return the side of a person at the keyboard; EOFError and KeyboardInterrupt end the game."""

    def choose(games: TwoPlayerVectorEnv, turn: Turn) -> int:
        names = {int(action): games.action_text(0, int(action)) for action in np.flatnonzero(turn.action_mask[0])}
        say(games.text(0))
        named = ", ".join(
            str(action) if name == str(action) else f"{action} ({name})" for action, name in names.items()
        )
        while True:
            answer = ask(f"your move as player {turn.to_move[0]}, one of {named}: ").strip()
            found = [action for action, name in names.items() if answer == str(action)] or [
                action for action, name in names.items() if answer.lower() == name.lower()
            ]
            if len(found) == 1:
                return found[0]
            say(f"{answer!r} is not one of them; type a number of the list, or Ctrl-D to leave")

    return Side(YOU, choose)


def uniform(seed: int) -> Side:
    """Return a side that plays every legal move equally often."""
    generator = np.random.default_rng(seed)

    def choose(_: TwoPlayerVectorEnv, turn: Turn) -> int:
        return int(generator.choice(np.flatnonzero(turn.action_mask[0])))

    return Side("uniform", choose)


def _is(side: Side, seat: int) -> str:
    return f"{side.name} {'are' if side.name == YOU else 'is'} player {seat}"


def _result(sides: tuple[Side, Side], returned: float) -> str:
    if returned == 0:
        return "a draw"
    return f"{sides[0 if returned > 0 else 1].name} won"
