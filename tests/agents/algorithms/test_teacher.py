"""A teacher's term in the loss of a student whose actions have several parts."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from agents import build_policy
from agents.operators.losses import teacher_loss
from warren.errors import UnknownName

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
ACTIONS = Dict({"move": Discrete(3), "target": Discrete(5), "turn": Box(-1, 1, (2,), np.float32)})


def divergences(teacher, student, observation):
    """KL(teacher || student) by head, with gradients of the student's only."""
    action = {name: torch.from_numpy(part) for name, part in student.step(observation.numpy()).action.items()}
    with torch.no_grad():
        theirs = teacher.statistics(teacher.evaluate(observation, action).output)
    return student.kl(theirs, student.statistics(student.evaluate(observation, action).output))


def test_a_student_comes_nearer_to_its_teacher_in_the_heads_that_have_a_coefficient():
    # A linear network without hidden layers shares nothing between heads but the observation.
    config = {"hidden_sizes": [], "policy_gain": 1.0}
    teacher, student = (build_policy(config, OBSERVATIONS, ACTIONS, seed) for seed in (1, 2))
    observation = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    before = {name: kl.mean().item() for name, kl in divergences(teacher, student, observation).items()}
    optimizer = torch.optim.Adam(student.parameters(), 0.03)
    for _ in range(100):
        loss = teacher_loss(divergences(teacher, student, observation), {"move": 1.0, "turn": 0.5})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = {name: kl.mean().item() for name, kl in divergences(teacher, student, observation).items()}
    assert after["move"] < 0.05 * before["move"]
    assert after["turn"] < 0.05 * before["turn"]
    assert after["target"] == pytest.approx(before["target"])


def test_a_coefficient_of_no_part_of_the_action_is_refused():
    policy = build_policy({}, OBSERVATIONS, ACTIONS, 1)
    heads = divergences(policy, policy, torch.zeros(2, 4))
    with pytest.raises(UnknownName, match="policy head 'mvoe' does not exist; did you mean move"):
        teacher_loss(heads, {"mvoe": 1.0})
