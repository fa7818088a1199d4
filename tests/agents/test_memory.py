"""Cores with a memory: an unroll equals its single steps, and nothing crosses an episode's beginning."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from agents import build_policy
from agents.networks import CORES, recurrent
from agents.networks.core import build_core
from agents.policies import SlotMemory
from warren.errors import ConfigurationError, UnknownName

SETTINGS = {
    "lstm": {"name": "lstm", "size": 6},
    "gru": {"name": "gru", "size": 6},
    "transformer": {"name": "transformer", "size": 8, "heads": 2, "layers": 2, "memory": 4},
}
INPUTS, SLOTS = 3, 4
cores = pytest.mark.parametrize("name", SETTINGS)


def make(name):
    generator = torch.Generator().manual_seed(1)
    core = build_core(SETTINGS[name], INPUTS, generator)
    for parameter in core.parameters():  # so that biases matter too
        parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return core.double()  # so that no difference is due to rounding


def begun(core, slots=SLOTS):
    return {name: torch.zeros(slots, *shape, dtype=torch.float64) for name, shape in core.memory.items()}


def random(steps, share=0.2, seed=0):
    """Return (features [T, N, inputs], begins [T, N])."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(steps, SLOTS, INPUTS, generator=generator, dtype=torch.float64)
    return features, torch.rand(steps, SLOTS, generator=generator) < share


def stepped(core, features, memory, begins):
    """Unroll step by step; zero the memory where an episode begins, as samplers do."""
    outputs = []
    for x, gone in zip(features, begins, strict=True):
        memory = {name: part.clone() for name, part in memory.items()}
        for part in memory.values():
            part[gone] = 0
        output, memory = core.step(x, memory)
        outputs.append(output)
    return torch.stack(outputs), memory


def test_every_core_is_tested_here():
    assert set(SETTINGS) == set(CORES)


@cores
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 3, 17])
def test_an_unroll_equals_the_same_single_steps(name, share, steps):
    core = make(name)
    with torch.no_grad():
        _, memory = stepped(core, *random(7, 0.2, seed=1)[:1], begun(core), random(7, 0.2, seed=1)[1])
        features, begins = random(steps, share)
        expected, memory_after = stepped(core, features, memory, begins)
        outputs, after = core.unroll(features, memory, begins)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)
    assert set(after) == set(core.memory)
    for part in core.memory:
        torch.testing.assert_close(after[part], memory_after[part], rtol=0, atol=1e-6)


