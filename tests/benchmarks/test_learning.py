"""Tests of benchmarks.learning: its comparisons are valid runs, and its figures are those of the runs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.apparatus.points import Points
from benchmarks.apparatus.seeds import composed
from benchmarks.learning import __main__ as learning
from benchmarks.learning.__main__ import Measurement, Side, figures
from benchmarks.learning.comparisons import COMPARISONS
from benchmarks.learning.mann_whitney import p_value
from benchmarks.learning.peers import LIBRARIES, Peer, equal_normalization, equal_settings, settings_of
from benchmarks.learning.replay_peers import equal_replay
from warren.errors import ConfigurationError
from workers.config.schema import Config

composed_once = cache(composed)


@pytest.mark.parametrize("name", sorted(COMPARISONS))
def test_every_comparison_is_a_run_with_a_goal_and_a_limit(name: str) -> None:
    comparison = COMPARISONS[name]
    config: Config = composed_once(tuple(one for one in comparison.overrides if "{teacher}" not in one))
    assert config.env.goal is not None
    assert config.total_steps < 10_000_000
    if comparison.without:
        control = composed_once(comparison.without)
        assert (control.env, control.total_steps) == (config.env, config.total_steps)
    if comparison.peer is not None:
        theirs = composed_once(comparison.of_peer)
        assert (theirs.env.id, theirs.env.goal) == (config.env.id, config.env.goal)
        assert comparison.peer.algorithm in LIBRARIES
        assert {"learning_rate", "gamma"} <= settings_of(theirs).keys()


def test_a_run_that_does_not_reach_the_goal_counts_with_its_limit() -> None:
    ours, theirs = Side("Warren", 100_000), Side("Peer", 100_000)
    for steps in (20_000, None, 30_000):
        ours.add(steps, 1.0, [(10_000, 1.0), (20_000, 3.0)])
    for steps in (10_000, None, None):
        theirs.add(steps, 1.0, [])
    found = figures(COMPARISONS["cartpole-ppo"], ours, theirs, 475.0)
    assert (found["solved"], found["seeds"], found["steps_vs_peer"]) == (2, 3, 0.3)
    assert found["p"] == 1.0
    assert found["median_steps"] == {"Warren": 30_000, "Peer": 100_000}
    assert found["runs"]["Warren"][1] == {"steps": None, "seconds": 1.0, "best": 3.0}


@pytest.mark.parametrize("sizes", [(3, 3), (3, 5), (5, 5)])
def test_p_is_that_of_the_exact_mann_whitney_test(sizes: tuple[int, int]) -> None:
    generator = np.random.default_rng(1)
    for shift in (0.0, 1.0, 5.0):
        ours, theirs = (generator.normal(size=size).tolist() for size in sizes)
        theirs = [number + shift for number in theirs]
        expected = stats.mannwhitneyu(ours, theirs, method="exact").pvalue
        assert p_value(ours, theirs) == pytest.approx(expected)
    assert p_value([1, 1, 1], [1, 1, 1]) == 1.0


def test_the_same_command_goes_on_after_ended_runs_and_may_add_the_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def train(
        folder: Path, trial: str, overrides: list[str], *_: Any
    ) -> tuple[dict[str, Any], list[tuple[int, float]]]:
        begun.append(overrides[-1])
        (folder / "learning" / trial).mkdir(parents=True)  # the run makes the folder, which must not exist before
        if len(begun) == 2:
            raise SystemExit("cut short")
        return {"state": "solved", "steps": 1000 * len(begun), "seconds": 2.0}, [(500, 1.0), (1000, 9.0)]

    def run_peer(peer: Peer, config: Config, seed: int) -> tuple[int | None, float, list[tuple[int, float]]]:
        begun.append(f"peer {seed}")
        return None, 3.0, [(700, 4.0)]

    def measured(seeds: int, with_peer: bool) -> tuple[Side, Side | None]:
        points = Points(tmp_path, "learning_cartpole-ppo")
        return Measurement("cartpole-ppo", tmp_path, {}, points).measure(seeds, with_peer)

    monkeypatch.setattr(learning, "train", train)
    monkeypatch.setattr(learning, "run_peer", run_peer)
    monkeypatch.setattr(learning, "composed", lambda overrides: composed_once(tuple(overrides)))
    monkeypatch.setattr(Peer, "missing", lambda self: None)
    with pytest.raises(SystemExit):
        measured(2, False)
    first, _ = measured(2, False)
    assert begun == ["seed=1", "seed=2", "seed=2"]
    ours, theirs = measured(3, True)
    assert theirs is not None
    assert begun[3:] == ["peer 1", "peer 2", "seed=3", "peer 3"]
    assert ours.runs[:2] == first.runs and ours.curves[:2] == first.curves == [[[500, 1.0], [1000, 9.0]]] * 2
    assert (ours.solved, theirs.solved, theirs.curves) == (3, 0, [[[700, 4.0]]] * 3)
    assert measured(3, True)[0].runs == ours.runs and len(begun) == 7


def test_settings_have_the_names_that_the_peer_knows() -> None:
    a2c = equal_settings({"name": "a2c", "learning_rate": 1e-3, "gamma": 0.9})
    assert (a2c["learning_rate"], a2c["gamma"], a2c["gae_lambda"], a2c["ent_coef"]) == (1e-3, 0.9, 1.0, 0.0)
    ppo = equal_settings({"name": "ppo", "epochs": 3, "minibatch_size": 64, "clip_range": 0.1})
    assert (ppo["n_epochs"], ppo["batch_size"], ppo["clip_range"]) == (3, 64, 0.1)


def test_the_peers_replay_has_the_pace_and_settings_of_ours() -> None:
    """Two actors with two environments each are 4 copies, and 8 steps allow 32 updates."""
    td3 = equal_replay(composed_once(("experiment=pendulum_td3",)), 4)
    assert (td3["train_freq"], td3["gradient_steps"], td3["policy_delay"], td3["action_noise"]) == (8, 32, 2, 0.1)
    quarter = composed_once(("experiment=pendulum_td3", "replay.samples_per_insert=32"))
    assert equal_replay(quarter, 4)["gradient_steps"] * 4 == td3["gradient_steps"]
    with pytest.raises(ConfigurationError, match="pay for 1/4 updates"):
        equal_replay(composed_once(("experiment=pendulum_td3", "replay.samples_per_insert=1")), 4)
    with pytest.raises(ConfigurationError, match="no priorities"):
        equal_replay(composed_once(("experiment=pendulum_td3", "algorithm.prioritized=true")), 4)


def test_a_peer_is_given_the_epsilon_of_warrens_adam() -> None:
    for name, epsilon in (("pendulum_td3", 1e-8), ("cartpole_qrdqn", 0.01 / 64)):
        peer = equal_replay(composed_once((f"experiment={name}",)), 4)
        assert peer["policy_kwargs"]["optimizer_kwargs"] == {"eps": pytest.approx(epsilon)}, name


def test_a_kept_curve_is_short_and_has_its_best_and_its_last_point() -> None:
    curve = [(step, float(-abs(step - 701))) for step in range(1, 1001)]
    kept = learning.thinned(curve)
    assert len(kept) < 50 and kept[-1] == curve[-1] and (701, 0.0) in kept
    assert learning.thinned([]) == [] and learning.thinned(curve[:2]) == curve[:2]


def test_a_peer_normalises_what_warren_does() -> None:
    hidden = composed_once(COMPARISONS["cartpole-hidden-lstm"].overrides)
    assert equal_normalization(hidden) == {"norm_obs": True, "norm_reward": True, "gamma": hidden.algorithm["gamma"]}
    assert equal_normalization(composed_once(COMPARISONS["cartpole-ppo"].overrides)) == {}


def test_a_one_ply_player_wins_where_it_can() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    from benchmarks.learning.connect_four_players import one_ply

    state = pyspiel.load_game("connect_four").new_initial_state()
    for column in (2, 0, 2, 0, 2, 0):
        state.apply_action(column)
    assert {one_ply(state, np.random.default_rng(seed)) for seed in range(5)} == {2}


def test_a_player_that_knows_the_state_plays_each_seat_in_half_of_the_games() -> None:
    pytest.importorskip("pyspiel")
    import envs
    from benchmarks.learning.connect_four_players import chance, one_ply, score
    from workers.evaluation import duplicate_deals as sides

    seats = []

    def first_legal(state: Any, generator: np.random.Generator) -> int:
        if len(state.history()) < 2:
            seats.append(state.current_player())
        return int(state.legal_actions()[0])

    games = envs.make_two_player("openspiel:connect_four", 8, 1)
    score(games, sides.Side.of(None), first_legal, 31, 1)
    assert seats.count(0) == 16 and seats.count(1) == 16  # 15 and 16 games, in batches of 8
    assert 0.35 < score(games, sides.Side.of(None), chance, 200, 1) < 0.65
    assert score(games, sides.Side.of(None), one_ply, 200, 1) < 0.35
