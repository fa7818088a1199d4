"""The writer of trajectories: steps of all slots together, or each slot at its own step."""

import numpy as np
from gymnasium.spaces import Box, Discrete

from agents.trajectories import Trajectory, TrajectoryWriter, on_policy

SPEC = on_policy(Box(-9, 9, (2,), np.float32), Discrete(3), legal_actions=True, memory={"hidden": (4,)})
LAST = {"observation": np.ones((2, 2)), "value": np.array([1.0, 2.0]), "log_prob": np.zeros(2)}


def decision(number):
    of = np.full(2, number, np.float32)
    extras = {"log_prob": -of, "value": of}
    return np.stack([of, of], axis=1), of.astype(np.int64) % 3, extras, np.ones((2, 3), bool)


def written(write):
    writer = TrajectoryWriter(SPEC, 2, 2)
    writer.start(slice(None), {"hidden": np.ones((2, 4), np.float32)}, 7)
    write(writer)
    return writer


def write_by_steps(writer):
    for step in range(2):
        writer.decide(step, *decision(step))
        writer.follow(step, [1.0, 2.0], truncated=[False, True])
        writer.cut_off((step, np.array([1])), {"value": np.array([5.0])})


def write_by_slots(writer):
    for slot in (1, 0):
        for step in range(2):
            observation, action, extras, mask = decision(step)
            at, own = (step, slot), {name: part[slot] for name, part in extras.items()}
            writer.decide(at, observation[slot], action[slot], own, mask[slot])
            writer.follow(at, slot + 1.0, truncated=slot == 1)
            if slot:
                writer.cut_off(at, {"value": 5.0})


def test_slots_written_separately_give_the_same_trajectory_as_together():
    together, apart = (written(write).trajectory(LAST) for write in (write_by_steps, write_by_slots))
    np.testing.assert_equal(apart.to_dict(), together.to_dict())
    assert together.cut["value"].tolist() == [[0, 5], [0, 5]] and together.version.tolist() == [7, 7]
    Trajectory.from_dict(together.to_dict(), SPEC)


def test_data_after_the_last_step_has_the_fields_and_types_of_the_spec():
    last = written(write_by_steps).trajectory(LAST).last
    assert last.keys() == {"observation", "value"}
    assert {part.dtype.name for part in last.values()} == {"float32"}


def test_chosen_slots_are_copied_and_may_be_written_again():
    writer = written(write_by_steps)
    first = {name: part[1:] for name, part in LAST.items()}
    trajectory = writer.trajectory(first, slots=np.array([1]))
    before = trajectory.reward.copy()
    writer.follow((0, 1), 100.0)
    assert trajectory.num_slots == 1 and np.array_equal(trajectory.reward, before)
