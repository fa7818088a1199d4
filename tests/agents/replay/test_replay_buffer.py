"""The replay draws allowed sequences, with the right probabilities, and nothing else."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.replay_streams import Streams, where

from agents.replay import ReplayBuffer, arrays, saving
from agents.trajectories import Trajectory
from warren.errors import ConfigurationError

RARE = 1e-4  # p-value below which a chi-square test fails


def filled(*segments: Trajectory, capacity: int = 1000, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, **options)
    for number, segment in enumerate(segments):
        buffer.add(segment, "a", number)
    return buffer


def fair(drawn: Sequence[object], expected: Mapping[Any, float]) -> None:
    counts = Counter(drawn)
    assert counts.keys() <= expected.keys()
    assert chisquare([counts[key] for key in expected], [len(drawn) * p for p in expected.values()]).pvalue > RARE


class Model:
    """A simple model of the buffer: all steps in order, and the sequences that may be drawn."""

    def __init__(self, capacity: int, length: int, memory: bool) -> None:
        self.capacity, self.length, self.memory = capacity, length, memory
        self.rows: list[tuple[int, int, int]] = []  # stream, first step, steps
        self.linked: set[tuple[int, int]] = set()  # (stream, step) of rows that continue the row before

    def add(self, segment: Trajectory, goes_on: bool) -> None:
        steps = len(segment.terminated)
        for stream, step in segment.observation[0].astype(int).tolist():
            self.rows.append((stream, step, steps))
            if goes_on:
                self.linked.add((stream, step))
        self.rows = self.rows[-(self.capacity // steps) :]

    def may_begin(self) -> set[tuple[int, int]]:
        kept = {(stream, first + t) for stream, first, steps in self.rows for t in range(steps)}
        breaks = {(stream, first) for stream, first, _ in self.rows} - self.linked

        def whole(stream: int, step: int) -> bool:
            later = [(stream, step + t) for t in range(1, self.length)]
            return kept.issuperset(later) and not breaks.intersection(later)

        starts = {(stream, first) for stream, first, _ in self.rows} if self.memory else kept
        return {start for start in starts if whole(*start)}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(1, 6),
    length=st.integers(1, 13),
    rows=st.integers(3, 12),
    memory=st.booleans(),
    by_priority=st.booleans(),
    events=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["send", "send", "lose", "again"])), max_size=14),
)
@example(steps=2, length=6, rows=6, memory=True, by_priority=True, events=[(0, "send")] * 5)  # three rows per sequence
@example(steps=2, length=5, rows=8, memory=False, by_priority=False, events=[(0, "send"), (1, "send")] * 4)
def test_draws_and_their_number_agree_with_a_model(
    steps: int, length: int, rows: int, memory: bool, by_priority: bool, events: list[tuple[int, str]]
) -> None:
    capacity = rows * steps + steps - 1
    buffer = ReplayBuffer(capacity, length, 0.6 if by_priority else None, seed=3)
    model = Model(capacity, length, memory)
    sources = [Streams(slots, number, memory) for number, slots in enumerate((1, 2, 3))]
    gaps = {0, 1, 2}
    for index, what in events:
        source = sources[index]
        if what == "again":  # the environments were restarted, the segment numbers continue
            source.step += 50
            gaps.add(index)
        segment = source.segment(steps)
        if what == "lose":
            gaps.add(index)
            continue
        buffer.add(segment, str(index), source.number)
        model.add(segment, index not in gaps)
        gaps.discard(index)
        expected = model.may_begin()
        assert buffer.startable == len(expected)
        assert len(buffer) == sum(row[2] for row in model.rows) <= capacity
        if expected:
            found = set(where(buffer.draw(16).trajectory))
            assert found <= expected
        else:
            with pytest.raises(ValueError, match="no sequence of"):
                buffer.draw(1)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("length", [1, 3, 6])
def test_draws_without_priorities_are_uniform(length: int, memory: bool) -> None:
    source, other = Streams(2, memory=memory), Streams(3, 1, memory=memory)
    buffer = filled(*(source.segment(4) for _ in range(5)), capacity=36, length=length, seed=5)
    buffer.add(other.segment(4), "b", 0)
    model = Model(36, length, memory)
    again, another = Streams(2, memory=memory), Streams(3, 1, memory=memory)
    for number in range(5):
        model.add(again.segment(4), number > 0)
    model.add(another.segment(4), False)
    may = model.may_begin()
    drawn = [start for _ in range(40) for start in where(buffer.draw(50).trajectory)]
    fair(drawn, {start: 1 / len(may) for start in may})


def test_few_allowed_starts_among_many_are_drawn_uniformly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.replay.buffer.MOST_TRIES", 0)
    source = Streams(2)
    buffer = filled(source.segment(8), length=6, seed=5)
    fair(where(buffer.draw(600).trajectory), {(stream, step): 1 / 6 for stream in (0, 1) for step in range(3)})


def test_draws_and_weights_by_priority_follow_the_paper() -> None:
    buffer = filled(Streams(2).segment(3), priority_exponent=0.5, seed=2)
    first = buffer.draw(64, weight_exponent=1.0)
    assert (first.weights == 1).all(), "all new sequences have the same priority"
    priority = {start: 1.0 + index for index, start in enumerate(sorted(set(where(first.trajectory))))}
    assert len(priority) == 6
    buffer.set_priorities(first, np.array([priority[start] for start in where(first.trajectory)]) ** 2 - 1e-6)
    total = sum(priority.values())
    draws = [buffer.draw(50, weight_exponent=0.4) for _ in range(40)]
    starts = [where(draw.trajectory) for draw in draws]
    fair([start for one in starts for start in one], {start: p / total for start, p in priority.items()})
    for draw, drawn in zip(draws, starts, strict=True):
        by_hand = np.array([(6 * priority[start] / total) ** -0.4 for start in drawn])
        assert draw.weights == pytest.approx(by_hand / by_hand.max(), rel=1e-5)
        assert draw.weights.dtype == np.float32


def test_new_sequences_get_the_highest_priority_so_far() -> None:
    source = Streams(1)
    buffer = filled(source.segment(4), priority_exponent=1.0, seed=2)
    draw = buffer.draw(200)
    buffer.set_priorities(draw, np.where(np.array([step for _, step in where(draw.trajectory)]) == 0, 9.0, 1.0))
    buffer.add(source.segment(4), "a", 1)
    drawn = [start for _ in range(20) for start in where(buffer.draw(100).trajectory)]
    fair(drawn, {(0, step): (1 if step in (1, 2, 3) else 9) / 48 for step in range(8)})


def test_priorities_of_overwritten_sequences_are_ignored() -> None:
    source = Streams(1)
    buffer = filled(source.segment(4), capacity=8, priority_exponent=1.0, seed=2)
    draw = buffer.draw(64)
    for number in (1, 2):
        buffer.add(source.segment(4), "a", number)
    buffer.set_priorities(draw, np.full(64, 5.0))
    assert buffer.tree is not None and buffer.tree.priorities[:8].tolist() == [1.0] * 8


def test_a_sequence_that_becomes_whole_can_be_drawn_by_priority() -> None:
    source = Streams(1)
    buffer = filled(source.segment(4), length=3, priority_exponent=1.0)
    assert set(where(buffer.draw(50).trajectory)) == {(0, 0), (0, 1)}
    buffer.add(source.segment(4), "a", 1)
    assert set(where(buffer.draw(200).trajectory)) == {(0, step) for step in range(6)}


@pytest.mark.parametrize("wrong", [[1.0], [1.0, np.nan], [1.0, -1.0], [1.0, np.inf], []])
def test_invalid_priorities_are_refused(wrong: list[float]) -> None:
    buffer = filled(Streams(1).segment(4), priority_exponent=1.0)
    with pytest.raises(ConfigurationError, match=r"the priorities of an update must be \[2\]"):
        buffer.set_priorities(buffer.draw(2), np.array(wrong))


def test_the_buffer_stores_copies() -> None:
    segment = Streams(2).segment(4)
    buffer = filled(segment)
    for array in (segment.observation, segment.reward, segment.last["observation"], segment.cut_observation):
        array[:] = -1
    where(buffer.draw(50).trajectory)


def test_memory_of_large_draws_is_reused_only_without_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.replay.layout.LARGE", 1)
    buffer = filled(Streams(2).segment(8), length=2, seed=3)
    held = [buffer.draw(20).trajectory for _ in range(30)]
    for trajectory in held:
        where(trajectory)
    del trajectory, held
    addresses = {buffer.draw(20).trajectory.reward.__array_interface__["data"][0] for _ in range(30)}
    assert len(addresses) < 30, "some memory must be reused"


def test_nested_observations_with_masks_are_drawn_unchanged() -> None:
    segment = Streams(2).segment(5)
    pair = {"a": segment.observation, "b": (segment.action.astype(np.uint8),)}
    tree = Trajectory(**{
        **{name: getattr(segment, name) for name in ("action", "reward", "terminated", "truncated", "extras", "cut")},
        "observation": pair,
        "last": {"observation": {"a": segment.last["observation"], "b": (np.full(2, 5, np.uint8),)}},
        "version": segment.version, "episodes": segment.episodes, "action_mask": np.ones((5, 2, 3), bool),
    })  # fmt: skip
    drawn = filled(tree, length=2).draw(20).trajectory
    assert drawn.observation["a"].shape == (2, 20, 2) and drawn.observation["b"][0].dtype == np.uint8
    assert np.array_equal(drawn.observation["b"][0], drawn.action) and drawn.action_mask.shape == (2, 20, 3)
    assert np.array_equal(drawn.last["observation"]["b"][0], drawn.action[1] + 1) and drawn.cut_at is None


def test_an_empty_part_of_the_observation_is_drawn_unchanged() -> None:
    segment = Streams(2).segment(5)
    segment.observation = {"a": segment.observation, "b": np.zeros((5, 2, 0), np.float32)}
    segment.last["observation"] = {"a": segment.last["observation"], "b": np.zeros((2, 0), np.float32)}
    segment.cut_at = segment.cut_observation = None
    drawn = filled(segment, length=2).draw(20).trajectory
    assert drawn.observation["a"].shape == (2, 20, 2) and drawn.observation["b"].shape == (2, 20, 0)


def masked_segments(count: int) -> list[Trajectory]:
    """Return segments of 4 steps; as many actions are legal as the step's number, and one more at a cut."""
    source = Streams(2)
    segments = [source.segment(4) for _ in range(count)]
    for segment in segments:
        segment.action_mask = np.arange(20) < segment.action[..., None]
        segment.last["action_mask"] = np.arange(20) < segment.last["observation"][:, 1:]
        segment.cut_action_mask = np.arange(20) < 1 - segment.cut_observation[:, 1:]
    return segments


