import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from agents import build_policy, devices
from warren.errors import ConfigurationError

OBSERVATIONS = Dict({"view": Box(-1, 1, (3,), np.float32), "kind": Discrete(4)})


@pytest.fixture
def machine(monkeypatch):
    """Return a function that fakes a machine with `cuda` CUDA devices, and with Apple's GPU if `mps`."""

    def have(cuda=0, mps=False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return have


@pytest.mark.parametrize(
    ("cuda", "mps", "device", "expected"),
    [
        (0, False, "auto", "cpu"),
        (2, False, "auto", "cuda:0"),
        (0, True, "auto", "mps"),
        (2, False, "cpu", "cpu"),
        (2, False, "cuda", "cuda:0"),
        (2, False, "cuda:1", "cuda:1"),
        (0, True, "mps", "mps"),
    ],
)
def test_a_device_setting_resolves_to_a_device(machine, cuda, mps, device, expected):
    machine(cuda, mps)
    assert devices.resolve(device) == torch.device(expected)


@pytest.mark.parametrize(
    ("cuda", "device", "message"),
    [
        (0, "cuda", "device='cuda' is not there: this machine has cpu"),
        (2, "cuda:2", "device='cuda:2' is not there: this machine has cpu, cuda:0, cuda:1"),
        (2, "mps", "device='mps' is not there: this machine has cpu, cuda:0, cuda:1; use one of these, or device=auto"),
        (0, "gpu", "device='gpu' is not a device; use auto, cpu, cuda, cuda:N or mps"),
        (0, "cuda:", "device='cuda:' is not a device"),
    ],
)
def test_a_missing_device_is_refused_with_the_available_ones(machine, cuda, device, message):
    machine(cuda)
    with pytest.raises(ConfigurationError, match=message):
        devices.resolve(device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    "core", [None, {"name": "lstm"}, {"name": "transformer"}], ids=lambda core: str(core and core["name"])
)
@pytest.mark.parametrize("squashed", [False, True])
def test_a_policy_on_a_gpu_takes_and_gives_numpy_and_draws_as_on_the_cpu(core, squashed):
    actions = Dict({"aim": Box(-1, 1, (2,), np.float32), "move": Discrete(3)})
    config = {"core": core, "box_actions": {"squashed": squashed}, "policy_gain": 1.0}
    here, there = (build_policy(config, OBSERVATIONS, actions, seed=1) for _ in range(2))
    there.to(devices.resolve("cuda"))
    assert there.device == torch.device("cuda:0")
    generator = np.random.default_rng(0)
    memories = [policy.initial_memory(4) for policy in (here, there)]
    for t in range(6):
        observation = {"view": generator.normal(size=(4, 3)).astype(np.float32), "kind": generator.integers(0, 4, 4)}
        mask = {"move": np.array([[True, False, True]] * 4)}
        memories = [p.begin(m, np.arange(4) == t) for p, m in zip((here, there), memories, strict=True)]
        one, other = (
            policy.step(observation, memory, action_mask=mask)
            for policy, memory in zip((here, there), memories, strict=True)
        )
        memories = [one.memory, other.memory]
        for name in actions:
            np.testing.assert_allclose(other.action[name], one.action[name], atol=1e-4)
        for name, array in one.extras.items():
            np.testing.assert_allclose(other.extras[name], array, atol=1e-3)
