"""Equal rows in one call: the library computes a network once per distinct row, and results stay the same."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from test_ppo_at_once import ANCHORED, NETWORKS, SETTINGS, at_once, exact, made, minibatch

from agents import build_policy
from agents.native.acting import UNIFORM, Acting, Parts
from agents.native.library import library
from agents.native.perceptron import Perceptron, at

KINDS = [1, 7, 130]  # distinct rows among 333; 130 make three blocks


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_the_gradient_of_repeated_rows_equals_that_in_float64(
    network: dict[str, Any], kinds: int, masked: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.native.perceptron.A_THREAD", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for settings in (SETTINGS[1], SETTINGS[2], ANCHORED[-1]):
        algorithm, given = made(network, settings), minibatch(masked, settings)
        chance = torch.Generator().manual_seed(kinds)
        which = torch.randint(kinds, (len(given.observation),), generator=chance)
        given.observation = given.observation[:kinds][which]
        gradient, terms = exact(algorithm, given)
        found = at_once(algorithm, given)
        assert found is not None
        assert (found[0] - gradient).abs().max() < 1e-6 * gradient.abs().max()
        for name, term in terms.items():
            torch.testing.assert_close(found[1][name].double(), term.double(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("network", [{}, {"shared": True}, {"value": False}], ids=str)
def test_steps_of_repeated_rows_equal_those_of_separate_calls(network: dict[str, Any], kinds: int) -> None:
    policy = build_policy(
        {"hidden_sizes": [17, 9], "policy_gain": 1.0, **network}, Box(-5, 5, (5,), np.float32), Discrete(4), 3
    )
    chance = np.random.default_rng(kinds)
    x = chance.normal(size=(kinds, 5)).astype(np.float32)[chance.integers(kinds, size=333)]
    mask = chance.random((333, 4)) < 0.5
    mask[:, 1] |= ~mask.any(1)
    found, value = policy.one_pass(policy.has_value), policy.has_value
    assert found is not None
    noise = chance.exponential(size=(333, 4)).astype(np.float32)
    for of_mask in (None, mask):
        by_mode = {"greedy": {"mode": "greedy"}, "noise": {"noise": noise}}
        for given in by_mode.values():
            together = policy.step(x, action_mask=of_mask, value=value, **given)
            for row in (slice(0, 64), slice(64, 128), slice(300, 333)):  # too few rows to search for equal ones
                part = dict(given, noise=noise[row]) if "noise" in given else given
                alone = policy.step(x[row], action_mask=None if of_mask is None else of_mask[row], value=value, **part)
                np.testing.assert_array_equal(together.action[row], alone.action)
                for name, column in alone.extras.items():
                    np.testing.assert_array_equal(together.extras[name][row], column)


def test_equal_rows_draw_separate_actions() -> None:
    layers = [(torch.zeros(2, 1), torch.zeros(2))]
    chance = torch.rand(500, generator=torch.Generator().manual_seed(1))
    acting = Acting(Parts(Perceptron("tanh"), layers), None)
    action, *_ = acting.discrete(torch.ones(500, 1), None, UNIFORM, chance, {})
    assert torch.equal(action, (chance > 0.5).long())


def test_the_workspace_suffices_for_any_number_of_rows() -> None:
    loaded = library()
    assert loaded is not None
    perceptron, layers = Perceptron("tanh"), [(torch.randn(2, 3), torch.zeros(2))]
    for rows in (127, 128, 129, 255, 257, 511, 513, 1023, 1025):
        size = loaded.kinds_size(ctypes.c_int64(rows))
        net = perceptron.pointed(layers)
        work = torch.full((loaded.work_size(net) + size + 1000,), 7.0)
        x, action, log_prob = torch.randn(rows // 2, 3).repeat(3, 1)[:rows], torch.empty(rows).long(), torch.empty(rows)
        how = None, ctypes.c_int64(0), None
        given = (net, None, at(x), ctypes.c_int64(rows), None, *how, at(action), at(log_prob), None)
        loaded.act(*given, at(work))
        assert (work[-1000:] == 7).all()
        assert torch.equal(action, (x @ layers[0][0].T).argmax(1))