@pytest.mark.parametrize("saved", [False, True])
def test_masks_after_sequences_and_at_cuts_are_drawn(saved: bool, tmp_path: Path) -> None:
    buffer = filled(*masked_segments(4), length=2)
    if saved:
        saving.save(tmp_path / "r.npz", buffer, {})
        buffer = ReplayBuffer(1000, length=2)
        saving.load(tmp_path / "r.npz", buffer)
    drawn = buffer.draw(400).trajectory
    step = drawn.action[1] + 1
    assert np.array_equal(drawn.last["action_mask"].sum(axis=1), step) and 16 in step, "the newest step is drawn too"
    at = drawn.cut_at
    assert np.array_equal(drawn.cut_action_mask.sum(axis=1), drawn.action[at[:, 0], at[:, 1]] + 1) and len(at)


def test_segments_that_do_not_fit_are_refused_with_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"replay\.capacity: 10 steps hold less than one segment of 4 x 3"):
        filled(Streams(3).segment(4), capacity=10)
    with pytest.raises(ConfigurationError, match="a segment of 5 steps came after those of 4"):
        filled(Streams(3).segment(4), Streams(3).segment(5))


@pytest.mark.parametrize("fallocate", [True, False], ids=["linux", "macos"])
def test_a_replay_larger_than_memory_lies_in_files_and_draws_the_same(
    fallocate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
        monkeypatch.setattr(arrays, "BLOCK", 1000)

    def drawn(**options: Any) -> dict[str, Any]:
        source = Streams(2)
        buffer = filled(*(source.segment(4) for _ in range(9)), capacity=40, length=3, seed=4, **options)
        return buffer.draw(30).trajectory.to_dict()

    np.testing.assert_equal(drawn(in_memory=200, folder=tmp_path / "replay"), drawn())
    assert list((tmp_path / "replay").iterdir()) == [], "a killed process must leave no file behind"
    with pytest.raises(ConfigurationError, match=r"replay: \S+ of 0\.0 GiB is more than the memory .* raise it"):
        drawn(in_memory=200)


@pytest.mark.parametrize("tries", [0, 1 << 16])
@pytest.mark.parametrize("exponent", [None, 0.6])
def test_no_sequence_begins_at_an_invalid_step(
    exponent: float | None, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.replay.buffer.MOST_TRIES", tries)
    source, generator = Streams(2), np.random.default_rng(1)
    buffer, decided = ReplayBuffer(40, 3, exponent, seed=5), dict[tuple[int, int], bool]()
    for number in range(8):  # the oldest are overwritten
        segment = source.segment(4)
        segment.valid = generator.random((4, 2)) < 0.5
        buffer.add(segment, "a", number)
        decided |= {(slot, 4 * number + step): bool(segment.valid[step, slot]) for step in range(4) for slot in (0, 1)}
    may = [(slot, step) for slot in (0, 1) for step in range(12, 30) if decided[slot, step]]
    assert buffer.startable == len(may) < 36
    draws = [buffer.draw(50, 0.4) for _ in range(40)]
    fair([start for draw in draws for start in where(draw.trajectory)], dict.fromkeys(may, 1 / len(may)))
    assert exponent is None or all((draw.weights == 1).all() for draw in draws)


@pytest.mark.parametrize(("length", "options"), [(2, {"unrolls": True}), (2, {"groups": True}), (2, {"memory": True})])
def test_unrolls_groups_and_sequences_with_memory_may_begin_at_invalid_steps(
    length: int, options: dict[str, bool]
) -> None:
    segment = Streams(2, memory=options.pop("memory", False)).segment(4)
    segment.valid, segment.group = np.arange(4)[:, None] > np.zeros(2), np.zeros(2, np.int64)
    buffer = filled(segment, length=length, **options)
    assert 0 in buffer.draw(50).trajectory.action[0]
