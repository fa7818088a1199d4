"""A user's own replay from a file: those of examples/replay draw as they say, and wrong ones are refused."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.replay_streams import Streams, where

from agents.replay import Buffer, BufferOptions, ReplayBuffer, build_buffer, saving
from warren.errors import CheckpointError, ConfigurationError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples/replay"
COMBINED, RANKED = f"{EXAMPLES / 'combined.py'}:build", f"{EXAMPLES / 'ranked.py'}:build"

OWN = """
import numpy as np

from agents.replay import Draw, ReplayBuffer

class Bare:
    startable = 1

    def __init__(self, settings, options):
        self.kind, self.inner, self.given = settings.get("kind"), ReplayBuffer(**vars(options)), []

    def __len__(self):
        return len(self.inner)

    def add(self, trajectory, source, number):
        self.inner.add(trajectory, source, number)

    def draw(self, count, weight_exponent):
        if self.kind == "fails":
            return 1 / 0
        if self.kind == "nothing":
            return None
        drawn = self.inner.draw(count + (self.kind == "more"))
        return Draw(drawn.trajectory, weights=[1.0, np.nan] if self.kind == "weights" else None)

class Ranked(Bare):
    def set_priorities(self, draw, priorities):
        self.given.append(priorities.tolist())

class Kept(Bare):
    def state(self):
        return {"made": np.array([object()])} if self.kind == "objects" else {"made": np.arange(3)}, {"kind": self.kind}

    def load_state(self, arrays, meta):
        self.given.append((arrays["made"].sum(), meta["typo" if self.kind == "typo" else "kind"]))

class Short(Bare):
    startable = None

    def add(self, trajectory):
        pass

class Wrong(Ranked):
    draw = set_priorities = lambda self: None

nothing = lambda settings, options: None
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def built(file: Path, name: str, kind: str | None = None, in_checkpoint: bool = False, **options: Any) -> Buffer:
    buffer = build_buffer(f"{file}:{name}", {"kind": kind}, BufferOptions(100, **options), in_checkpoint)
    buffer.add(Streams(slots=2).segment(8), "a", 0)
    return buffer


def test_without_a_name_the_buffer_is_the_built_in_one() -> None:
    taken = [*inspect.signature(ReplayBuffer).parameters]
    assert taken == [one.name for one in fields(BufferOptions)], "the options are its arguments"
    assert type(build_buffer(None, {}, BufferOptions(100))) is ReplayBuffer


@pytest.mark.parametrize("length", [1, 3])
def test_the_example_has_some_of_the_newest_steps_in_every_draw(length: int) -> None:
    settings, streams = {"newest": 2, "among": 16}, Streams(slots=2)
    buffer = build_buffer(COMBINED, settings, BufferOptions(1000, length=length))
    assert buffer.startable == len(buffer) == 0
    for number in range(50):
        buffer.add(streams.segment(8), "a", number)
    begins = []
    for _ in range(50):
        found = where(buffer.draw(8, 0.0).trajectory)
        assert len(found) == 8 and all(392 <= step < 400 for _, step in found[:2])
        begins += [step for _, step in found[2:]]
    assert min(begins) < 50 and len(buffer) == 800


def test_the_example_refuses_priorities_and_wrong_settings() -> None:
    with pytest.raises(ConfigurationError, match=r"evenly, not by priority; give algorithm.prioritized=false"):
        build_buffer(COMBINED, {}, BufferOptions(100, priority_exponent=0.6))
    with pytest.raises(ConfigurationError, match=r"newest.* of replay.buffer_settings|'newst'.*did you mean newest"):
        build_buffer(COMBINED, {"newst": 3}, BufferOptions(100))


