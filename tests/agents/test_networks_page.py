"""docs/networks.md: its examples run, and it names every network and core."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import build_algorithm, build_policy
from agents.networks import CORES, NETWORKS
from workers.config.overrides import compose

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/networks.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
OWN = ROOT / "examples/networks/residual.py"


def test_the_examples_of_acting_and_learning_run():
    names = {}
    for block in BLOCKS[:2]:
        exec(block, names)
    assert names["log_prob"].shape == names["value"].shape == (8,)
    assert names["divergence"][""].shape == (16, 8) and (names["divergence"][""] >= 0).all()


def test_the_network_on_the_page_equals_the_example_and_learns():
    _, _, body = OWN.read_text().partition('"""\n\n')
    assert BLOCKS[2] == body
    before = torch.get_rng_state()
    config = {"name": f"{OWN}:build", "width": 8}
    policy, again = (build_policy(config, Box(-1, 1, (4,), np.float32), Discrete(3), seed=1) for _ in range(2))
    assert torch.equal(policy.network.first.weight, again.network.first.weight)
    weights = policy.network.first.weight.clone()
    build_algorithm("ppo", {}, policy, 1).update([random_trajectory(policy)])
    assert not torch.equal(policy.network.first.weight, weights)
    torch.set_rng_state(before)


@pytest.mark.parametrize("name", [*NETWORKS, *CORES])
def test_every_network_and_core_is_on_the_page(name):
    assert re.search(rf"\b{name}\b", PAGE)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_be_chosen_on_the_command_line(name):
    compose("train", [f"network={name}"])
