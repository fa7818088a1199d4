import numpy as np
import pytest

from agents.trajectories import Trajectory, TrajectorySpec, concatenate
from agents.trees import ArraySpec
from warren.errors import WireError

FLOAT = ArraySpec((), "float32")
SPEC = TrajectorySpec(
    observation=ArraySpec((4,), "float32"),
    action=ArraySpec((), "int64"),
    extras={"log_prob": FLOAT, "value": FLOAT},
    last={"value": FLOAT},
    cut={"value": FLOAT},
)


def trajectory(steps=3, slots=2, version=4, **changes):
    generator = np.random.default_rng(0)
    shape = (steps, slots)

    def floats(*s):
        return generator.normal(size=s).astype(np.float32)

    fields = {
        "observation": floats(*shape, 4),
        "action": generator.integers(0, 2, shape),
        "reward": floats(*shape),
        "terminated": np.zeros(shape, bool),
        "truncated": np.zeros(shape, bool),
        "extras": {"log_prob": floats(*shape), "value": floats(*shape)},
        "last": {"value": floats(slots)},
        "cut": {"value": np.zeros(shape, np.float32)},
        "version": np.full(slots, version),
        "episodes": np.array([[21, 21]], np.float32),
    }
    return Trajectory(**{**fields, **changes})


def tree_trajectory(steps=3, slots=2, seed=0):
    """Return the trajectory of an agent with a camera and a speed, two actions, a memory and two reward channels."""
    generator = np.random.default_rng(seed)
    return trajectory(
        steps,
        slots,
        observation={
            "camera": generator.integers(0, 255, (steps, slots, 3, 8, 8), np.uint8),
            "speed": (generator.normal(size=(steps, slots)).astype(np.float32),),
        },
        action=(generator.integers(0, 5, (steps, slots)), generator.normal(size=(steps, slots, 2)).astype(np.float32)),
        reward=generator.normal(size=(steps, slots, 2)).astype(np.float32),
        memory={"h": generator.normal(size=(slots, 16)).astype(np.float32)},
        last={"observation": {"camera": np.zeros((slots, 3, 8, 8), np.uint8), "speed": (np.ones(slots, np.float32),)}},
    )


def same(first, second):
    np.testing.assert_equal(first.to_dict(), second.to_dict())


@pytest.mark.parametrize("made", [trajectory, tree_trajectory])
def test_a_trajectory_survives_its_dictionary(made):
    original = made()
    copy = Trajectory.from_dict(original.to_dict())
    same(copy, original)
    assert (copy.num_steps, copy.num_slots) == (6, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros((3, 2))}, "reward must be float32, is float64"),
        ({"reward": np.zeros(3, np.float32)}, r"reward must be \[3, 2, '\.\.\.'\], is \[3\]"),
        ({"terminated": np.zeros((0, 2), bool)}, r"terminated must be bool \[T, N\] with T, N >= 1, is bool \[0, 2\]"),
        ({"terminated": np.zeros((3, 2), np.int8)}, r"terminated must be bool .* is int8 \[3, 2\]"),
        ({"terminated": [True]}, r"terminated must be bool .* is list"),
        ({"truncated": np.zeros((2, 3), bool)}, r"truncated must be bool \[3, 2\], is bool \[2, 3\]"),
        ({"extras": {"value": [1.0]}}, "extras.value must be an array, is list"),
        ({"last": {"value": np.zeros(3, np.float32)}}, r"last.value must be \[2, '\.\.\.'\], is \[3\]"),
        ({"observation": np.zeros((3, 1, 4), np.float32)}, r"observation must be \[3, 2, '\.\.\.'\], is \[3, 1, 4\]"),
        ({"observation": {"a": (np.zeros((3, 2), object),)}}, "observation.a.0 must be numeric, is object"),
        ({"action": np.zeros((3, 2), np.int32)}, "action must be int64 or float32, is int32"),
        ({"episodes": np.zeros((1, 1), np.float32)}, r"episodes must be float32 \[K, 2"),
        ({"observation": np.full((3, 2, 4), np.nan, np.float32)}, r"observation holds nan at \[0, 0, 0\]"),
        ({"reward": np.diag([0, np.inf, 0])[:, :2].astype(np.float32)}, r"reward holds inf at \[1, 1\]"),
        ({"memory": {"h": np.full((2, 1), -np.inf, np.float32)}}, r"memory.h holds -inf at \[0, 0\]"),
    ],
)
def test_a_wrong_field_is_named(changes, message):
    with pytest.raises(WireError, match=message):
        Trajectory.from_dict(trajectory(**changes).to_dict())


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (np.zeros(2, np.float32), r"version must be int64 \[2\], is float32 \[2\]"),
        (4, "version must be an array, is int"),
    ],
)
def test_a_trajectory_needs_a_version_per_slot(version, message):
    with pytest.raises(WireError, match=message):
        Trajectory.from_dict(trajectory().to_dict() | {"version": version})