@cores
@pytest.mark.parametrize("share", [0.05, 0.6])  # few ends: stretches in sequence; many: side by side
def test_an_unroll_has_the_gradients_of_the_same_single_steps(name, share):
    core = make(name)
    features, begins = random(32, share)
    memory = begun(core)
    found = []
    for outputs, after in (core.unroll(features, memory, begins), stepped(core, features, memory, begins)):
        core.zero_grad()
        (outputs.square().sum() + sum(part.sum() for part in after.values() if part.requires_grad)).backward()
        found.append([parameter.grad.clone() for parameter in core.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def ends(pattern, steps=48, seed=0):
    """Return the steps at which episodes begin, bool [T, N]."""
    generator = np.random.default_rng(seed)
    found = generator.random((steps, SLOTS)) < {"none": 0.0, "random": 0.15, "bursts": 0.02, "always": 1.0}[pattern]
    if pattern == "bursts":
        for start in generator.integers(0, steps - 8, 3):
            found[start : start + 8, generator.integers(SLOTS)] = True
    return torch.from_numpy(found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pattern", ["none", "random", "bursts", "always"])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_both_forms_of_an_unroll_give_the_same_outputs_and_gradients(monkeypatch, name, pattern, seed):
    core, (features, _), begins = make(name), random(48, seed=seed), ends(pattern, seed=seed)
    memory = {part: torch.rand_like(tensor) for part, tensor in begun(core).items()}
    found = []
    for side_by_side in (True, False):
        monkeypatch.setattr(recurrent, "FEW", -1)
        monkeypatch.setattr(core, "_is_faster_side_by_side", lambda *_, form=side_by_side: form)
        core.zero_grad()
        outputs, after = core.unroll(features.requires_grad_(), memory, begins)
        (outputs.square().sum() + sum(part.sum() for part in after.values())).backward()
        gradients = [features.grad.clone(), *(parameter.grad.clone() for parameter in core.parameters())]
        features.grad = None
        found.append([outputs.detach(), *(part.detach() for part in after.values()), *gradients])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_stretches_are_unrolled_side_by_side_where_that_is_faster():
    lstm, gru = make("lstm"), make("gru")
    few, many = torch.zeros(128, SLOTS, dtype=torch.bool), torch.zeros(128, SLOTS, dtype=torch.bool)
    few[::20, 0] = many[::3] = True
    assert not lstm._is_faster_side_by_side(few, 6, False) and lstm._is_faster_side_by_side(many, 42, False)
    assert not gru._is_faster_side_by_side(few, 6, False) and gru._is_faster_side_by_side(many, 42, False)
    spread = torch.zeros(128, SLOTS, dtype=torch.bool)
    spread[4:68:4, 0] = True  # short episodes in one slot only: faster side by side for an LSTM, not for a GRU
    assert lstm._is_faster_side_by_side(spread, 16, False) and not gru._is_faster_side_by_side(spread, 16, False)


@cores
def test_two_consecutive_unrolls_equal_one(name):
    core = make(name)
    features, begins = random(15)
    with torch.no_grad():
        whole, after = core.unroll(features, begun(core), begins)
        first, between = core.unroll(features[:6], begun(core), begins[:6])
        second, after_both = core.unroll(features[6:], between, begins[6:])
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=1e-6)
    for part in core.memory:
        torch.testing.assert_close(after_both[part], after[part], rtol=0, atol=1e-6)


@cores
def test_gradients_flow_back_to_an_episodes_beginning_and_never_past_it(name):
    core = make(name)
    features, begins = random(6, share=0.0)
    begins[3, 0] = True
    features.requires_grad_()
    memory = {part: torch.rand_like(tensor) for part, tensor in begun(core).items()}
    if "count" in memory:
        memory["count"] = torch.full((SLOTS,), 4.0, dtype=torch.float64)
    for part in memory.values():
        part.requires_grad_()
    outputs, _ = core.unroll(features, memory, begins)
    outputs[5].sum().backward()
    assert not features.grad[:3, 0].any(), "a gradient crossed the beginning of slot 0's second episode"
    assert features.grad[3:, 0].abs().sum(-1).all()
    assert features.grad[1:, 1].abs().sum(-1).all(), "slot 1's episode continues"
    for part in memory.values():
        assert part.grad is None or not part.grad[0].any()


@cores
def test_steps_before_an_episode_do_not_affect_it(name):
    core = make(name)
    features, begins = random(8, share=0.0)
    begins[4] = True
    other = features.clone()
    other[:4] += 100.0
    with torch.no_grad():
        one, _ = core.unroll(features, begun(core), begins)
        two, _ = core.unroll(other, begun(core), begins)
    assert torch.equal(one[4:], two[4:])
    assert not torch.allclose(one[:4], two[:4])


@pytest.mark.parametrize("steps", [4, 12])
def test_a_transformer_sees_as_many_steps_as_its_layers_remember_and_no_more(steps):
    core = make("transformer")
    sight = 2 * 4  # layers x memory
    features, begins = random(steps + 1, share=0.0)
    features.requires_grad_()
    outputs, _ = core.unroll(features, begun(core), begins)
    outputs[-1].sum().backward()
    seen = features.grad.abs().sum((1, 2)) > 0
    assert seen.tolist() == [steps - t <= sight for t in range(steps + 1)]


def test_a_transformer_depends_on_the_age_of_steps_and_not_on_their_position():
    core = make("transformer")
    features, _ = random(3, share=0.0)
    padded = torch.cat([random(5)[0], features])
    begins = torch.zeros(8, SLOTS, dtype=torch.bool)
    begins[5] = True
    with torch.no_grad():
        late, _ = core.unroll(padded, begun(core), begins)
        early, _ = core.unroll(features, begun(core), begins[:3])
        swapped, _ = core.unroll(features[[1, 0, 2]], begun(core), begins[:3])
    torch.testing.assert_close(late[5:], early, rtol=0, atol=1e-6)
    assert not torch.allclose(swapped[2], early[2], atol=1e-4)


OBSERVATIONS = Dict({"view": Box(-1, 1, (3,), np.float32), "kind": Discrete(4)})


def policy_of(name, shared):
    config = {"name": "mlp", "hidden_sizes": [5], "shared": shared, "core": SETTINGS[name], "policy_gain": 1.0}
    return build_policy(config, OBSERVATIONS, Discrete(3), seed=2)


@cores
@pytest.mark.parametrize("shared", [True, False])
def test_an_unroll_of_a_policy_equals_its_single_steps(name, shared):
    policy, generator = policy_of(name, shared), np.random.default_rng(0)
    steps = 9
    view = generator.normal(size=(steps, SLOTS, 3)).astype(np.float32)
    kind = generator.integers(0, 4, (steps, SLOTS))
    begins = generator.random((steps, SLOTS)) < 0.3
    memory = policy.initial_memory(SLOTS)
    for _ in range(2):  # the second unroll continues from the end of the first
        start, acted = memory, []
        for t in range(steps):
            memory = policy.begin(memory, begins[t])
            acted.append(policy.step({"view": view[t], "kind": kind[t]}, memory))
            memory = acted[-1].memory
        evaluated, after = policy.unroll(
            {"view": torch.from_numpy(view), "kind": torch.from_numpy(kind)},
            start,
            torch.from_numpy(begins),
            torch.from_numpy(np.stack([one.action for one in acted])),
        )
        for name_, found in (("log_prob", evaluated.log_prob), ("value", evaluated.value)):
            expected = np.stack([one.extras[name_] for one in acted])
            np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-5)
        for part, tensor in memory.items():
            torch.testing.assert_close(after[part].detach(), tensor.clone(), rtol=0, atol=1e-5)
    (evaluated.log_prob.sum() + evaluated.value.sum()).backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


@pytest.mark.parametrize("shared", [True, False])
def test_a_step_without_values_acts_the_same(shared):
    policy, observation = policy_of("gru", shared), {"view": np.ones((2, 3), np.float32), "kind": np.array([0, 3])}
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    whole = policy.step(observation, policy.initial_memory(2), generator=one)
    alone = policy.step(observation, None, generator=other, value=False)
    np.testing.assert_array_equal(whole.action, alone.action)
    np.testing.assert_array_equal(policy.value(observation), whole.extras["value"])
    again = [policy.step(observation, acted.memory, "greedy").extras["log_prob"] for acted in (whole, alone)]
    np.testing.assert_array_equal(*again)


def test_slots_that_step_at_different_times_keep_their_own_memories():
    policy = policy_of("lstm", True)
    observation = {"view": np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32), "kind": np.arange(3)}
    slots, memory = SlotMemory(policy.initial_memory(3)), policy.initial_memory(3)
    for rows in ([0, 2], [1], [0, 1, 2], [2, 1]):
        rows = np.array(rows)
        part = {name: leaf[rows] for name, leaf in observation.items()}
        slots.keep(rows, policy.step(part, slots.of(rows)).memory)
    for rows in ([0, 1, 2], [0, 1, 2], [1, 2]):  # each slot steps as often as above
        stepped = policy.step(observation, memory).memory
        memory = (
            {name: torch.cat([stepped[name][rows], memory[name][:0]]) for name in memory}
            if len(rows) == 3
            else {
                name: torch.where(torch.tensor([False, True, True])[:, None], stepped[name], memory[name])
                for name in memory
            }
        )
    for name, part in slots.of(np.arange(3)).items():
        torch.testing.assert_close(part, memory[name], rtol=0, atol=1e-6)
    slots.begin(np.array([1]))
    assert [bool(part.any()) for part in slots.of(np.arange(3))["h"]] == [True, False, True]
    slots.begin()
    assert not slots.of(np.arange(3))["c"].any()


