import numpy as np
import pytest

from agents.segments import Segment, concatenate
from warren.errors import WireError


def segment(steps=3, envs=2, version=4, **changes):
    generator = np.random.default_rng(0)
    shape = (steps, envs)

    def floats(*s):
        return generator.normal(size=s).astype(np.float32)

    fields = {
        "observation": floats(*shape, 4),
        "action": generator.integers(0, 2, shape),
        "log_prob": floats(*shape),
        "value": floats(*shape),
        "reward": floats(*shape),
        "terminated": np.zeros(shape, bool),
        "truncated": np.zeros(shape, bool),
        "final_value": np.zeros(shape, np.float32),
        "bootstrap_value": floats(envs),
        "weight_version": version,
        "episodes": np.array([[21, 21]], np.float32),
    }
    return Segment(**{**fields, **changes})


def test_a_segment_survives_its_dictionary():
    original = segment()
    copy = Segment.from_dict(original.to_dict())
    for name, value in original.to_dict().items():
        np.testing.assert_array_equal(getattr(copy, name), value)
    assert copy.num_steps == 6


def test_the_dictionary_holds_arrays_and_plain_numbers_only():
    assert {type(value) for value in segment().to_dict().values()} == {np.ndarray, int}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": np.zeros((3, 2))}, "'reward' must be float32, is float64"),
        ({"reward": np.zeros(3, np.float32)}, r"'reward' must be \[T, N\] with T, N >= 1, is \[3\]"),
        ({"reward": np.zeros((0, 2), np.float32)}, r"'reward' must be \[T, N\] with T, N >= 1, is \[0, 2\]"),
        ({"terminated": np.zeros((3, 2), np.int8)}, "'terminated' must be bool, is int8"),
        ({"truncated": np.zeros((2, 3), bool)}, r"'truncated' must be \[3, 2\], is \[2, 3\]"),
        ({"value": [1.0]}, "'value' must be an array, is list"),
        ({"bootstrap_value": np.zeros(3, np.float32)}, r"'bootstrap_value' must be \[2\], is \[3\]"),
        ({"observation": np.zeros((3, 1, 4), np.float32)}, r"'observation' must be \[3, 2, \.\.\.\], is \[3, 1, 4\]"),
        ({"observation": np.zeros((3, 2, 4), object)}, "'observation' must be numeric, is object"),
        ({"action": np.zeros((3, 2), np.int32)}, "'action' must be int64 or float32, is int32"),
        ({"episodes": np.zeros((1, 3), np.float32)}, r"'episodes' must be \[K, 2\], is \[1, 3\]"),
        ({"observation": np.full((3, 2, 4), np.nan, np.float32)}, r"'observation' holds nan at \[0, 0, 0\]"),
        ({"reward": np.diag([0, np.inf, 0])[:, :2].astype(np.float32)}, r"'reward' holds inf at \[1, 1\]"),
        ({"weight_version": 1.5}, "'weight_version' must be an int, is 1.5"),
        ({"weight_version": True}, "'weight_version' must be an int, is True"),
    ],
)
def test_a_field_that_is_wrong_is_named(changes, message):
    with pytest.raises(WireError, match=message):
        Segment.from_dict(segment(**changes).to_dict())


def test_missing_and_unknown_fields_are_all_named():
    data = segment().to_dict()
    data["rewards"] = data.pop("reward")
    del data["value"]
    with pytest.raises(WireError, match=r"no field 'value'.*no field 'reward'.*unknown field 'rewards'"):
        Segment.from_dict(data)


def test_every_wrong_field_is_named_at_once():
    with pytest.raises(WireError, match=r"(?s)'log_prob'.*'value'"):
        Segment.from_dict(segment(log_prob=np.zeros(1), value=np.zeros(1)).to_dict())


def test_concatenation_joins_environments_and_keeps_the_oldest_version():
    first, second = segment(version=7), segment(envs=3, version=5)
    joined = concatenate([first, second])
    assert joined.observation.shape == (3, 5, 4)
    assert joined.bootstrap_value.shape == (5,)
    assert joined.episodes.shape == (2, 2)
    assert joined.weight_version == 5
    np.testing.assert_array_equal(joined.reward[:, 2:], second.reward)
    Segment.from_dict(joined.to_dict())


def test_segments_of_different_lengths_cannot_be_joined():
    with pytest.raises(ValueError, match=r"different lengths T .* \[3, 4\]"):
        concatenate([segment(), segment(steps=4)])