def ranked(priorities: np.ndarray, alpha: float, sort_every: int = 1) -> tuple[Any, np.ndarray]:
    """Return the example with an item for each of these priorities, and the items in the order of the priorities."""
    buffer = build_buffer(RANKED, {"sort_every": sort_every}, BufferOptions(1000, priority_exponent=alpha, seed=3))
    buffer.add(Streams(slots=1).segment(len(priorities)), "a", 0)
    of_all = buffer.theirs.of_items(np.arange(len(priorities)))  # type: ignore[attr-defined]
    buffer.set_priorities(of_all, priorities)
    return buffer, of_all.items


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_ranks_decide_chances_and_weights_as_in_the_paper(alpha: float) -> None:
    priorities = np.random.default_rng(5).permutation(np.logspace(-3, 3, 50))
    buffer, items = ranked(priorities, alpha)
    rank = np.empty(50)
    rank[np.argsort(-priorities)] = np.arange(1, 51)
    chance = rank**-alpha / (rank**-alpha).sum()
    counts, draws = np.zeros(50), 2000
    for _ in range(draws):
        drawn = buffer.draw(32, 0.5)
        counts += np.bincount(drawn.items, minlength=50)
        weights = (50 * chance[drawn.items]) ** -0.5
        assert drawn.weights is not None
        np.testing.assert_allclose(drawn.weights, weights / weights.max(), rtol=1e-5)
    # One draw is made in each of 32 parts, so counts vary less than those of independent draws.
    expected = 32 * draws * chance
    assert (abs(counts - expected) < 4.5 * np.sqrt(expected)).all()
    assert counts.sum() == 32 * draws and [step for _, step in where(drawn.trajectory)] == drawn.items.tolist()
    assert items.tolist() == list(range(50))


def test_ranks_follow_new_priorities_once_they_are_sorted_again() -> None:
    buffer, _ = ranked(np.array([1.0, 2.0, 1e3]), alpha=20.0, sort_every=3)
    assert buffer.draw(8, 0.0).items.tolist() == [2] * 8
    every = buffer.theirs.of_items(np.arange(3))
    buffer.set_priorities(every, np.array([5.0, 2.0, 1.0]))
    assert buffer.draw(8, 0.0).items.tolist() == buffer.draw(8, 0.0).items.tolist() == [2] * 8
    assert buffer.draw(8, 0.0).items.tolist() == [0] * 8, "the fourth draw sorts again"


def test_ranks_draw_no_sequence_with_an_overwritten_end() -> None:
    streams, options = Streams(slots=2), BufferOptions(64, length=3, priority_exponent=0.7)
    buffer = build_buffer(RANKED, {"sort_every": 1000}, options)
    buffer.add(streams.segment(8), "a", 0)
    for number in range(1, 12):  # the buffer wraps around
        buffer.add(streams.segment(8), "a", number)
        begins = [step for _, step in where(buffer.draw(64, 0.4).trajectory)]
        assert max(begins) + 3 <= streams.step and min(begins) >= streams.step - 32


def test_the_example_by_ranks_is_resumed_from_its_state() -> None:
    buffer, _ = ranked(np.array([1.0, 2.0, 1e3]), alpha=20.0)
    again = build_buffer(RANKED, {}, BufferOptions(1000, priority_exponent=20.0), in_checkpoint=True)
    again.load_state(*buffer.state())
    assert again.draw(8, 0.0).items.tolist() == [2] * 8


