"""Random network distillation: the bonus beside a plain computation, its state, several learners, refusals."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.experience import ON_POLICY, random_trajectory
from test_peers import InThreads
from torch import nn

from agents import Trajectory, build_algorithm, build_policy, checkpoints
from agents.algorithms.batch import Batch
from agents.algorithms.peers import InFull
from agents.algorithms.rnd import RandomDistillation, RNDConfig
from agents.algorithms.together import update_together
from warren.errors import CheckpointError, ConfigurationError

SPACES = Box(-1, 1, (4,), np.float32), Discrete(3)
FEW = {name: {"epochs": 2, "minibatch_size": 40} for name in ("ppo", "appo")}
GAMMA, COEFFICIENT = 0.9, 0.5


def made(name: str = "ppo", seed: int = 3, **settings: Any) -> Any:
    policy = build_policy({"hidden_sizes": [16]}, *SPACES, 3)
    given = {"learning_rate": 0.01, "rnd_coefficient": 1.0, "rnd_learning_rate": 0.01, **FEW.get(name, {}), **settings}
    return build_algorithm(name, given, policy, seed)


def rnd_state(algorithm: Any) -> dict[str, torch.Tensor]:
    tensors, _ = algorithm.state()
    return {name: tensor.clone() for name, tensor in tensors.items() if name.startswith("rnd.")}


class Plain:
    """The bonus as the paper has it, in numpy; the predictor by torch's own layers and Adam."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        self.target, self.predictor = (self._layers(state, name) for name in ("target", "predictor"))
        self.adam = torch.optim.Adam(self.predictor.parameters(), lr=1e-3, eps=1e-5)
        self.seen, self.sums = np.zeros((0, 4)), np.zeros(0)

    @staticmethod
    def _layers(state: dict[str, torch.Tensor], name: str) -> nn.Sequential:
        prefix = f"rnd.{name}.policy_trunk.layers."
        weights = [tensor for key, tensor in state.items() if key.startswith(prefix)]
        layers: list[nn.Module] = []
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data, layer.bias.data = weight.clone(), bias.clone()
            layers += [layer, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def _error(self, observation: np.ndarray) -> torch.Tensor:
        normal = (observation - self.seen.mean(0)) / np.sqrt(self.seen.var(0) + 1e-8)
        x = torch.from_numpy(np.clip(normal, -5, 5)).float()
        error: torch.Tensor = (self.predictor(x) - self.target(x).detach()).square().mean(-1)
        return error

    def rewards(self, trajectory: Trajectory, order: torch.Tensor, size: int) -> np.ndarray:
        steps, slots = trajectory.reward.shape
        self.seen = np.concatenate([self.seen, trajectory.observation.reshape(-1, 4).astype(np.float64)])
        bonus = np.zeros((steps, slots))
        for step in range(steps):
            for slot in range(slots):
                if not (trajectory.terminated | trajectory.truncated)[step, slot]:
                    last = step + 1 == steps
                    after = trajectory.last["observation"][slot] if last else trajectory.observation[step + 1, slot]
                    bonus[step, slot] = self._error(after[None]).item()
        sums = []
        for slot in range(slots):
            total = 0.0
            for step in range(steps):
                total = bonus[step, slot] + GAMMA * total
                sums.append(total)
                if (trajectory.terminated | trajectory.truncated)[step, slot]:
                    total = 0.0
        self.sums = np.concatenate([self.sums, sums])
        rows = trajectory.observation.reshape(-1, 4)[order.numpy()]
        for part in np.array_split(rows, -(-len(rows) // size)):
            loss = self._error(part).mean()
            self.adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.adam.step()
        scaled = np.clip(bonus / np.sqrt(self.sums.var() + 1e-8), -10, 10)
        return np.asarray(trajectory.reward + COEFFICIENT * scaled)


def test_bonus_and_normalisation_equal_a_plain_computation() -> None:
    policy = build_policy({"hidden_sizes": [16]}, *SPACES, 3)
    config = RNDConfig(rnd_learning_rate=1e-3, rnd_minibatch_size=30, rnd_features=5)
    found = RandomDistillation(policy, config, torch.Generator().manual_seed(1))
    plain = Plain(found.state())
    generator, theirs = (torch.Generator().manual_seed(2) for _ in range(2))
    for seed in range(4):
        trajectory = random_trajectory(policy, steps=15, envs=4, seed=seed, ending=0.3)
        trajectory.observation[0, 0] = 100.0  # far beyond the clip
        (rewarded,) = found.rewarded([trajectory], COEFFICIENT, GAMMA, config, generator)
        expected = plain.rewards(trajectory, torch.randperm(60, generator=theirs), 30)
        assert rewarded.reward == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert rewarded.reward.dtype == np.float32
        ended = trajectory.terminated | trajectory.truncated
        assert (rewarded.reward == trajectory.reward)[ended].all()
    assert found.metrics["rnd_bonus"] == pytest.approx(
        ((rewarded.reward - trajectory.reward) / COEFFICIENT).mean(), rel=1e-3
    )
    assert 0 < found.metrics["rnd_loss"] < 1


def test_what_was_seen_often_has_a_smaller_bonus_than_something_new() -> None:
    policy = build_policy({"hidden_sizes": [16]}, *SPACES, 3)
    config = RNDConfig(rnd_learning_rate=1e-3)
    found = RandomDistillation(policy, config, torch.Generator().manual_seed(1))
    trajectory = replace(random_trajectory(policy, steps=32, envs=4, ending=0.0), reward=np.zeros((32, 4), np.float32))
    for _ in range(200):
        found.rewarded([trajectory], 1.0, GAMMA, config, torch.Generator())
    mixed = deepcopy(trajectory)
    mixed.observation[11::10] = np.array([3.0, -3.0, 3.0, -3.0])
    (rewarded,) = found.rewarded([mixed], 1.0, GAMMA, config, torch.Generator())
    new, old = rewarded.reward[10::10], np.delete(rewarded.reward, slice(10, None, 10), 0)
    assert new.mean() > 10 * old.mean() > 0


IMAGES = Box(0, 255, (12, 12, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "network"),
    [
        (IMAGES, {"name": "nature_cnn", "kernels": [3], "strides": [2], "filters": [4]}),
        (Dict({"camera": IMAGES, "hand/left": Box(-1, 1, (3,), np.float32), "key": Discrete(4)}), {}),
        (Discrete(5), {}),
    ],
    ids=["image", "dict", "discrete"],
)
def test_any_observation_has_a_bonus(space: Any, network: dict[str, Any]) -> None:
    acting = {"name": "impala_resnet", "width": 1} if space is IMAGES else {}
    policy = build_policy(acting, space, Discrete(3), 1)
    algorithm: Any = build_algorithm("a2c", {"rnd_coefficient": 1.0, "rnd_network": network}, policy, 1)
    plain = build_policy({}, *SPACES, 1)
    space.seed(1)

    def drawn(*shape: int) -> Any:
        samples = [space.sample() for _ in range(int(np.prod(shape)))]
        if not isinstance(space, Dict):
            return np.stack(samples).reshape(shape + space.shape)
        return {key: np.stack([one[key] for one in samples]).reshape(shape + (space[key].shape or ())) for key in space}

    trajectory = random_trajectory(plain, steps=5, envs=4)
    last = {**trajectory.last, "observation": drawn(4)}
    trajectory = replace(trajectory, observation=drawn(5, 4), last=last)
    before = trajectory.reward.copy()
    (rewarded,) = algorithm.scaled([trajectory])
    goes_on = ~(trajectory.terminated | trajectory.truncated)
    assert (rewarded.reward > before)[goes_on].all() and (rewarded.reward == before)[~goes_on].all()
    assert (trajectory.reward == before).all()


def test_steps_without_a_decision_have_no_bonus_and_teach_nothing() -> None:
    algorithm, other = made(), made()
    trajectory = random_trajectory(algorithm.policy, ending=0.0)
    valid = np.ones(trajectory.reward.shape, bool)
    valid[5:, 1] = False
    trajectory.terminated |= ~valid
    trajectory.terminated[4, 1] = True
    given = replace(trajectory, valid=valid, group=np.arange(4))
    (rewarded,) = algorithm.scaled([given])
    assert (rewarded.reward == given.reward)[~valid].all()
    elsewhere = deepcopy(given)
    elsewhere.observation[5:, 1] = 7.0
    other.scaled([elsewhere])
    for name, tensor in rnd_state(algorithm).items():
        assert torch.equal(tensor, rnd_state(other)[name]), name


@pytest.mark.parametrize("name", ON_POLICY)
def test_every_on_policy_update_has_the_bonus_and_tells_of_it(name: str) -> None:
    algorithm, without = made(name), made(name, rnd_coefficient=0.0)
    trajectory = random_trajectory(algorithm.policy)
    (update,), (plain,) = update_together([algorithm], [Batch([trajectory])]), [without.update([trajectory])]
    assert update.metrics.keys() - plain.metrics.keys() == {"rnd_bonus", "rnd_loss"}
    assert update.metrics["rnd_bonus"] > 0
    assert update.metrics["value_loss"] != plain.metrics["value_loss"]
    assert algorithm.policy.state_dict().keys() == without.policy.state_dict().keys()  # what is published


def test_a_coefficient_that_is_scheduled_or_adjusted_begins_and_ends_the_bonus() -> None:
    algorithm = made(rnd_coefficient=0.0)
    trajectory = random_trajectory(algorithm.policy)
    assert algorithm.distillation is None and not rnd_state(algorithm)
    algorithm.adjust({"rnd_coefficient": {"name": "linear", "start": 1.0, "end": 0.0, "steps": 64}})
    (rewarded,) = algorithm.scaled([trajectory])
    assert (rewarded.reward > trajectory.reward).any()
    assert "rnd_bonus" in algorithm.update([trajectory]).metrics
    algorithm.begin_at(64)
    assert algorithm.scaled([trajectory])[0] is trajectory
    assert "rnd_bonus" not in algorithm.update([trajectory]).metrics
    with pytest.raises(ConfigurationError, match="rnd_features=9 of ppo must stay 64"):
        algorithm.adjust({"rnd_features": 9})


@pytest.mark.parametrize("name", ON_POLICY)
def test_training_resumes_exactly_from_a_checkpoint_with_a_bonus(name: str, tmp_path: Any) -> None:
    settings = {"scale_rewards": True, "rnd_minibatch_size": 20}
    one, twin = made(name, **settings), made(name, seed=99, **settings)
    for seed in range(3):
        one.update([random_trajectory(one.policy, seed=seed)])
    checkpoints.save(tmp_path, "whole", one.policy, one, {})
    checkpoints.restore(twin.policy, twin, checkpoints.load(tmp_path))
    for seed in (5, 6):
        trajectory = random_trajectory(one.policy, seed=seed)
        assert one.update([trajectory]) == twin.update([trajectory])
    ours, theirs = rnd_state(one), rnd_state(twin)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_a_checkpoint_of_other_networks_is_refused_and_one_without_is_taken() -> None:
    one = made()
    one.update([random_trajectory(one.policy)])
    with pytest.raises(CheckpointError, match="resume with the rnd_network and rnd_features that it began with"):
        made(rnd_features=7).load_state(*one.state())
    with pytest.raises(CheckpointError, match="networks of random distillation are others"):
        made(rnd_network={"hidden_sizes": [8]}).load_state(*one.state())
    without = made(rnd_coefficient=0.0)
    one.load_state(*without.state())
    without.load_state(*one.state())  # a bonus that is adjusted again continues
    assert rnd_state(without).keys() == rnd_state(one).keys()


@pytest.mark.parametrize("name", ON_POLICY)
def test_learners_that_train_together_have_equal_predictors(name: str) -> None:
    settings = {**({"minibatch_size": 1_000_000} if name in FEW else {}), "rnd_minibatch_size": 1_000_000}
    one, learners, peers = made(name, **settings), [made(name, **settings), made(name, **settings)], InThreads(2)
    data = [random_trajectory(one.policy, steps=8, envs=envs, seed=envs) for envs in (2, 3, 5)]
    shares = [data[:1], data[1:]]

    def learn(rank: int) -> None:
        learners[rank].take_peers(peers)
        for _ in range(3):
            learners[rank].update(shares[rank])

    for _ in range(3):
        one.update(data)
    peers.run(learn)
    first, second = map(rnd_state, learners)
    for key, expected in rnd_state(one).items():
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], expected, rtol=1e-3, atol=1e-5, msg=key)
    weights = [torch.nn.utils.parameters_to_vector(one.policy.parameters()) for one in (*learners, one)]
    assert torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[0], weights[2], rtol=1e-3, atol=1e-5)


