"""Updates of DQN and QR-DQN against a record of the peers', which they reproduce where they are installed."""

import json

import numpy as np
import pytest
import torch
from support.peer_records import (
    DQN_EXPERIMENTS,
    DQN_STEPS,
    DQN_UPDATES,
    dqn_config,
    dqn_policy,
    dqn_updates_of_peer,
    read,
    weights_of,
)

from agents import Trajectory
from agents.algorithms import build_algorithm
from benchmarks.learning.peers import LIBRARIES


def trajectory_of(record):
    """Return the record's transitions as a drawn trajectory."""
    slots = record["last_observation"]
    trajectory = Trajectory(
        **{name: record[name] for name in ("observation", "action", "reward", "terminated")},
        truncated=np.zeros_like(record["terminated"]),
        extras={},
        last={"observation": slots},
        cut={},
        version=np.zeros(len(slots), np.int64),
        episodes=np.zeros((0, 2), np.float32),
    )
    trajectory.cuts = np.zeros((0, 2), np.int64), {"observation": slots[:0]}
    return trajectory


@pytest.mark.parametrize("experiment", DQN_EXPERIMENTS)
def test_updates_of_dqn_equal_those_of_the_peer(experiment):
    record, policy = read(experiment), dqn_policy(experiment)
    before, after = weights_of(record, "before."), weights_of(record, "after.")
    policy.load_state_dict(before)
    algorithm = build_algorithm("dqn", json.loads(str(record["settings"])), policy, 0)
    algorithm.target.load_state_dict(weights_of(record, "target."))
    trajectory = trajectory_of(record)
    assert len(trajectory.reward) == DQN_STEPS
    losses = [algorithm.update([trajectory]).metrics["value_loss"] for _ in range(DQN_UPDATES)]
    np.testing.assert_allclose(losses, record["losses"], rtol=1e-4)
    assert max((after[name] - before[name]).abs().max() for name in after) > 1e-2
    for name, tensor in policy.state_dict().items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("experiment", DQN_EXPERIMENTS)
def test_the_peer_reproduces_the_recorded_updates_of_dqn(experiment):
    library = LIBRARIES[DQN_EXPERIMENTS[experiment]]
    pytest.importorskip(library, reason="Stable-Baselines3 or sb3-contrib is not installed (the `peers` extra)")
    record = read(experiment)
    assert json.loads(str(record["settings"])) == dict(dqn_config(experiment).algorithm), (
        "the experiment has other settings than the record; python -m tests.support.peer_records dqn"
    )
    for name, array in dqn_updates_of_peer(experiment, record).items():
        np.testing.assert_allclose(array, record[name], rtol=1e-4, atol=1e-5, err_msg=name)
