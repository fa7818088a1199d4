"""A user's own distributions from a file: examples/distributions/beta.py, and refused ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.experience import random_trajectory

from agents import build_algorithm, build_policy
from warren.errors import ConfigurationError

BETA = f"{Path(__file__).resolve().parents[2] / 'examples/distributions/beta.py'}:build"
SEEN = Box(-1, 1, (3,), np.float32)
ACTIONS = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))


def test_an_own_distribution_draws_within_the_bounds_and_learns():
    policy = build_policy({"distribution": {"name": BETA, "least": 1.5}}, SEEN, ACTIONS, seed=1)
    acted = policy.step(np.zeros((64, 3), np.float32))
    actions = policy.env_action(acted.action)
    assert acted.action.shape == (64, 2) and ACTIONS.contains(actions[0]) and actions[:, 1].max() > 6
    wanted = torch.distributions.Beta(*_concentrations(policy)).log_prob(torch.as_tensor(acted.action)).sum(-1)
    np.testing.assert_allclose(acted.extras["log_prob"], wanted.detach().numpy(), rtol=1e-4)
    before = [one.clone() for one in policy.parameters()]
    settings = {"proximal_coefficient": 0.1}
    build_algorithm("ppo", settings, policy, 1).update([random_trajectory(policy)])
    assert any(not torch.equal(one, was) for one, was in zip(policy.parameters(), before, strict=True))


def _concentrations(policy):
    output, _ = policy.network.act(torch.zeros(64, 3), {})
    return (torch.nn.functional.softplus(output) + 1.5).chunk(2, -1)


def test_a_leaf_of_a_dict_has_its_own_distribution():
    space = Dict({"aim": ACTIONS, "fire": Discrete(2)})
    policy = build_policy({"distribution": {"aim": {"name": BETA}}}, SEEN, space, seed=1)
    acted = policy.step(np.zeros((4, 3), np.float32))
    assert {name: part.shape for name, part in acted.action.items()} == {"aim": (4, 2), "fire": (4,)}
    assert ((acted.action["aim"] > 0) & (acted.action["aim"] < 1)).all()


OWN = """
from agents.policies import Distribution

class Silent(Distribution):
    pass

def build(settings, space):
    return {"none": lambda: None, "silent": Silent, "fails": lambda: 1 / 0}[settings["kind"]]()

def of_space(space):
    return None
"""


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"name": "Beta"}, r"names none; give name=path/to/file.py:build"),
        ({"name": "{file}:build", "kind": "none"}, r"made a NoneType, not an agents.policies.Distribution"),
        ({"name": "{file}:build", "kind": "silent"}, r"does not say by `size` how many numbers it needs"),
        ({"name": "{file}:build", "kind": "fails"}, r"own.py:8: ZeroDivisionError"),
        ({"name": "{file}:of_space"}, r"it takes \(space\) at .*own.py:10; give it these arguments"),
        ({"name": "{file}:built"}, r"distribution 'built' does not exist; did you mean build"),
    ],
)
def test_invalid_distributions_are_refused(tmp_path, table, says):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    given = {key: value.format(file=file) for key, value in table.items()}
    with pytest.raises(ConfigurationError, match=says):
        build_policy({"distribution": given}, SEEN, ACTIONS, seed=1)


def test_a_distribution_for_an_unknown_leaf_is_refused():
    with pytest.raises(ConfigurationError, match="'ame' does not exist; did you mean aim"):
        build_policy({"distribution": {"ame": {"name": BETA}}}, SEEN, Dict({"aim": ACTIONS}), seed=1)
