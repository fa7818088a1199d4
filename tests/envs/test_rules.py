"""envs.rules: a game from its rules equals OpenSpiel's and can be played; wrong rules are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import envs
from envs import exploitability
from envs.exploitability import load, uniform
from envs.game_tree import TreeVectorEnv
from envs.rules import CHANCE, TERMINAL, Rules, TooLarge, write_out
from envs.sequence_form import SequenceForm
from warren.errors import ConfigurationError

EXAMPLE = "examples/kuhn/kuhn.py:Kuhn"


def rows_of(form: SequenceForm, card: Callable[[int], int], moves: Callable[[int], str]) -> dict[tuple[int, str], int]:
    """Return (card, moves) -> the row of the information state."""
    return {(card(row), moves(row)): row for row in range(len(form.labels))}


def pairs() -> tuple[SequenceForm, SequenceForm, np.ndarray]:
    """Return the example's Kuhn poker, OpenSpiel's, and OpenSpiel's row for each row of the example."""
    pytest.importorskip("pyspiel")
    mine, theirs = load(EXAMPLE), load("openspiel:kuhn_poker")
    letters = {0: "p", 1: "b"}
    ours = rows_of(
        mine,
        lambda row: int(mine.observation[row, :3].argmax()),
        lambda row: "".join(letters[int(move)] for move in mine.observation[row, 3:] if move >= 0),
    )
    others = rows_of(theirs, lambda row: int(theirs.labels[row][0]), lambda row: theirs.labels[row][1:])
    assert ours.keys() == others.keys() and len(ours) == 12
    rows = np.zeros(12, np.int64)
    for known, row in ours.items():
        rows[row] = others[known]
    return mine, theirs, rows


def test_the_example_equals_openspiels_kuhn_poker_in_value_and_exploitability() -> None:
    mine, theirs, rows = pairs()
    assert exploitability.of(mine, uniform(mine)) == pytest.approx(11 / 24)
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy = rng.dirichlet([0.5, 0.5], 12)
        other = np.zeros_like(policy)
        other[rows] = policy
        assert exploitability.of(mine, policy) == pytest.approx(exploitability.of(theirs, other))
        assert mine.payoff(*mine.plans(policy)) == pytest.approx(theirs.payoff(*theirs.plans(other)))


def test_games_of_the_example_pay_the_value_of_their_tree() -> None:
    games = envs.make_two_player(EXAMPLE, 400, 0)
    assert isinstance(games, TreeVectorEnv) and games.max_return == 2.0
    form, rng = load(EXAMPLE), np.random.default_rng(0)
    turn, returns = games.reset(), []
    for _ in range(400):
        turn = games.step((rng.random(turn.action_mask.shape) * turn.action_mask).argmax(axis=1))
        returns.append(games.pop_finished().returns[:, 0])
    value = form.payoff(*form.plans(uniform(form)))
    played = np.concatenate(returns)
    assert abs(played.mean() - value) < 5 * played.std() / np.sqrt(len(played)) < 0.1


class Pick(Rules):
    """A coin is thrown unseen; the first player names a side, the second, without seeing that, doubles or not."""

    num_actions = 2

    def initial(self) -> Any:
        return ()

    def to_move(self, state: Any) -> int:
        return (CHANCE, 0, 1, TERMINAL)[len(state)]

    def chance(self, state: Any) -> list[tuple[int, float]]:
        return [(0, 0.25), (1, 0.75)]

    def legal(self, state: Any) -> list[int]:
        return [0, 1]

    def step(self, state: Any, action: int) -> Any:
        return (*state, action)

    def returns(self, state: Any) -> float:
        coin, named, doubled = state
        return (1 if coin == named else -1) * (1 + doubled)

    def observation(self, state: Any) -> Any:
        return [len(state)]


def test_a_player_that_cannot_tell_states_apart_has_one_information_state() -> None:
    tree = write_out("pick", Pick())
    assert tree.owner.tolist() == [0, 1] and len(tree.player) == 1 + 2 + 4 + 8
    form = SequenceForm.from_tree(tree)
    # The first player names the likelier side, so the second should not double: 0.75 - 0.25.
    assert form.best_response(0, form.plans(uniform(form))[1])[0] == pytest.approx(0.5 * 1.5)
    assert exploitability.of(form, np.array([[0.0, 1.0], [1.0, 0.0]])) == pytest.approx(0.0)


