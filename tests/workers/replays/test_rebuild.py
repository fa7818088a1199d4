"""Tests that a recorded match is rebuilt: its games from seeds and actions, its decisions from the weights."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from support.played import play_match, policy_for

import envs
from warren.errors import ConfigurationError, ReplayError
from workers.replays.match_record import RecordedMatch
from workers.replays.rebuild import check, moves

GAMES = [
    "openspiel:kuhn_poker",  # chance before the first move, played on its tree
    "openspiel:tic_tac_toe",  # no chance, played on states
    "openspiel:pig?horizon=20",  # chance after moves, played on states
    "openspiel:goofspiel?num_cards=3",  # simultaneous moves
    "matrix:spinning_top",
    "pettingzoo:tictactoe_v3",
    "pettingzoo:leduc_holdem_v4",
]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("env", GAMES)
def test_every_game_and_decision_of_a_record_is_rebuilt(env: str) -> None:
    played, kept = play_match(env)
    record = RecordedMatch.from_bytes(played.to_bytes())
    checked = check(record, envs.make_two_player(env, 1, seed=99), kept.get)
    assert checked.problems == []
    assert checked.decided_again == checked.decisions > checked.games >= 20
    assert {game.home for game in record.games} == {0, 1}
    assert any(len(game.weights) > 1 for game in record.games) or max(len(game.actions) for game in record.games) < 5


@pytest.mark.parametrize("away_is_home", [False, True])
def test_a_policy_with_a_memory_decides_again_as_far_as_its_weights_were_kept(away_is_home: bool) -> None:
    network = {"name": "mlp", "hidden_sizes": [8], "core": {"name": "lstm", "size": 8}}
    record, kept = play_match("openspiel:tic_tac_toe", away_is_home, network)
    games = envs.make_two_player(record.env, 1, seed=0)
    assert (all_known := check(record, games, kept.get)).problems == []
    assert all_known.decided_again == all_known.decisions
    only = {weights: policy for weights, policy in kept.items() if weights.version == 1}
    some = check(record, games, only.get)
    assert some.problems == [] and 0 < some.decided_again < some.decisions


def test_a_record_that_differs_from_its_match_is_found() -> None:
    record, kept = play_match("openspiel:kuhn_poker")
    games = envs.make_two_player(record.env, 1, seed=0)

    def problems(**changed: object) -> str:
        first = replace(record.games[0], **changed)  # type: ignore[arg-type]
        return "; ".join(check(replace(record, games=(first, *record.games[1:])), games, kept.get).problems)

    actions = record.games[0].actions
    assert "game 1: the game was over after" in problems(actions=np.append(actions, 0))
    assert "game 1: the game was not over after its" in problems(actions=actions[:-1])
    assert "game 1: move 1 is illegal" in problems(actions=np.append([7], actions[1:]))
    assert any("not those that the recorded weights make" in problems(drawn_by=seed) for seed in range(20))
    assert "recorded are [-9.  9.]" in problems(returns=np.array([-9, 9], np.float32))
    wrong = "w" * len(record.outcomes)
    assert "its returns make" in check(replace(record, outcomes=wrong), games, kept.get).problems[0]
    other = {weights: policy_for(record.env, 77) for weights in kept}
    assert "not those that the recorded weights make" in check(record, games, other.get).problems[0]
    assert check(record, games, lambda weights: None).decided_again == 0


def test_a_seed_begins_the_same_game_alone_as_among_others() -> None:
    record, _ = play_match("openspiel:leduc_poker")
    one = envs.make_two_player(record.env, 1, seed=5)
    for game in record.games:
        assert [move.number for move in moves(one, game)] == list(range(len(game.actions)))


def test_a_game_class_that_takes_no_seeds_is_refused() -> None:
    class Alone(envs.TwoPlayerVectorEnv):
        def _reset(self) -> envs.Turn: ...

        def _step(self, action: np.ndarray) -> envs.Turn: ...

    with pytest.raises(ConfigurationError, match="'alone' cannot begin a game from a seed of its own; give its class"):
        Alone("alone", 1, (1,), 2).reset(seeds=[1])


def test_bytes_that_are_no_record_are_refused() -> None:
    whole = play_match("matrix:rps")[0].to_bytes()
    for data in (b"", b"\x80", whole[:-9], zlib.compress(b"\x80"), zlib.compress(b"\xc1"), zlib.compress(b"\x90")):
        with pytest.raises(ReplayError, match="is not that of a match"):
            RecordedMatch.from_bytes(data)
