"""The magnet and the last policy: their loss terms, updates of the magnet, convergence of self-play."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support import matrix_games
from support.experience import ON_POLICY, random_trajectory
from test_batches import CORES, played, recurrent
from test_peers import InThreads

from agents import build_algorithm, build_policy, checkpoints
from agents.algorithms.anchors import LAST, MAGNET, distributions, divergence
from agents.algorithms.batches import Batch
from warren.errors import ConfigurationError

SPACES = Box(-1, 1, (4,), np.float32), Discrete(3)
ONE_STEP = {name: {"epochs": 1, "minibatch_size": 1000} for name in ("ppo", "appo")}


def made(name: str = "ppo", seed: int = 3, **settings: Any) -> Any:
    policy = build_policy({"hidden_sizes": [16], "normalize_observations": True}, *SPACES, seed)
    given = {"learning_rate": 0.01, "max_grad_norm": 1e6, **ONE_STEP.get(name, {}), **settings}
    return build_algorithm(name, given, policy, 3)


def other(seed: int = 9) -> Any:
    return build_policy({"hidden_sizes": [16], "normalize_observations": True, "policy_gain": 2.0}, *SPACES, seed)


def weights(policy: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in policy.state_dict().values()])


def test_the_divergence_is_kl_of_policy_and_anchor_over_legal_actions() -> None:
    policy, anchor = made().policy, other()
    trajectory = random_trajectory(policy)
    legal = np.random.default_rng(0).random((*trajectory.action.shape, 3)) < 0.6
    np.put_along_axis(legal, trajectory.action[..., None], True, -1)
    batch = Batch(policy, [replace(trajectory, action_mask=legal)])
    columns = distributions(anchor, batch, MAGNET)
    found = divergence(
        policy, policy.evaluate(batch.observation, batch.action, batch.action_mask).output, MAGNET, columns
    )

    def log_probabilities(of: Any) -> np.ndarray:
        with torch.no_grad():
            logits = of.network.step(batch.observation, {})[0].policy.double().numpy()
        logits = np.where(legal.reshape(-1, 3), logits, -np.inf)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    p, q = log_probabilities(policy), log_probabilities(anchor)
    with np.errstate(invalid="ignore"):
        expected = np.where(np.isfinite(p), np.exp(p) * (p - q), 0).sum(-1).mean()
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert divergence(policy, None, LAST, columns) is None


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_magnets_gradient_is_scaled_by_its_coefficient(name: str) -> None:
    def gradient(coefficient: float) -> tuple[np.ndarray, dict[str, float]]:
        algorithm = made(name, magnet_coefficient=coefficient)
        with_magnet = made(name, magnet_coefficient=1.0)
        with_magnet.update([random_trajectory(with_magnet.policy)])
        with_magnet.magnet.policy.load_state_dict(other().state_dict())
        tensors, scalars = with_magnet.state()
        algorithm.load_state({key: tensor for key, tensor in tensors.items() if "adam" not in key}, scalars)
        metrics = algorithm.update([random_trajectory(algorithm.policy)]).metrics
        return torch.cat([p.grad.ravel() for p in algorithm.policy.parameters()]).numpy(), metrics

    (none, without), (one, metrics), (three, _) = (gradient(coefficient) for coefficient in (0.0, 1.0, 3.0))
    assert np.abs(one - none).max() > 1e-3
    assert three - none == pytest.approx(3 * (one - none), rel=1e-3, abs=1e-5)
    assert metrics["magnet_kl"] > 0.01 and "magnet_kl" not in without


def test_the_last_policy_holds_back_all_steps_but_the_first() -> None:
    def moved(coefficient: float, epochs: int) -> tuple[torch.Tensor, dict[str, float]]:
        algorithm = made(proximal_coefficient=coefficient, epochs=epochs, clip_range=100.0)
        before = weights(algorithm.policy)
        metrics = algorithm.update([random_trajectory(algorithm.policy)]).metrics
        return weights(algorithm.policy) - before, metrics

    free, held = moved(0.0, 1), moved(5.0, 1)
    assert held[1]["proximal_kl"] == pytest.approx(0, abs=1e-7)
    torch.testing.assert_close(free[0], held[0])
    assert 0 < moved(5.0, 20)[1]["approx_kl"] < 0.5 * moved(0.0, 20)[1]["approx_kl"]
    with pytest.raises(ConfigurationError, match="setting of a2c 'proximal_coefficient' does not exist"):
        made("a2c", proximal_coefficient=1.0)


def test_a_magnet_is_copied_at_intervals_or_averaged_or_constant() -> None:
    copied, moving, standing = (
        made(magnet_coefficient=0.1, **settings) for settings in ({"magnet_every": 3}, {"magnet_rate": 0.25}, {})
    )
    for algorithm in (copied, moving, standing):
        first = weights(algorithm.policy)
        seen, expected = [], first.clone()
        for seed in range(4):
            algorithm.update([random_trajectory(algorithm.policy, seed=seed)])
            seen.append((weights(algorithm.magnet.policy), weights(algorithm.policy)))
            parameters = torch.nn.utils.parameters_to_vector(algorithm.magnet.policy.parameters())
            if algorithm is moving:
                now = torch.nn.utils.parameters_to_vector(algorithm.policy.parameters())
                before = torch.nn.utils.parameters_to_vector(made().policy.parameters()) if seed == 0 else expected
                expected = before + 0.25 * (now - before)
                torch.testing.assert_close(parameters, expected)
        if algorithm is copied:
            assert torch.equal(seen[1][0], first) and torch.equal(seen[2][0], seen[2][1])
            assert torch.equal(seen[3][0], seen[2][1])
        if algorithm is standing:
            assert all(torch.equal(magnet, first) for magnet, _ in seen)
        assert not any(parameter.requires_grad for parameter in algorithm.magnet.policy.parameters())


def test_without_a_coefficient_there_is_no_magnet_and_nothing_changes() -> None:
    plain, settled = made(), made(magnet_every=2, magnet_coefficient=0.0, proximal_coefficient=0.0)
    trajectory = random_trajectory(plain.policy)
    assert plain.update([trajectory]) == settled.update([trajectory])
    assert settled.magnet is None and plain.state()[1] == settled.state()[1] == {"steps": 64}


@pytest.mark.parametrize("settings", [{"magnet_every": 2}, {"magnet_rate": 0.1}], ids=str)
def test_training_resumes_exactly_from_a_checkpoint_with_a_magnet(settings: dict[str, Any], tmp_path: Any) -> None:
    settings = {"magnet_coefficient": 0.5, "proximal_coefficient": 0.1, "epochs": 2, **settings}
    one, twin = made(**settings), made(seed=99, **settings)
    for seed in range(3):
        one.update([random_trajectory(one.policy, seed=seed)])
    checkpoints.save(tmp_path, "whole", one.policy, one, {})
    checkpoints.restore(twin.policy, twin, checkpoints.load(tmp_path))
    for seed in (5, 6):
        trajectory = random_trajectory(one.policy, seed=seed)
        assert one.update([trajectory]) == twin.update([trajectory])
    assert torch.equal(weights(one.magnet.policy), weights(twin.magnet.policy))
    fresh = made(**settings)
    twin.load_state(*fresh.state())
    assert twin.magnet is None


def test_learners_that_train_together_have_equal_magnets() -> None:
    settings = {"magnet_coefficient": 0.5, "magnet_every": 2, "proximal_coefficient": 0.2, "epochs": 2}
    one, learners, peers = made(**settings), [made(**settings), made(**settings)], InThreads(2)
    data = [random_trajectory(one.policy, steps=8, envs=envs, seed=envs) for envs in (2, 3, 5)]
    shares = [data[:1], data[1:]]

    def learn(rank: int) -> None:
        learners[rank].take_peers(peers)
        for _ in range(3):
            learners[rank].update(shares[rank])

    for _ in range(3):
        one.update(data)
    peers.run(learn)
    assert torch.equal(weights(learners[0].magnet.policy), weights(learners[1].magnet.policy))
    torch.testing.assert_close(weights(learners[0].magnet.policy), weights(one.magnet.policy), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(weights(learners[0].policy), weights(one.policy), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("burn_in", [0, 2])
@pytest.mark.parametrize("core", CORES, ids=lambda core: core["name"])
def test_a_magnet_with_a_memory_equals_the_policy_at_first(core: dict[str, Any], burn_in: int) -> None:
    settings = {"epochs": 1, "minibatch_size": 1000, "burn_in": burn_in, "magnet_coefficient": 1.0}
    algorithm = build_algorithm("ppo", {**settings, "proximal_coefficient": 1.0}, recurrent(core), 0)
    first = algorithm.update([played(algorithm.policy)]).metrics
    assert first["magnet_kl"] == pytest.approx(0, abs=1e-6)
    assert first["proximal_kl"] == pytest.approx(0, abs=1e-6)
    assert algorithm.update([played(algorithm.policy, seed=1)]).metrics["magnet_kl"] > 1e-8


def test_wrong_settings_of_a_magnet_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(magnet_coefficient=-1.0, magnet_every=0, proximal_coefficient=-0.1)
    assert len(caught.value.problems) == 3
    with pytest.raises(
        ConfigurationError, match=r"magnet_rate=0\.5 of ppo must be within 0 and 1, and 0 with magnet_every"
    ):
        made(magnet_rate=0.5, magnet_every=10)


# Close to plain gradient descent: no momentum, a large epsilon, a falling rate.
SELF_PLAY = {
    "learning_rate": {"name": "linear", "start": 0.05, "end": 0.0005, "steps": 100_000},
    "adam_beta1": 0.0, "adam_epsilon": 0.01, "epochs": 2, "minibatch_size": 512, "gamma": 1.0, "gae_lambda": 1.0,
    "normalize_advantage": False, "max_grad_norm": 1.0,
}  # fmt: skip
CONVERGING = {
    "mmd": {
        "entropy_coefficient": {"name": "inverse_square_root", "start": 1.0, "steps": 2000},
        "proximal_coefficient": 0.2,
    },
    "mmd-moving-magnet": {"magnet_coefficient": 0.5, "magnet_rate": 0.05, "proximal_coefficient": 0.1},
    "nashpg": {"magnet_coefficient": 0.5, "magnet_every": 10},
}


def last_exploitability(payoff: np.ndarray, settings: dict[str, Any], seed: int) -> float:
    policy = matrix_games.player(payoff, seed)
    algorithm = build_algorithm("ppo", {**SELF_PLAY, **settings}, policy, seed)
    matrix_games.learn(algorithm, payoff, 200, 256, seed)
    return matrix_games.exploitability(payoff, matrix_games.strategies(policy))


@pytest.mark.usefixtures("by_torch")  # the bounds hold for torch's draws
@pytest.mark.parametrize("payoff", [matrix_games.ROCK_PAPER_SCISSORS, matrix_games.BIASED], ids=["rps", "biased"])
class TestSelfPlay:
    @pytest.mark.parametrize("settings", CONVERGING.values(), ids=CONVERGING)
    def test_the_last_policy_is_near_an_equilibrium(self, payoff: np.ndarray, settings: dict[str, Any]) -> None:
        assert max(last_exploitability(payoff, settings, seed) for seed in (1, 2, 3)) < 0.1

    def test_without_a_regularizer_the_last_policy_is_far_from_an_equilibrium(self, payoff: np.ndarray) -> None:
        assert min(last_exploitability(payoff, {}, seed) for seed in (1, 2, 3)) > 0.3