def test_missing_and_unknown_fields_are_all_named():
    data = trajectory().to_dict()
    data["rewards"] = data.pop("reward")
    del data["extras"]
    with pytest.raises(WireError, match=r"no field 'extras'.*no field 'reward'.*unknown field 'rewards'"):
        Trajectory.from_dict(data)


def test_every_wrong_field_is_named_at_once():
    extras = {"log_prob": np.zeros(1, np.float32), "value": np.zeros(1, np.float32)}
    with pytest.raises(WireError, match=r"version.*log_prob.*value"):
        Trajectory.from_dict(trajectory(extras=extras).to_dict() | {"version": None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        (
            {"observation": np.zeros((3, 2, 5), np.float32)},
            r"observation must be float32 \[3, 2, 4\], is .*\[3, 2, 5\]",
        ),
        ({"observation": np.zeros((3, 2, 4), np.uint8)}, r"observation must be float32 \[3, 2, 4\], is uint8"),
        ({"observation": {"a": np.zeros((3, 2, 4), np.uint8)}}, "observation must be an array, is dict"),
        ({"extras": {"value": np.zeros((3, 2), np.float32)}}, "extras has no part 'log_prob'"),
        ({"memory": {"h": np.zeros((2, 8), np.float32)}}, "memory has an unknown part 'h'"),
        ({"action_mask": np.ones((3, 2, 2), bool)}, "has an action_mask, which is not as the run's environment"),
        ({"reward": np.zeros((3, 2, 2), np.float32)}, r"reward must be float32 \[3, 2\], is float32 \[3, 2, 2\]"),
    ],
)
def test_a_trajectory_of_another_run_is_refused(changes, message):
    data = trajectory(**changes).to_dict()
    if message is None:
        same(Trajectory.from_dict(data, SPEC), trajectory())
        return
    with pytest.raises(WireError, match=message):
        Trajectory.from_dict(data, SPEC)


@pytest.mark.parametrize("made", [trajectory, tree_trajectory])
def test_joined_trajectories_can_be_split_again(made):
    first, second = made(slots=2), made(slots=3)
    joined = concatenate([first, second])
    assert joined.num_slots == 5 and len(joined.episodes) == 2
    Trajectory.from_dict(joined.to_dict())
    for part, which in ((first, slice(0, 2)), (second, np.arange(2, 5))):
        again = joined.slots(which)
        again.episodes = part.episodes
        same(again, part)


def test_trajectories_of_different_lengths_cannot_be_joined():
    with pytest.raises(ValueError, match=r"different lengths T .* \[3, 4\]"):
        concatenate([trajectory(), trajectory(steps=4)])


def test_an_illegal_action_in_one_part_of_a_tree_is_named():
    mask = np.ones((3, 2, 5), bool)
    given = tree_trajectory()
    mask[1, 0, given.action[0][1, 0]] = False
    given.action_mask = (mask,)
    with pytest.raises(WireError, match=r"action\.0 holds \d at \[1, 0\], which its mask forbids"):
        Trajectory.from_dict(given.to_dict())
