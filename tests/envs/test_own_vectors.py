"""A user's own class that is a vector of environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envs
from envs import EnvSettings
from envs.vector import classic_control
from envs.vector.own import OwnVectorEnv
from envs.vector.sync import SyncVectorEnv
from warren.errors import ConfigurationError

COUNTER = '''
import gymnasium, numpy as np
from gymnasium.vector import AutoresetMode

class Counter(gymnasium.vector.VectorEnv):
    """Counts steps from the seed on, into one array; copy i ends after 3 + i of them."""
    metadata = {"autoreset_mode": AutoresetMode.MODE}

    def __init__(self, num_envs, by=1):
        self.num_envs, self.by = num_envs + EXTRA, by
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.seen = np.zeros((num_envs, 1), np.float32)
        self.steps = np.zeros(num_envs, int)

    def reset(self, *, seed=None, options=None):
        self.seen[:, 0] = 0 if seed is None else seed
        self.steps[:] = 0
        return self.seen, {}

    def step(self, actions):
        self.seen += self.by
        self.steps += 1
        ended = self.steps == 3 + np.arange(len(self.steps))
        info = {}
        if ended.any() and FINAL:
            final = np.full(len(self.steps), None, object)
            for i in np.flatnonzero(ended):
                final[i] = self.seen[i].copy()
            info = {"final_obs": final, "_final_obs": ended}
        self.seen[ended], self.steps[ended] = 0, 0
        return self.seen, np.asarray(actions, float), ended, np.zeros_like(ended), info
'''


@pytest.fixture
def counter(tmp_path: Path) -> Any:
    def write(mode: str = "SAME_STEP", extra: int = 0, final: bool = True) -> str:
        path = tmp_path / "counter.py"
        path.write_text(COUNTER.replace("MODE", mode).replace("EXTRA", str(extra)).replace("FINAL", str(final)))
        return f"{path}:Counter"

    return write


def test_a_users_vector_is_stepped_unchanged_and_its_episodes_are_counted(counter: Any) -> None:
    vector = envs.make_vector(counter(), 2, seed=10, by=2)
    assert isinstance(vector, OwnVectorEnv)
    first, _ = vector.reset()
    seen = [first, *(vector.step(np.array([1, 0]))[0] for _ in range(2))]
    assert [each.tolist() for each in seen] == [[[10], [11]], [[12], [13]], [[14], [15]]], "observations must be copies"
    observation, reward, terminated, truncated, info = vector.step(np.array([1, 0]))
    assert observation.tolist() == [[0], [17]] and info["final_obs"][0].tolist() == [16]
    assert (terminated.tolist(), truncated.tolist(), reward.tolist()) == ([True, False], [False, False], [1, 0])
    vector.step(np.array([1, 0]))
    assert vector.pop_episodes().tolist() == [[3, 3], [0, 4]]


def test_a_users_vector_can_be_a_single_environment_or_run_in_processes(counter: Any) -> None:
    env_id = counter()
    one = envs.make(env_id)
    assert one.reset(seed=5)[0].tolist() == [5]
    assert [one.step(1)[0].tolist() for _ in range(3)] == [[6], [7], [8]], (
        "the last observation is that at the episode's end"
    )
    shared = envs.make_vector(EnvSettings(env_id, workers=2), 4, seed=0)
    try:
        shared.reset()
        assert shared.step(np.ones(4, int))[0].tolist() == [[1], [2], [3], [4]]
    finally:
        shared.close()
    assert isinstance(envs.make_vector(EnvSettings(env_id, vectorization="sync"), 2, seed=0), SyncVectorEnv)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"mode": "NEXT_STEP"}, "SAME_STEP"), ({"extra": 1}, "2 copies were asked for, its num_envs is 3")],
)
def test_an_unsuitable_vector_is_refused_with_the_reason(counter: Any, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        envs.make_vector(counter(**wrong), 2, seed=0)


def test_ends_of_episodes_may_be_numbers(counter: Any) -> None:
    env_id = counter()
    path = Path(env_id.rpartition(":")[0])
    numbers = "ended.astype(np.int8), [0] * len(ended)"
    path.write_text(path.read_text().replace("ended, np.zeros_like(ended)", numbers))
    vector = envs.make_vector(env_id, 2, seed=0)
    vector.reset()
    for _ in range(3):
        _, _, terminated, truncated, _ = vector.step(np.ones(2, int))
    assert terminated.dtype == truncated.dtype == np.bool_
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert vector.pop_episodes().tolist() == [[3, 3]]


def test_an_end_without_the_last_observation_is_named(counter: Any) -> None:
    vector = envs.make_vector(counter(final=False), 1, seed=0)
    vector.reset()
    for _ in range(2):
        vector.step(np.ones(1, int))
    with pytest.raises(ValueError, match="final_obs"):
        vector.step(np.ones(1, int))


@pytest.mark.skipif(classic_control.COMPILED.lacking() is not None, reason="no C compiler")
def test_the_example_in_c_plays_catch_and_repeats_by_seed() -> None:
    catch = str(Path(__file__).resolve().parents[2] / "examples/compiled/catch.py:Catch")

    def played(seed: int) -> tuple[np.ndarray, np.ndarray]:
        vector = envs.make_vector(catch, 8, seed=seed)
        seen, _ = vector.reset()
        for _ in range(90):  # ten games of each copy
            ball, paddle = seen[:, :9].reshape(8, -1).argmax(1) % 5, seen[:, 9].argmax(1)
            seen, _, over, _, info = vector.step(np.sign(ball - paddle) + 1)
            assert ("final_obs" in info) == over.any()
        return vector.pop_episodes(), seen

    caught, seen = played(1)
    np.testing.assert_array_equal(caught, [[1.0, 9.0]] * 80)
    np.testing.assert_array_equal(played(1)[1], seen)
    assert (played(2)[1] != seen).any()
