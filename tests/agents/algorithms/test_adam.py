"""Adam on one tensor: steps equal to torch's, without importing torch's compiler."""

import os
import subprocess
import sys

import pytest
import torch

from agents.algorithms.adam import Adam

LEARN = """
import sys
from agents import build_algorithm, build_policy
from support.experience import random_trajectory
from gymnasium.spaces import Box, Discrete

policy = build_policy({"name": "mlp"}, Box(-1, 1, (4,)), Discrete(2), 0)
algorithm = build_algorithm("ppo", {"minibatch_size": 16, "epochs": 1}, policy, 0)
algorithm.update([random_trajectory(policy)])
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(("betas", "epsilon"), [((0.9, 0.999), 1e-5), ((0.0, 0.99), 0.01)])
def test_steps_equal_torchs_adam_bit_for_bit(betas, epsilon):
    start = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    adam = Adam(ours, 0.1, *betas, epsilon)
    reference = torch.optim.Adam([theirs], 0.1, betas, eps=epsilon, fused=True)
    for step in range(1, 6):
        for values in (ours, theirs):
            values.grad = values.detach().sin() * step
        adam.learning_rate = reference.param_groups[0]["lr"] = 0.1 / step
        adam.step()
        reference.step()
        assert torch.equal(ours, theirs)
    assert adam.state.keys() == reference.state[theirs].keys()
    assert all(torch.equal(tensor, reference.state[theirs][name]) for name, tensor in adam.state.items())


def test_learning_does_not_import_torchs_compiler():
    """The import would take a second of every start."""
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", LEARN], capture_output=True, text=True, check=False, env=paths)
    assert done.stdout == "False\n", done.stdout + done.stderr
