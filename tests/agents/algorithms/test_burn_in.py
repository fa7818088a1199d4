"""Burn-in: the first steps of an unroll only recompute its memory with the learner's weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from agents import build_algorithm, build_policy
from agents.algorithms.batches import Batch
from agents.algorithms.contract import provided
from agents.algorithms.peers import ALONE, cuts
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError
from warren.trees import map_tree

STEPS, SLOTS, BURN_IN = 9, 4, 4
CORES = {
    "lstm": {"name": "lstm", "size": 8},
    "gru": {"name": "gru", "size": 8},
    "transformer": {"name": "transformer", "size": 8, "memory": 6},
}
ONE_STEP = {"epochs": 1, "minibatch_size": 1000}  # one step of the optimizer, for algorithms with minibatches
ALGORITHMS = {"ppo": ONE_STEP, "appo": ONE_STEP, "impala": {}}


def recurrent(core, seed=1):
    return build_policy({"hidden_sizes": [8], "core": CORES[core]}, Box(-1, 1, (3,), np.float32), Discrete(3), seed)


def sampled(policy, seed=0, ended=None):
    """Return random steps with random memories; episodes end at random, or as `ended` says."""
    generator = np.random.default_rng(seed)
    shape = (STEPS, SLOTS)

    def normal(*shape):
        return generator.normal(size=shape).astype(np.float32)

    memory = {name: normal(SLOTS, *part) for name, part in policy.network.memory.items()}
    for name in memory:
        if name.endswith("count"):
            memory[name] = np.full(SLOTS, 3, np.float32)
    return Trajectory(
        observation=normal(*shape, 3),
        action=generator.integers(0, 3, shape),
        reward=normal(*shape),
        terminated=generator.random(shape) < 0.15 if ended is None else ended,
        truncated=np.zeros(shape, bool),
        extras={"log_prob": -1 + 0.1 * normal(*shape), "value": normal(*shape)},
        last={"observation": normal(SLOTS, 3), "value": normal(SLOTS)},
        cut={"value": np.zeros(shape, np.float32)},
        version=np.zeros(SLOTS, np.int64),
        episodes=np.zeros((0, 2), np.float32),
        memory=memory,
    )


def remembered(policy, trajectory, steps):
    """Return the memory of `policy` before step `steps`, computed slot by slot and reset after each episode."""
    after = []
    for slot in range(SLOTS):
        memory = {name: torch.from_numpy(part[slot : slot + 1].copy()) for name, part in trajectory.memory.items()}
        for step in range(steps):
            with torch.no_grad():
                leaves = policy.leaves(trajectory.observation[step, slot : slot + 1])
                _, memory = policy.network.step(leaves, memory)
            if trajectory.terminated[step, slot]:
                memory = policy.initial_memory(1)
        after.append(memory)
    return {name: torch.cat([memory[name] for memory in after]).numpy() for name in after[0]}


def without_head(trajectory, memory):
    """Return the steps after the burn-in as a trajectory that begins with `memory`."""
    of_steps = ("observation", "action", "reward", "terminated", "truncated", "extras", "cut")
    tails = {name: map_tree(lambda array: array[BURN_IN:], getattr(trajectory, name)) for name in of_steps}
    return replace(trajectory, **tails, memory=memory)


def ended_before(*steps):
    """Return ends of episodes: in every slot one ends just before each of these steps."""
    ended = np.zeros((STEPS, SLOTS), bool)
    ended[[step - 1 for step in steps]] = True
    return ended


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_update_equals_one_on_the_remaining_steps_with_recomputed_memory(name, core):
    weights = []
    for burn_in in (BURN_IN, 0):
        policy = recurrent(core)
        trajectories = [sampled(policy, seed) for seed in (1, 2)]
        if not burn_in:
            trajectories = [without_head(t, remembered(policy, t, BURN_IN)) for t in trajectories]
        algorithm = build_algorithm(name, {**ALGORITHMS[name], "burn_in": burn_in}, policy, seed=1)
        metrics = algorithm.update(trajectories).metrics
        weights.append((metrics, policy.state_dict(), algorithm.steps))
    (with_it, learned, steps), (without, expected, _) = weights
    assert with_it == pytest.approx(without, rel=1e-3, abs=1e-5)
    for part in expected:
        torch.testing.assert_close(learned[part], expected[part], rtol=1e-3, atol=1e-5)
    assert steps == 2 * STEPS * SLOTS  # schedules and total_steps count all environment steps


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(
    "begins", [(1,), (2, 3), (BURN_IN,), (BURN_IN + 2,)], ids=["first", "twice", "at its end", "after it"]
)
def test_an_episode_that_begins_during_burn_in_forgets_the_one_before(core, begins):
    policy = recurrent(core)
    trajectory = sampled(policy, ended=ended_before(*begins))
    batch = Batch(policy, [trajectory], burn_in=BURN_IN)
    expected = Batch(policy, [without_head(trajectory, remembered(policy, trajectory, BURN_IN))])
    if begins == (BURN_IN,):
        assert batch.begins[0].all()  # the memory of the head is not used
    torch.testing.assert_close(batch.unroll(policy)[1].log_prob, expected.unroll(policy)[1].log_prob)
    other = replace(trajectory, memory={name: part + 1 for name, part in trajectory.memory.items()})
    if begins[0] <= BURN_IN and core != "transformer":  # its `count` says how much of a memory is valid
        again = Batch(policy, [other], burn_in=BURN_IN).unroll(policy)[1]
        torch.testing.assert_close(again.log_prob, batch.unroll(policy)[1].log_prob)


@pytest.mark.parametrize("core", CORES)
def test_no_gradient_flows_through_the_burn_in(core):
    policy = recurrent(core)
    batch = Batch(policy, [sampled(policy, ended=np.zeros((STEPS, SLOTS), bool))], burn_in=BURN_IN)
    assert batch.head is not None
    for tensor in (batch.observation, batch.head.observation, *batch.memory.values()):
        tensor.requires_grad_()
    batch.unroll(policy)[1].log_prob.sum().backward()
    (minibatch,) = batch.minibatches(cuts(len(batch), len(batch), ALONE), torch.arange(SLOTS), {})
    minibatch.evaluate(policy).value.sum().backward()
    assert batch.observation.grad.abs().sum() > 0
    assert batch.head.observation.grad is None
    assert all(part.grad is None for part in batch.memory.values())


def test_each_minibatch_recomputes_its_memory_with_the_current_weights():
    policy = recurrent("lstm")
    batch = Batch(policy, [sampled(policy)], burn_in=BURN_IN)
    order = torch.tensor([2, 0, 3, 1])
    head, tail = batch.minibatches(cuts(SLOTS, 2, ALONE), order, {})
    before = tail.evaluate(policy).log_prob
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1)
    now = batch.unroll(policy)[1].log_prob
    torch.testing.assert_close(head.evaluate(policy).log_prob, now[:, [2, 0]])
    torch.testing.assert_close(tail.evaluate(policy).log_prob, now[:, [3, 1]])
    assert (tail.evaluate(policy).log_prob - before).abs().max() > 1e-3


def test_minibatches_count_the_steps_that_are_learned_from():
    policy = recurrent("gru")
    batch = Batch(policy, [sampled(policy)], burn_in=BURN_IN)
    assert batch.at_a_time(2 * (STEPS - BURN_IN)) == 2
    assert batch.column([np.zeros((STEPS, SLOTS), np.float32)]).shape == (STEPS - BURN_IN, SLOTS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_impossible_burn_in_is_refused_with_the_reason(name):
    policy = recurrent("lstm")
    needs = build_algorithm(name, {"burn_in": 8}, policy, 1).needs
    fields = provided(policy.spec())
    assert needs.problems(name, fields, "streaming", 8, unroll_length=9) == []
    (too_long,) = needs.problems(name, fields, "streaming", 8, unroll_length=8)
    assert "burn_in: 8 steps leave none to learn from of an unroll of unroll_length 8" in too_long
    (no_memory,) = needs.problems(name, fields - {"memory"}, "streaming", 8, unroll_length=9)
    assert "burn_in: 8 steps are to bring a memory up to date, and this network has none" in no_memory
    with pytest.raises(ValueError, match="leave none to learn from"):
        Batch(policy, [sampled(policy)], burn_in=STEPS)
    with pytest.raises(ConfigurationError, match=r"burn_in=-1 of .* at least 0"):
        build_algorithm(name, {"burn_in": -1}, policy, 1)


def test_burn_in_cannot_change_during_a_run():
    algorithm = build_algorithm("ppo", {"burn_in": 2}, recurrent("gru"), 1)
    algorithm.adjust({"burn_in": 2, "gamma": 0.9})
    with pytest.raises(ConfigurationError, match="burn_in=3 of ppo"):
        algorithm.adjust({"burn_in": 3})


def test_algorithms_of_fresh_data_have_no_burn_in():
    with pytest.raises(ConfigurationError, match="burn_in"):
        build_algorithm("a2c", {"burn_in": 2}, recurrent("gru"), 1)
