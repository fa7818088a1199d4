"""Observations at which episodes were cut off: over the wire, joined, selected by slot, written again."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from agents.trajectories import CUT_OBSERVATION, Trajectory, TrajectoryWriter, concatenate, on_policy
from warren.errors import WireError

SPACE = Dict({"board": Box(-9, 9, (2,), np.float32), "clock": Box(0, 9, (), np.float32)})
SPEC = on_policy(SPACE, Discrete(2), fields=[CUT_OBSERVATION])


def of(number, *leading):
    board = np.full((*leading, 2), number, np.float32)
    return {"board": board, "clock": np.full(leading, number, np.float32)}


def written(slots, cuts, start=0, steps=3):
    """Return a trajectory cut off at `cuts`: (step, slot) -> number of the observation there."""
    writer = TrajectoryWriter(SPEC, steps, slots)
    writer.start(slice(None), {}, 0)
    for step in range(steps):
        writer.decide(step, of(start + step, slots), np.zeros(slots, np.int64), {})
        here = [slot for at, slot in cuts if at == step]
        writer.follow(step, np.zeros(slots), truncated=np.isin(np.arange(slots), here))
        if here:
            numbers = np.array([cuts[step, slot] for slot in here], np.float32)
            at = {"board": np.stack([numbers, numbers], axis=1), "clock": numbers}
            writer.cut_off((step, np.array(here)), {"observation": at})
    return writer.trajectory({"observation": of(9, slots)})


def found(trajectory):
    numbers = trajectory.cut_observation["clock"].tolist()
    return dict(zip(map(tuple, trajectory.cut_at.tolist()), numbers, strict=True))


def test_cut_observations_survive_the_wire_with_their_places():
    trajectory = written(2, {(0, 1): 5, (2, 0): 6, (2, 1): 7})
    copy = Trajectory.from_dict(trajectory.to_dict(), SPEC)
    assert found(copy) == {(0, 1): 5, (2, 0): 6, (2, 1): 7}
    assert copy.cut_observation["board"].tolist() == [[5, 5], [6, 6], [7, 7]]
    assert len(written(2, {}).cut_at) == 0
    Trajectory.from_dict(written(2, {}).to_dict(), SPEC)


def test_cut_observations_follow_their_slots_when_joined_and_selected():
    first, second = written(2, {(0, 1): 5, (2, 0): 6}), written(1, {(1, 0): 7, (2, 0): 8})
    whole = concatenate([first, second])
    assert found(whole) == {(0, 1): 5, (1, 2): 7, (2, 0): 6, (2, 2): 8}
    Trajectory.from_dict(whole.to_dict(), SPEC)
    assert found(whole.slots(np.array([2, 1]))) == {(0, 1): 5, (1, 0): 7, (2, 0): 8}
    assert found(whole.slots(slice(0, 1))) == {(2, 0): 6}


def test_a_slot_written_again_loses_its_former_cut_observations():
    writer = TrajectoryWriter(SPEC, 1, 2)
    for slot in (0, 1):
        writer.start(slot, {}, 0)
        writer.decide((0, slot), of(1), 0, {})
        writer.follow((0, slot), 0.0, truncated=True)
        writer.cut_off((0, slot), {"observation": of(3 + slot)})
    assert found(writer.trajectory({"observation": of(9, 1)}, slots=np.array([1]))) == {(0, 0): 4}
    writer.start(1, {}, 1)
    writer.follow((0, 1), 0.0)
    assert found(writer.trajectory({"observation": of(9, 2)})) == {(0, 0): 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cut_at": np.array([[0, 0]])}, r"cut_at must be int64 \[1, 2\], the steps and slots that are truncated"),
        ({"cut_at": np.array([[0, 1]], np.int32)}, "cut_at must be int64"),
        ({"cut_at": "here"}, "cut_at must be int64"),
        ({"cut_observation": of(1, 2)}, r"cut_observation\.board must be \[1, '...'\], is \[2, 2\]"),
        ({"cut_observation": {"board": 1, "clock": 2}}, "board must be an array, is int"),
        ({"cut_observation": of(np.nan, 1)}, "cut_observation.board holds nan"),
        ({"cut_observation": {"board": of(1, 1)["board"]}}, "cut_observation has no part 'clock'"),
        ({"cut_observation": None}, "belong together"),
        ({"truncated": np.zeros((3, 1), bool)}, r"truncated must be bool \[3, 2\], is bool \[3, 1\]"),
    ],
)
def test_cut_observations_that_do_not_fit_are_refused(changes, message):
    data = {**written(2, {(0, 1): 5}).to_dict(), **changes}
    with pytest.raises(WireError, match=message):
        Trajectory.from_dict(data, SPEC)


def test_cut_observations_are_accepted_only_if_the_algorithm_names_them():
    data = written(2, {(0, 1): 5}).to_dict()
    with pytest.raises(WireError, match="a cut_observation, which nothing in the run's algorithm asks for"):
        Trajectory.from_dict(data, on_policy(SPACE, Discrete(2), fields=()))
    del data["cut_at"], data["cut_observation"]
    with pytest.raises(WireError, match="no cut_observation, which the run's algorithm asks for"):
        Trajectory.from_dict(data, SPEC)
    assert on_policy(SPACE, Discrete(2)).cut_observation is None, "an algorithm that names no fields gets none"
