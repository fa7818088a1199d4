"""Arrays sent side by side to a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.algorithms import sending

CPU = torch.device("cpu")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("part", [1, 1000, 1 << 20])
def test_columns_are_their_arrays_one_after_the_other(threads: int, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(sending, "PART", part)
    monkeypatch.setattr(sending, "SMALL", 100)
    chance = np.random.default_rng(1)
    columns = {
        "by slot": [chance.normal(size=(slots, 5, 3)).astype(np.float32).transpose(1, 0, 2) for slots in (4, 1, 9, 2)],
        "flags": [chance.random((length, 6)) < 0.5 for length in (3, 8)],
        "images": [chance.integers(0, 256, (2, 3, 4, 4), np.uint8)],
    }
    found = sending.Sending(columns, CPU).sent()
    assert list(found) == list(columns)
    for name, arrays in columns.items():
        expected = np.concatenate([array.reshape(-1, *array.shape[2:]) for array in arrays])
        assert found[name].numpy().dtype == expected.dtype
        np.testing.assert_array_equal(found[name].numpy(), expected)


def test_an_error_in_another_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(sending, "SMALL", 1)
    with pytest.raises(TypeError, match="float64"):
        sending.Sending({"one": [np.zeros((2, 2), np.int64), np.zeros((2, 2))]}, CPU).sent()
