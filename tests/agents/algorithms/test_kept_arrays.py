"""Buffers of batches are reused once nothing refers to them, and not before."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import build_algorithm, build_policy
from agents.algorithms import kept_arrays
from agents.algorithms.batches import Batch
from agents.algorithms.kept_arrays import KeptArrays, joined, selected
from agents.algorithms.peers import ALONE, cuts

FLOAT = np.dtype(np.float32)
SPACE = Box(-1, 1, (4,), np.float32)


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """Give the test its own set of buffers, which keeps small arrays too."""
    kept = KeptArrays()
    monkeypatch.setattr(kept_arrays, "KEPT", kept)
    monkeypatch.setattr(kept_arrays, "SMALLEST", 1)
    return kept


def place(array):
    return array.__array_interface__["data"][0]


def test_a_buffer_without_references_is_reused(kept):
    array = kept.empty((4, 8), FLOAT)
    where = place(array)
    del array
    again = kept.empty((8, 3), FLOAT)  # smaller, and of another shape
    assert place(again) == where and again.shape == (8, 3) and again.flags.c_contiguous


HOLDERS = {
    "the array": lambda array: array,
    "a slice": lambda array: array[2:3],
    "a tensor": torch.from_numpy,
    "a view of a tensor": lambda array: torch.from_numpy(array).flatten()[3:5],
    "a graph": lambda array: (torch.from_numpy(array) * torch.ones(8, requires_grad=True)).sum(),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_a_buffer_with_a_reference_is_not_reused(kept, hold):
    array = kept.empty((4, 8), FLOAT)
    where = place(array)
    held = hold(array)
    del array
    assert place(kept.empty((4, 8), FLOAT)) != where
    del held
    places = {place(one) for one in [kept.empty((4, 8), FLOAT) for _ in range(2)]}
    assert where in places and len(places) == 2


def test_the_number_of_buffers_is_bounded_and_dropped_ones_stay_intact():
    kept = KeptArrays(most=2)
    arrays = [kept.empty((16,), FLOAT) for _ in range(5)]
    for number, array in enumerate(arrays):
        array[:] = number
    del arrays[3:]
    assert len(kept._buffers[False]) == 2
    for _ in range(3):
        kept.empty((16,), FLOAT)[:] = -1
    assert [array[0] for array in arrays] == [0, 1, 2]


def test_a_small_array_does_not_take_a_buffer_of_twice_its_size(kept):
    large = kept.empty((100,), FLOAT)
    where = place(large)
    del large
    assert place(kept.empty((10,), FLOAT)) != where


def test_threads_never_share_a_buffer(kept):
    def use(number):
        for _ in range(200):
            array = kept.empty((64,), np.dtype(np.int64))
            array[:] = number
            if not (array == number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(4)))


def test_a_batch_that_is_read_while_the_next_is_built_is_not_overwritten():
    policy = build_policy({}, SPACE, Discrete(2), 1)
    first, second, third = (random_trajectory(policy, seed=seed) for seed in range(3))
    batch = Batch(policy, [first])
    where = batch.observation.data_ptr()
    (minibatch,) = batch.minibatches(cuts(len(batch), len(batch), ALONE), torch.arange(len(batch)), {})
    following = Batch(policy, [second])
    del batch
    Batch(policy, [third])  # may reuse the buffer of the first
    np.testing.assert_array_equal(minibatch.observation, first.observation.reshape(-1, 4))
    np.testing.assert_array_equal(following.observation, second.observation.reshape(-1, 4))
    assert where != following.observation.data_ptr()


@pytest.mark.parametrize("name", ["ppo", "appo", "impala"])
def test_reused_buffers_change_no_bit_of_an_update(name, monkeypatch):
    weights = []
    for smallest in (1, 1 << 60):
        monkeypatch.setattr(kept_arrays, "SMALLEST", smallest)
        policy = build_policy({"core": {"name": "gru", "size": 8}}, SPACE, Discrete(2), 1)
        plain = build_policy({}, SPACE, Discrete(2), 1)
        algorithm = build_algorithm(name, {}, policy, 1)
        for seed in range(3):
            trajectory = random_trajectory(plain, seed=seed)
            trajectory.memory = {part: memory.numpy() for part, memory in policy.initial_memory(4).items()}
            algorithm.update([trajectory, trajectory])
        weights.append(policy.state_dict())
    for part, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][part]), part


def test_joined_and_selected_equal_numpy_and_torch(kept):
    random = np.random.default_rng(0)
    for parts in (
        [random.normal(size=(3, 2, 5)), random.normal(size=(3, 4, 5))],
        [random.integers(0, 9, (3, 1)), random.integers(0, 9, (3, 2))],
        [np.ones((2, 2), bool), np.zeros((2, 2), np.float32)],
    ):
        axis = 1
        np.testing.assert_array_equal(joined(parts, axis), np.concatenate(parts, axis))
        assert joined(parts, axis).dtype == np.concatenate(parts, axis).dtype
    tensor = torch.arange(24).reshape(4, 3, 2) % 2 == 0
    for along in (0, 1):
        order = torch.tensor([2, 0])
        assert torch.equal(selected(tensor, along, order), tensor.index_select(along, order))
    leaf = torch.ones(4, 3, requires_grad=True)
    assert selected(leaf, 0, torch.tensor([1])).requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_buffers_for_a_gpu_are_pinned_and_kept_apart(kept):
    array = kept.empty((64,), FLOAT, pinned=True)
    where = place(array)
    assert torch.from_numpy(array).is_pinned()
    del array
    assert place(kept.empty((64,), FLOAT)) != where
    assert place(kept.empty((64,), FLOAT, pinned=True)) == where