def test_the_example_by_ranks_refuses_even_draws_and_wrong_settings() -> None:
    with pytest.raises(ConfigurationError, match=r"by priority; give algorithm.prioritized=true"):
        build_buffer(RANKED, {}, BufferOptions(100))
    with pytest.raises(ConfigurationError, match=r"sort_every=0 is not at least 1; raise it"):
        build_buffer(RANKED, {"sort_every": 0}, BufferOptions(100, priority_exponent=0.7))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("uniform", {}, r"replay.buffer: 'uniform' names no function; write path/to/file.py:build"),
        ("{file}:Baer", {}, r"replay.buffer 'Baer' does not exist; did you mean Bare"),
        ("/nope.py:Bare", {}, r"replay.buffer '/nope.py:Bare': there is no file"),
        ("{file}:nothing", {}, r"made a NoneType without add, draw, __len__, startable, which this run"),
        ("{file}:Bare", {"priority_exponent": 0.6}, r"made a Bare without set_priorities, which"),
        ("{file}:Bare", {"groups": True}, r"made a Bare without together, which"),
    ],
)
def test_a_buffer_that_lacks_something_is_refused(file: Path, name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        build_buffer(name.format(file=file), {}, BufferOptions(100, **options))
    assert len(caught.value.problems) == 1


def test_all_problems_of_a_buffer_are_told_at_once(file: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_buffer(f"{file}:Short", {}, BufferOptions(100), in_checkpoint=True)
    startable, kept, add = caught.value.problems
    assert "whose startable is None, not a number of sequences; make it a property" in startable
    assert kept.startswith("replay.in_checkpoint: ") and kept.endswith("add them, or leave replay.in_checkpoint out")
    assert "whose add() does not take (trajectory, source, number); give it these arguments" in add
    with pytest.raises(ConfigurationError) as caught:
        build_buffer(f"{file}:Wrong", {}, BufferOptions(100, priority_exponent=0.6))
    assert ["draw()" in one or "set_priorities()" in one for one in caught.value.problems] == [True, True]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("fails", r"draw\(\) failed at .*own.py:20: ZeroDivisionError"),
        ("nothing", r"draw\(2, 0\) gave a NoneType; return an agents.replay.Draw of a Trajectory"),
        ("more", r"gave a Trajectory of \[1, 3\] steps x slots; this run's algorithm needs \[1, 2\]"),
        ("weights", r"gave weights of shape \[2\]; give \[2\] finite numbers of at least 0, or None"),
    ],
)
def test_a_wrong_draw_is_refused_with_what_is_wanted(file: Path, kind: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        built(file, "Bare", kind).draw(2, 0.0)


def test_priorities_reach_the_buffer_and_weights_are_one_where_it_gives_none(file: Path) -> None:
    ranked = built(file, "Ranked", priority_exponent=0.6)
    drawn = ranked.draw(2, 0.4)
    assert drawn.weights is not None and drawn.weights.tolist() == [1, 1] and drawn.weights.dtype == np.float32
    ranked.set_priorities(drawn, np.array([3, 0.5]))
    assert ranked.theirs.given == [[3, 0.5]]  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"the priorities of an update must be \[2\] finite numbers"):
        ranked.set_priorities(drawn, np.array([np.nan, 1]))
    bare = built(file, "Bare")
    drawn = bare.draw(2, 0.0)
    assert drawn.weights is None
    bare.set_priorities(drawn, np.ones(2))  # taken by none


def test_a_buffer_is_kept_in_a_file_and_another_one_does_not_take_it_up(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "replay.npz"
    saving.save(path, built(file, "Kept", "first", in_checkpoint=True), {"inserts": 16})
    resumed = built(file, "Kept", "second")
    assert saving.load(path, resumed) == {"inserts": 16} and resumed.theirs.given == [(3, "first")]  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match=r"load_state\(\) of .* failed at .*own.py:.*: KeyError: 'typo'"):
        saving.load(path, built(file, "Kept", "typo"))
    with pytest.raises(CheckpointError, match=r"it was written by a Kept of replay.buffer"):
        saving.load(path, ReplayBuffer(100))
    with pytest.raises(CheckpointError, match=r"written by a Kept, and this run's replay.buffer is a Combined"):
        saving.load(path, build_buffer(COMBINED, {}, BufferOptions(100)))
    saving.save(path, ReplayBuffer(100), {})
    with pytest.raises(CheckpointError, match=r"written by a ReplayBuffer, and this run's replay.buffer is a Kept"):
        saving.load(path, built(file, "Kept"))


def test_a_state_that_would_be_pickled_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"state\(\) gave made, which a checkpoint cannot hold; give arrays"):
        saving.save(tmp_path / "replay.npz", built(file, "Kept", "objects"), {})
    assert not list(tmp_path.glob("*replay*"))


@pytest.mark.parametrize("name", ["file", "allow_pickle", "meta"])
def test_a_state_with_a_name_that_the_file_needs_is_refused(file: Path, tmp_path: Path, name: str) -> None:
    file.write_text(OWN.replace('{"made": np.arange(3)}', f'{{"{name}": np.arange(3)}}'))
    with pytest.raises(ConfigurationError, match=rf"state\(\) gave {name}, .* called meta, file, allow_pickle"):
        saving.save(tmp_path / "replay.npz", built(file, "Kept"), {})