def test_names_of_information_sets_become_labels() -> None:
    class Named(Pick):
        def information_set(self, state: Any) -> str:
            return ("", "name it", "double?")[len(state)]

    assert write_out("named", Named()).labels == ["name it", "double?"]


def test_a_game_beyond_the_limit_is_refused() -> None:
    assert len(write_out("pick", Pick(), 15).player) == 15
    with pytest.raises(TooLarge, match="'pick' has more than 14 histories, or has no end"):
        write_out("pick", Pick(), 14)


def having(**changed: Any) -> Rules:
    return type("Changed", (Pick,), changed)()


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (having(num_actions=0), "at its beginning: num_actions is 0"),
        (having(to_move=lambda _, state: 2), "to_move is 2; it must be 0, 1, CHANCE or TERMINAL"),
        (having(to_move=lambda _, state: TERMINAL, returns=lambda _, state: 0), "no player ever moves"),
        (having(chance=lambda _, state: [(0, 0.5), (1, 0.4)]), r"probabilities are \[0.5, 0.4\]; .* must sum to 1"),
        (having(chance=lambda _, state: [(0, 1.5), (1, -0.5)]), "none negative, they must sum to 1"),
        (having(chance=lambda _, state: [(0, 0.5), (0, 0.5)]), r"names an outcome twice: \[0, 0\]"),
        (having(legal=lambda _, state: []), r"after the actions and outcomes \[0\]: legal actions are \[\]"),
        (having(legal=lambda _, state: [0, 2]), r"legal actions are \[0, 2\]; .* within 0 to 1"),
        (having(legal=lambda _, state: [1] if state[0] else [0, 1]), r"could tell"),
        (having(step=lambda _, state, action: state), r"step\(0\) returned the very state"),
        (having(returns=lambda _, state: np.nan), "returns are nan; they must be a finite number"),
        (having(observation=lambda _, state: [np.inf]), "is not finite"),
        (having(observation=lambda _, state: [0] * len(state)), r"shape \[2\], elsewhere \[1\]"),
        (
            having(information_set=lambda _, state: "all", observation=lambda _, state: [state[0], len(state)]),
            "'all' of player 0 is observed otherwise here than elsewhere",
        ),
    ],
)
def test_wrong_rules_are_refused_with_their_history(rules: Rules, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^game 'pick', .*{message}"):
        write_out("pick", rules)


def test_rules_without_chance_at_a_chance_state_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="`chance` has to say how"):
        write_out("pick", having(chance=Rules.chance))


SIZES: list[int] = []  # sides of the games that were written out


class Counted(Pick):
    def __init__(self, sides: int = 2) -> None:
        SIZES.append(sides)
        self.num_actions = sides


class Natural(Pick):
    """After one side of the coin the game is over before anyone has moved."""

    def to_move(self, state: Any) -> int:
        return TERMINAL if state == (1,) else super().to_move(state)

    def returns(self, state: Any) -> float:
        return 1.0 if state == (1,) else super().returns(state)


class Rigged(Natural):
    """The coin never falls on that side."""

    def chance(self, state: Any) -> list[tuple[int, float]]:
        return [(0, 1.0), (1, 0.0)]


def test_a_game_that_chance_may_end_before_a_move_is_solved_not_played() -> None:
    tree = write_out("natural", Natural())
    form = SequenceForm.from_tree(tree)
    assert np.isfinite(form.payoff(*form.plans(uniform(form))))
    with pytest.raises(ConfigurationError, match=r"'natural': a game may end before anyone moves, .* outcomes \[1\];"):
        TreeVectorEnv(tree, 4, 0)


def test_an_end_of_probability_0_does_not_keep_a_game_from_being_played() -> None:
    games = TreeVectorEnv(write_out("rigged", Rigged()), 4, 0)
    games.reset()
    for _ in range(6):
        games.step(np.zeros(4, np.int64))
    assert len(games.pop_finished().index) == 12


def test_a_game_that_is_made_several_times_is_written_out_once() -> None:
    name = f"{__name__}:Counted"
    first, second = envs.make_two_player(name, 2, 0), envs.make_two_player(name, 4, 1)
    load(name)
    assert SIZES == [2] and first.tree is second.tree
    assert envs.make_two_player(name, 2, 0, sides=3).num_actions == 3
    assert SIZES == [2, 3]


def test_a_class_of_rules_is_refused_as_an_environment_of_one_agent() -> None:
    with pytest.raises(ConfigurationError, match="is a game of two players, which a league trains"):
        envs.make(EXAMPLE)
