"""A replay saved to a file resumes bit for bit; a damaged or foreign file changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.replay_streams import Streams

from agents.replay import ReplayBuffer, saving
from warren.errors import CheckpointError


def stored(exponent: float | None, memory: bool, capacity: int = 40) -> tuple[ReplayBuffer, Streams]:
    source = Streams(2, memory=memory)
    buffer = ReplayBuffer(capacity, 3, exponent, seed=4)
    for number in range(7):
        buffer.add(source.segment(4), "a", number)
    return buffer, source


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("exponent", [None, 0.7])
def test_draws_and_links_resume_bit_for_bit(exponent: float | None, memory: bool, tmp_path: Path) -> None:
    buffer, source = stored(exponent, memory)
    draw = buffer.draw(10)
    buffer.set_priorities(draw, np.linspace(0, 3, 10))
    saving.save(tmp_path / "r.npz", buffer, {"inserts": 7})
    again = ReplayBuffer(40, 3, exponent, seed=9)
    assert saving.load(tmp_path / "r.npz", again) == {"inserts": 7}
    following = source.segment(4)
    for one in (buffer, again):
        one.add(following, "a", 7)
    assert again.startable == buffer.startable and len(again) == len(buffer)
    first, second = (one.draw(50, 0.5) for one in (buffer, again))
    np.testing.assert_equal(second.trajectory.to_dict(), first.trajectory.to_dict())
    np.testing.assert_equal(second.weights, first.weights)


def test_an_empty_replay_can_be_saved(tmp_path: Path) -> None:
    saving.save(tmp_path / "r.npz", ReplayBuffer(40), {})
    again = ReplayBuffer(40)
    saving.load(tmp_path / "r.npz", again)
    again.add(Streams(2).segment(4))
    assert len(again) == 8


@pytest.mark.parametrize("damage", [b"", b"short", b"PK\x03\x04 and no more", None])
def test_files_that_are_damaged_or_of_another_replay_are_refused(damage: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    saving.save(path, stored(None, False)[0], {})
    if damage is not None:
        path.write_bytes(damage)
    other = ReplayBuffer(80, 3)
    with pytest.raises(CheckpointError, match="cannot be read" if damage is not None else "it holds sequences of 3"):
        saving.load(path, other)
    assert len(other) == 0 and other.startable == 0
    with pytest.raises(CheckpointError, match=r"drawn from in another way|cannot be read"):
        saving.load(path, ReplayBuffer(40, 3, 0.6))


def test_a_replay_of_another_version_is_refused() -> None:
    arrays, meta = stored(None, False)[0].state()
    del meta["ring"]["moments"]
    with pytest.raises(CheckpointError, match="another version of Warren wrote it, without moments"):
        ReplayBuffer(40, 3).load_state(arrays, meta)


def test_a_replay_saved_before_groups_existed_can_be_loaded() -> None:
    arrays, meta = stored(None, False)[0].state()
    del meta["ring"]["together"], arrays["row.led"]
    again = ReplayBuffer(40, 3)
    again.load_state(arrays, meta)
    assert len(again) > 0 and again.ring.together == 1 and not again.ring.led.any()