def test_a_gradient_in_full_is_the_weighted_mean_without_compression() -> None:
    peers = InThreads(2)
    peers.average = None  # type: ignore[method-assign, assignment]  # the compression's
    gradients = [torch.tensor([1.0, 4.0]), torch.tensor([4.0, 1.0])]
    losses: dict[int, torch.Tensor] = {}

    def average(rank: int) -> None:
        losses[rank] = InFull(peers).average(gradients[rank], torch.tensor(3.0 * rank), 1 + rank)

    peers.run(average)
    for rank in range(2):
        torch.testing.assert_close(gradients[rank], torch.tensor([3.0, 2.0]))
        assert losses[rank].item() == pytest.approx(2.0)


def test_wrong_settings_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(rnd_coefficient=-1.0, rnd_learning_rate=0.0, rnd_minibatch_size=0, rnd_features=0)
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigurationError, match="setting of dqn 'rnd_coefficient' does not exist"):
        build_algorithm("dqn", {"rnd_coefficient": 1.0}, build_policy({}, *SPACES, 1), 1)
    with pytest.raises(ConfigurationError, match=r"rnd_coefficient=1\.0 of bc must be 0: nothing is learned from"):
        build_algorithm("bc", {"rnd_coefficient": 1.0}, build_policy({}, *SPACES, 1), 1)
    with pytest.raises(ConfigurationError, match="rnd_network of ppo: it has no memory here; leave out its core"):
        made(rnd_network={"core": {"name": "lstm", "size": 4}})
    channels = build_policy({}, *SPACES, 1, {"win": 1.0, "style": 0.1})
    with pytest.raises(ConfigurationError, match=r"rnd_coefficient=1\.0 of ppo: .* env\.channel_values there are 2"):
        build_algorithm("ppo", {"rnd_coefficient": 1.0}, channels, 1)
