"""The settings `precision` and `compile` of a learner hardly change its results."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import build_algorithm, build_policy, computing
from agents.policies import Policy

CPU = torch.device("cpu")
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
SETTINGS = {"ppo": {"minibatch_size": 30, "epochs": 2}, "a2c": {}, "impala": {}, "appo": {"minibatch_size": 32}}


@pytest.mark.parametrize(
    ("features", "precision", "device", "told"),
    [
        ("flags : fpu avx2", "bfloat16", "cpu", True),
        ("flags : fpu avx512_bf16", "bfloat16", "cpu", False),
        ("Features : asimd bf16", "bfloat16", "cpu", False),
        ("", "bfloat16", "cpu", False),
        ("flags : fpu avx2", "float32", "cpu", False),
        ("flags : fpu avx2", "bfloat16", "cuda", False),
    ],
)
def test_users_are_told_of_a_processor_without_bfloat16(
    features: str, precision: str, device: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computing, "processor_features", lambda: features)
    line = computing.emulated(precision, torch.device(device))
    assert (line is not None) == told
    assert line is None or "float32 is faster" in line


def make(core: str | None = None, activation: str = "tanh") -> Policy:
    network = {"hidden_sizes": [16, 16], "activation": activation, "core": core and {"name": core, "size": 8}}
    return build_policy(network, Box(-5, 5, (4,), np.float32), Discrete(3), seed=1)


def learned(policy: Policy, algorithm: str) -> torch.Tensor:
    trajectory = random_trajectory(copy.deepcopy(policy).to("cpu"), seed=3)
    build_algorithm(algorithm, SETTINGS[algorithm], policy, seed=1).update([trajectory])
    return torch.cat([parameter.detach().cpu().flatten() for parameter in policy.parameters()])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_bfloat16_learns_nearly_the_same_and_keeps_float32_weights(algorithm: str, device: str) -> None:
    whole, half = make().to(device), make().to(device)
    half.set_learning_precision(torch.bfloat16)
    before = torch.cat([parameter.detach().cpu().flatten() for parameter in whole.parameters()])
    one, other = (learned(policy, algorithm) - before for policy in (whole, half))
    assert other.dtype is torch.float32
    assert not torch.equal(one, other), "it was not computed in bfloat16"
    assert torch.cosine_similarity(one, other, 0) > 0.9


@pytest.mark.parametrize("core", [None, "lstm", "gru", "transformer"])
def test_outputs_in_bfloat16_are_float32_and_near_the_exact_ones(core: str | None) -> None:
    policy = make(core)
    steps, slots = 5, 3
    observation, begins = torch.randn(steps, slots, 4), torch.zeros(steps, slots, dtype=torch.bool)
    action = torch.zeros(steps, slots, dtype=torch.int64)

    def said() -> list[torch.Tensor]:
        evaluated, memory = policy.unroll(observation, policy.initial_memory(slots), begins, action)
        return [evaluated.log_prob, evaluated.entropy, evaluated.value, *memory.values()]

    exact = said()
    policy.set_learning_precision(torch.bfloat16)
    for near, number in zip(said(), exact, strict=True):
        assert near.dtype is torch.float32
        torch.testing.assert_close(near, number, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_compiled_network_learns_the_same_and_is_traced_once_for_all_sizes(
    monkeypatch: pytest.MonkeyPatch, activation: str
) -> None:
    traced: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        traced.append(len(inputs))
        return graph.forward

    # Only tracing can fail or be repeated; a C++ compiler would take a minute and give the same numbers.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    plain, compiled = make(activation=activation), make(activation=activation)
    compiled.set_learning_precision(compiled=True)
    torch.testing.assert_close(learned(compiled, "ppo"), learned(plain, "ppo"), rtol=0, atol=1e-5)
    assert len(traced) == 1, "minibatches of 21 and 22 steps were traced separately"


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_compiled_recurrent_network_computes_the_same_for_any_episode_ends(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    traced: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        traced.append(len(inputs))
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    plain, compiled = make(name), make(name)
    compiled.set_learning_precision(compiled=True)
    generator = torch.Generator().manual_seed(1)

    def said(policy: Policy, ending: float) -> torch.Tensor:
        observation = torch.randn(16, 4, 4, generator=generator.manual_seed(2))
        begins = torch.rand(16, 4, generator=generator) < ending
        action = torch.zeros(16, 4, dtype=torch.int64)
        return policy.unroll(observation, policy.initial_memory(4), begins, action)[0].log_prob

    graphs = []
    for ending in (0.0, 0.05, 0.5, 0.9):
        torch.testing.assert_close(said(compiled, ending), said(plain, ending), rtol=0, atol=1e-5)
        graphs.append(len(traced))
    assert 0 < graphs[0] == graphs[-1], "other ends of episodes must not cause another trace"
    copied, expected = compiled.frozen_copy(), said(plain, 0.5)
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.zero_()
    torch.testing.assert_close(said(copied, 0.5), expected, rtol=0, atol=1e-5)
    assert not torch.allclose(said(compiled, 0.5), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_network_compiled_for_a_gpu_learns_the_same() -> None:
    plain, compiled = make().to("cuda"), make().to("cuda")
    compiled.set_learning_precision(compiled=True)
    torch.testing.assert_close(learned(compiled, "ppo"), learned(plain, "ppo"), rtol=0, atol=1e-3)


def test_an_unknown_precision_is_refused_with_the_known_ones() -> None:
    (line,) = computing.problems("float16", False, CPU)
    assert line == "precision='float16' is not a precision; use float32 or bfloat16"
    assert not list(computing.problems("bfloat16", False, CPU))


def test_without_a_compiler_compile_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    (line,) = computing.problems("float32", True, CPU)
    assert line.startswith("compile=true needs a C++ compiler, and there is no no-such-compiler; install it")
    assert not list(computing.problems("float32", False, CPU))


def test_a_gpu_without_bfloat16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an old GPU")
    (line,) = computing.problems("bfloat16", False, torch.device("cuda:0"))
    assert "an old GPU" in line and "precision=float32" in line