def test_a_policy_with_a_memory_is_not_evaluated_on_shuffled_steps():
    policy = policy_of("gru", True)
    with pytest.raises(ConfigurationError, match="a network with a memory is trained on unrolls"):
        policy.evaluate({"view": torch.zeros(2, 3), "kind": torch.zeros(2)}, torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("core", "message"),
    [
        ({"name": "lstn"}, r"core 'lstn' does not exist; did you mean lstm\?"),
        ({"size": 4}, "core 'None' does not exist; known: gru, lstm, transformer"),
        ({"name": "lstm", "size": 0}, "size=0 of a recurrent core must be at least 1"),
        ({"name": "gru", "sise": 8}, r"setting of core 'gru' 'sise' does not exist; did you mean size\?"),
        (
            {"name": "transformer", "size": 10, "heads": 4},
            r"size=10 of core 'transformer' must be a multiple of .* \(8\)",
        ),
        ({"name": "transformer", "memory": 0}, "memory=0 of core 'transformer' must be at least 1"),
    ],
)
def test_an_invalid_core_is_refused_with_the_reason(core, message):
    with pytest.raises(ConfigurationError, match=message):
        build_policy({"core": core}, OBSERVATIONS, Discrete(2), seed=1)


def test_an_unknown_core_is_an_unknown_name():
    with pytest.raises(UnknownName):
        build_policy({"core": {"name": "rnn"}}, OBSERVATIONS, Discrete(2), seed=1)
