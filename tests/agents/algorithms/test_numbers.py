"""A loss or a gradient that is not finite changes no weight, and the error names its source."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import ON_POLICY, random_trajectory

from agents import build_algorithm, build_policy
from agents.algorithms.late_checks import MOST, LateChecks
from warren.errors import NotFinite

SMALL = {"ppo": {"minibatch_size": 16}, "appo": {"minibatch_size": 16}}
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
# On a GPU the checks wait for the end of an update; "late" does the same on a CPU.
WAYS = pytest.mark.parametrize("way", ["at once", "late", pytest.param("cuda", marks=NO_GPU)])


def make(name, way="at once", **settings):
    policy = build_policy({"hidden_sizes": [8]}, Box(-1, 1, (4,), np.float32), Discrete(3), 1)
    algorithm = build_algorithm(
        name, {**SMALL.get(name, {}), **settings}, policy.to("cuda" if way == "cuda" else "cpu"), 1
    )
    if way == "late":
        algorithm.descent.late = LateChecks(algorithm.descent.parameters.gradient)
    assert (algorithm.descent.late is None) == (way == "at once")
    return algorithm


def everything(algorithm):
    tensors, _ = algorithm.state()
    found = {**algorithm.policy.state_dict(), **{key: tensor for key, tensor in tensors.items() if key != "generator"}}
    return {key: tensor.clone() for key, tensor in found.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[key]) for key, tensor in one.items())


@WAYS
@pytest.mark.parametrize("name", ON_POLICY)
@pytest.mark.parametrize("bad", [np.nan, 1e30])  # 1e30 is finite, its square is not
def test_weights_stay_and_the_error_names_the_term_and_its_inputs(name, bad, way):
    algorithm = make(name, way)
    algorithm.update([random_trajectory(algorithm.policy, seed=1)])
    before = everything(algorithm)
    trajectory = random_trajectory(algorithm.policy, seed=2)
    trajectory.reward[-1] = bad  # returns spread it over the unroll, so the first minibatch has it
    with pytest.raises(NotFinite) as error:
        algorithm.update([trajectory])
    assert same(before, everything(algorithm))
    said = str(error.value)
    assert said.startswith(f"{name}, minibatch 1 of the update after 64 environment steps: ")
    assert "value_loss" in said and ("nan" in said or "inf" in said)
    assert ("reward" if name in ("a2c", "impala") else "target" if np.isnan(bad) else "") in said
    assert "env.reward_scale" in said


@WAYS
def test_a_failed_minibatch_keeps_the_steps_before_it(way):
    algorithm, steps = make("ppo", way), []
    step = algorithm.descent.optimizer.step

    def counted(skipped=None):
        step(skipped)
        if not skipped:
            steps.append(everything(algorithm))

    algorithm.descent.optimizer.step = counted
    trajectory = random_trajectory(algorithm.policy, seed=2)
    trajectory.extras["log_prob"][3, 1] = -1e4  # an infinite ratio; its advantage is negative, so it has a gradient
    trajectory.reward[3, 1] = -50.0
    with pytest.raises(
        NotFinite, match=r"minibatch \d of the update after 0 environment steps: policy_loss .*ratio is inf"
    ):
        algorithm.update([trajectory])
    assert all(torch.isfinite(tensor).all() for tensor in everything(algorithm).values())
    assert steps and same(everything(algorithm), steps[-1])


@WAYS
def test_nan_weights_are_named(way):
    algorithm = make("ppo", way)
    trajectory = random_trajectory(algorithm.policy, seed=2)
    name, weight = next(iter(algorithm.policy.network.named_parameters()))
    with torch.no_grad():
        weight[0] = torch.nan
    with pytest.raises(NotFinite, match=f"parameter {name} is nan at {weight[0].numel()} of {weight.numel()}"):
        algorithm.update([trajectory])


def test_a_nan_gradient_of_a_finite_loss_is_named():
    algorithm = make("ppo")
    weight = next(iter(algorithm.policy.network.parameters()))
    with pytest.raises(
        NotFinite, match=r"the gradient's norm is not finite, though the loss is; .*gradient of .* is nan"
    ):
        algorithm.descend(torch.sqrt((weight * 0).sum()) * 0)


@pytest.mark.parametrize("name", ON_POLICY)
def test_late_checks_change_no_bit_of_an_update(name):
    outcomes = []
    for way in ("at once", "late"):
        algorithm = make(name, way)
        metrics = [algorithm.update([random_trajectory(algorithm.policy, seed=seed)]).metrics for seed in range(4)]
        outcomes.append((everything(algorithm), metrics))
    (weights, metrics), (again, same_metrics) = outcomes
    assert same(weights, again) and metrics == same_metrics


def raised(way, bad):
    """Return (error, state, where the gradient is nan) of an update whose minibatches `bad` have nan gradients."""
    algorithm = make("a2c", way)
    weight = next(iter(algorithm.policy.network.parameters()))
    with pytest.raises(NotFinite) as error:
        for minibatch in range(1, 6):
            # The derivative of the root of 0 is infinite; times 0 it is nan.
            loss = (weight * 0).square().sum().sqrt() if minibatch in bad else weight[0].square().sum() * minibatch
            algorithm.descend(loss, {"loss": loss}, {"weight": weight}, minibatch)
        algorithm.descent.late.look()
    return str(error.value), everything(algorithm), algorithm.descent.parameters.gradient.isnan()


@pytest.mark.parametrize("bad", [{1}, {2, 3}, {3, 5}, {5}])
def test_the_error_names_the_first_failed_minibatch_and_later_ones_are_skipped(bad):
    (said, weights, gradient), (late, same_weights, same_gradient) = (raised(way, bad) for way in ("at once", "late"))
    assert said == late and f"minibatch {min(bad)} of" in said and "gradient of" in said
    assert all(torch.equal(tensor, same_weights[name]) for name, tensor in weights.items())
    assert torch.equal(gradient, same_gradient) and gradient.any()


def test_late_checks_wait_for_a_bounded_number_of_minibatches():
    algorithm = make("a2c", "late")
    weight = next(iter(algorithm.policy.network.parameters()))
    for minibatch in range(1, MOST + 1):
        algorithm.descend(weight.sum() * torch.nan, minibatch=minibatch)
    with pytest.raises(NotFinite, match="minibatch 1 of the update"):
        algorithm.descend(weight.sum(), minibatch=MOST + 1)


def test_a_failed_update_does_not_affect_the_next():
    algorithm = make("ppo", "late")
    trajectory = random_trajectory(algorithm.policy, seed=2)
    before, good = everything(algorithm), trajectory.reward.copy()
    trajectory.reward[:] = np.nan
    with pytest.raises(NotFinite):
        algorithm.update([trajectory])
    trajectory.reward[:] = good
    algorithm.update([trajectory])
    assert not any(torch.equal(tensor, before[name]) for name, tensor in algorithm.policy.state_dict().items())
