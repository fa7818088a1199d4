"""R2D2: updates against a plain implementation, rescaled values, declared needs."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.drawn_batches import drawn_batch
from support.plain_off_policy import PlainR2D2

from agents import build_algorithm, build_policy
from agents.operators.rescaling import rescaled, unscaled
from warren.errors import ConfigurationError

SETTINGS = {"burn_in": 3, "learned": 4, "n_steps": 2, "gamma": 0.9, "learning_rate": 0.01, "adam_epsilon": 1e-3}


def made(seed=1, core="gru", **settings):
    network = {"hidden_sizes": [8], "policy_gain": 1.0, "value": False, "discrete_actions": {"greedy": True}}
    if core:
        network["core"] = {"name": core, "size": 6}
    policy = build_policy(network, Box(-3, 3, (4,), np.float32), Discrete(3), seed)
    return build_algorithm("r2d2", {**SETTINGS, **settings}, policy, seed)


def sequences(algorithm, seed, **more):
    batch = drawn_batch(algorithm.policy, length=9, slots=8, seed=seed, weighted=True, ending=0.15, **more)
    generator = np.random.default_rng(seed)
    for name, part in batch[0].memory.items():
        batch[0].memory[name] = generator.normal(size=part.shape).astype(np.float32)
    return batch


@pytest.mark.parametrize(("core", "double"), [("gru", True), ("gru", False), ("lstm", True)])
def test_updates_of_r2d2_equal_a_plain_implementation(core, double):
    algorithm = made(core=core, double=double, max_grad_norm=0.05, target_every=2)
    plain = PlainR2D2(
        algorithm.policy.state_dict(), gamma=0.9, rate=0.01, epsilon=1e-3, norm=0.05, burn_in=3, learned=4, steps=2,
        share=0.9, double=double,
    )  # fmt: skip
    cut = 0
    for update in range(4):
        batch = sequences(algorithm, update)
        cut += batch[0].truncated[3:].sum()
        found = algorithm.update(batch)
        np.testing.assert_allclose(found.priorities, plain.update(batch[0], batch.weights), rtol=1e-4, atol=1e-5)
        assert found.metrics["grad_norm"] > 0.05
        if update % 2:
            plain.target = [one.detach().clone() for one in plain.weights]
    assert cut
    for (name, ours), theirs in zip(algorithm.policy.named_parameters(), plain.weights, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5, msg=name)


def test_unscaled_inverts_rescaled():
    x = torch.tensor([-1e4, -30.0, -0.5, 0.0, 1e-3, 1.0, 200.0, 1e5])
    torch.testing.assert_close(unscaled(rescaled(x)), x, rtol=1e-4, atol=1e-4)
    assert rescaled(torch.tensor([3.0])).item() == pytest.approx(1.003)


def test_r2d2_needs_sequences_of_burn_in_learned_and_n_steps():
    needs = made().needs
    assert (needs.source, needs.length, needs.burn_in, needs.fields) == ("prioritized", 9, 3, ())
    assert made(prioritized=False, burn_in=0).needs.length == 6


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_r2d2_resumes_exactly_from_its_state(core):
    one, other = made(1, core, target_every=2), made(2, core, target_every=2)
    for seed in range(3):
        one.update(sequences(one, seed))
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    batch = sequences(one, 3)
    np.testing.assert_array_equal(one.update(batch).priorities, other.update(batch).priorities)
    assert all(torch.equal(a, b) for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True))


def test_a_network_without_a_memory_is_refused():
    with pytest.raises(ConfigurationError, match="'r2d2' trains networks with a memory, and this one has none"):
        made(core=None)
