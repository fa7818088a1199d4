"""Streams of numbered steps: an observation holds its stream and step, so that a draw can be checked."""

from __future__ import annotations

import numpy as np

from agents.trajectories import Trajectory

END = 7  # episodes end at multiples of this step: truncated at odd ones, terminated at even ones


class Streams:
    """A source of segments [T, N]; slot k of source s is the stream 1000 s + k."""

    def __init__(self, slots: int, source: int = 0, memory: bool = False) -> None:
        self.slots, self.source, self.memory = slots, source, memory
        self.step, self.number = 0, 0

    def segment(self, steps: int) -> Trajectory:
        """Return the next steps of all slots."""
        shape = (steps, self.slots)
        stream = np.broadcast_to(1000 * self.source + np.arange(self.slots), shape)
        step = np.broadcast_to(self.step + np.arange(steps)[:, None], shape)
        ends = (step + 1) % END == 0
        cut = ends & ((step + 1) // END % 2 == 1)
        at = np.argwhere(cut)
        last = np.stack([stream[0], np.full(self.slots, self.step + steps)], axis=1)
        first = {"h": last.astype(np.float32) - [0, steps]}
        self.step += steps
        self.number += 1
        return Trajectory(
            observation=np.stack([stream, step], axis=2).astype(np.float32),
            action=step.astype(np.int64),
            reward=(stream + step / 100).astype(np.float32),
            terminated=ends & ~cut,
            truncated=cut,
            extras={"log_prob": -step.astype(np.float32)},
            last={"observation": last.astype(np.float32)},
            cut={},
            version=np.full(self.slots, self.number),
            episodes=np.zeros((0, 2), np.float32),
            memory={"h": first["h"].astype(np.float32)} if self.memory else {},
            cut_at=at,
            cut_observation=np.stack([stream[cut], -step[cut]], axis=1).astype(np.float32),
        )


def where(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Check the contents of drawn sequences; return the stream and the first step of each."""
    stream, step = trajectory.observation[..., 0], trajectory.observation[..., 1]
    assert (stream == stream[0]).all(), "a sequence mixes two streams"
    assert (np.diff(step, axis=0) == 1).all(), "a sequence has a gap or overwritten steps"
    assert np.array_equal(trajectory.action, step.astype(np.int64))
    assert np.array_equal(trajectory.reward, (stream.astype(np.int64) + step.astype(np.int64) / 100).astype(np.float32))
    assert np.array_equal(trajectory.extras["log_prob"], -step)
    assert np.array_equal(trajectory.terminated | trajectory.truncated, (step + 1) % END == 0)
    assert np.array_equal(trajectory.last["observation"], np.stack([stream[0], step[-1] + 1], axis=1))
    assert trajectory.cut_at is not None and trajectory.cut_observation is not None
    for (t, slot), seen in zip(trajectory.cut_at, trajectory.cut_observation, strict=True):
        assert trajectory.truncated[t, slot] and seen.tolist() == [stream[t, slot], -step[t, slot]]
    assert len(trajectory.cut_at) == trajectory.truncated.sum()
    if trajectory.memory:
        assert np.array_equal(trajectory.memory["h"], np.stack([stream[0], step[0]], axis=1))
    return [(int(a), int(b)) for a, b in zip(stream[0], step[0], strict=True)]
