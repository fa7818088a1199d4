"""Tests of a served actor's answers to groups, and of the trajectories that it makes of their calls."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import envs
from agents import Policy, build_policy
from agents.trajectories import Trajectory
from envs import EnvSettings
from warren.errors import WireError
from warren.trees import leaves
from workers.env.group import Group
from workers.rollout.sampler import SamplerClosed
from workers.rollout.served.sampler import ServedSampler
from workers.rollout.vector_sampler import VectorSampler

OBSERVATIONS, ACTIONS = Box(-10, 10, (2,), np.float32), Discrete(3)
LSTM = {"core": {"name": "lstm", "size": 4}}
PLAIN: dict[str, Any] = {}


def policy_of(network: dict[str, Any], observations: Any = OBSERVATIONS, actions: Any = ACTIONS) -> Policy:
    return build_policy({"hidden_sizes": [8], **network}, observations, actions, 0)


def sampler_of(network: dict[str, Any] = PLAIN, length: int = 3, slots: int = 2, **more: Any) -> ServedSampler:
    sampler = ServedSampler(policy_of(network), length, slots, 0, **more)
    sampler.load(sampler.policy.state_dict(), 5)
    return sampler


def call(group: str, step: int, slots: int = 2, **more: Any) -> dict[str, Any]:
    """Return a call of a group whose environments show `step` and go on."""
    no = np.zeros(slots, np.bool_)
    outcome = {
        "reward": np.full(slots, step, np.float32), "terminated": no, "truncated": no, "cut": None,
        "episodes": np.zeros((0, 2), np.float32),
    }  # fmt: skip
    observation = np.full((slots, 2), step, np.float32)
    made = {"group": group, "step": step, "observation": observation, "outcome": outcome if step else None}
    return {**made, "memory": None, **more}


def checked(sampler: ServedSampler) -> Trajectory:
    return Trajectory.from_dict(sampler.collect(3).to_dict(), sampler.policy.spec())


@pytest.mark.parametrize("network", [{}, LSTM])
@pytest.mark.parametrize("steps", [500, 7])
def test_a_served_group_gives_the_same_trajectories_as_an_actors_own(
    network: dict[str, Any], steps: int, one_thread: None
) -> None:
    settings = EnvSettings("CartPole-v1", {"max_episode_steps": steps}, vectorization="sync")
    policy = policy_of(network, *envs.spaces(settings))
    own = VectorSampler(envs.make_vector(settings, 4, 11), policy, 3)
    own.load(policy.state_dict(), 5)
    sampler = ServedSampler(policy, 20, 4, 3)
    sampler.load(policy.state_dict(), 5)
    group = Group("a", settings, 4, 11)
    for _ in range(2):
        while not sampler._complete:
            (answer,) = sampler.act([group.call()])
            assert isinstance(answer, dict)
            group.step(answer)
        served, wanted = sampler.collect(20).to_dict(), own.collect(20).to_dict()
        assert served.keys() == wanted.keys()
        for name, tree in wanted.items():
            for (path, expected), (_, found) in zip(leaves(tree), leaves(served[name]), strict=True):
                assert found.dtype == expected.dtype, (name, path)
                np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=f"{name}.{path}")


def test_masks_of_a_group_are_obeyed_and_kept(one_thread: None) -> None:
    settings = EnvSettings("Taxi-v4")
    observed, actions, masked = envs.describe(settings)
    sampler, group = (
        ServedSampler(policy_of({}, observed, actions), 20, 2, 3, legal_actions=masked),
        Group("a", settings, 2, 11),
    )
    sampler.load(sampler.policy.state_dict(), 5)
    while not sampler._complete:
        (answer,) = sampler.act([group.call()])
        assert isinstance(answer, dict)
        group.step(answer)
    trajectory = Trajectory.from_dict(sampler.collect(20).to_dict(), sampler.policy.spec(legal_actions=True))
    assert trajectory.action_mask.shape == (20, 2, 6) and not trajectory.action_mask.all()
    without = group.call() | {"action_mask": None}
    assert "action_mask must be an array" in str(sampler.act([without])[0])


def test_groups_that_ask_together_share_a_forward_pass_and_get_their_own_rows() -> None:
    sampler = sampler_of(slots=5)
    asked: list[int] = []
    step = sampler.policy.step
    sampler.policy.step = lambda *given, **more: (asked.append(len(given[0])), step(*given, **more))[1]  # type: ignore[method-assign]
    for number in range(4):
        answers = sampler.act([call("a", number), call("b", number, slots=3)])
        assert [len(answer["action"]) for answer in answers if isinstance(answer, dict)] == [2, 3]
    assert asked == [5, 5, 5, 5]
    trajectory = checked(sampler)
    assert trajectory.num_slots == 5 and trajectory.observation[:, :, 0].T.tolist() == [[0, 1, 2]] * 5
    assert trajectory.reward.T.tolist() == [[1, 2, 3]] * 5
    assert trajectory.last["observation"].tolist() == [[3, 3]] * 5
    assert trajectory.version.tolist() == [5] * 5


def test_a_repeated_call_is_answered_as_before_and_counts_once() -> None:
    sampler = sampler_of()
    (first,) = sampler.act([call("a", 0)])
    again = sampler.act([call("a", 0), call("a", 0)])
    assert all(answer is first for answer in again)
    (second, same) = sampler.act([call("a", 1), call("a", 1)])
    assert same is second and second is not first
    for number in (2, 3):
        sampler.act([call("a", number)])
    assert checked(sampler).observation[:, 0, 0].tolist() == [0, 1, 2]


def test_a_group_that_comes_from_another_actor_begins_a_trajectory() -> None:
    sampler = sampler_of()
    for number in (0, 1, 9, 10, 11, 12):  # decisions 2 to 8 were another actor's
        sampler.act([call("a", number)])
    trajectory = checked(sampler)
    assert trajectory.observation[:, 0, 0].tolist() == [9, 10, 11] and trajectory.reward[:, 0].tolist() == [10, 11, 12]


def test_a_wrong_call_is_refused_and_costs_no_other_its_answer() -> None:
    sampler = sampler_of()
    wrong = call("a", 0, observation=np.zeros((2, 3), np.float32))
    answers = sampler.act([wrong, call("b", 0)])
    assert isinstance(answers[0], WireError) and "group a: observation must be float32 [2, 2]" in str(answers[0])
    assert isinstance(answers[1], dict)


def test_new_weights_in_the_middle_leave_a_trajectory_with_the_oldest_version() -> None:
    sampler = sampler_of()
    sampler.act([call("a", 0)])
    sampler.load(sampler.policy.state_dict(), 7)
    for number in (1, 2, 3):
        sampler.act([call("a", number)])
    assert checked(sampler).version.tolist() == [5, 5]


def test_an_episode_that_was_cut_off_ends_in_the_value_of_its_last_observation() -> None:
    sampler = sampler_of()
    sampler.act([call("a", 0)])
    outcome = call("a", 1)["outcome"] | {
        "truncated": np.array([False, True]), "cut": (np.array([1]), np.array([[4.0, -4.0]], np.float32), None),
        "episodes": np.array([[8, 9]], np.float32),
    }  # fmt: skip
    sampler.act([call("a", 1, outcome=outcome)])
    for number in (2, 3):
        sampler.act([call("a", number)])
    trajectory = checked(sampler)
    value = sampler.policy.value(np.array([[4.0, -4.0]], np.float32))[0]
    assert trajectory.cut["value"][:, 1].tolist() == pytest.approx([value, 0, 0])
    assert trajectory.truncated.tolist() == [[False, True], [False, False], [False, False]]
    assert trajectory.episodes.tolist() == [[8, 9]]


def test_travelling_memory_goes_on_at_another_actor() -> None:
    one, first, second = (sampler_of(LSTM, travelling=True) for _ in range(3))
    memory, alone = None, None
    for number in range(4):
        (answer,) = (first, second)[number % 2].act([call("a", number, memory=memory)])
        (kept,) = one.act([call("a", number, memory=alone)])
        assert isinstance(answer, dict) and isinstance(kept, dict)
        memory, alone = answer["memory"], kept["memory"]
        for name, part in alone.items():
            np.testing.assert_allclose(memory[name], part, atol=1e-6)
    assert any(part.any() for part in memory.values())


def test_memory_kept_at_the_actor_equals_travelling_memory() -> None:
    kept, travelling = sampler_of(LSTM), sampler_of(LSTM, travelling=True)
    memory = None
    for number in range(4):
        (here,) = kept.act([call("a", number)])
        (answer,) = travelling.act([call("a", number, memory=memory)])
        assert isinstance(answer, dict) and isinstance(here, dict) and "memory" not in here
        memory = answer["memory"]
    for name, part in kept._groups["a"].memory.items():
        np.testing.assert_allclose(part.numpy(), memory[name], atol=1e-6)


def test_a_group_leaves_with_its_memory_once_its_trajectory_is_complete() -> None:
    now = [0.0]
    sampler = sampler_of(LSTM, clock=lambda: now[0])
    leaves_at = []
    for number in range(9):
        now[0] += 4.0
        (answer,) = sampler.act([call("a", number)])
        assert isinstance(answer, dict) and ("memory" in answer) == ("leave" in answer)
        leaves_at += [number] if "leave" in answer else []
    assert leaves_at == [3, 6]  # after 12 s each
    assert len(sampler._complete) == 2, "one that comes back goes on"


def test_answers_wait_until_complete_trajectories_are_collected() -> None:
    sampler = sampler_of(length=1)
    for number in range(4):
        sampler.act([call("a", number)])
    answered = threading.Event()

    def ask() -> None:
        sampler.act([call("a", 4)])
        answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert not answered.wait(0.05)
    sampler.collect(1)
    assert answered.wait(30)
    thread.join()


def test_waiting_callers_are_told_when_the_actor_ends() -> None:
    sampler = ServedSampler(policy_of({}), 3, 2, 0)  # without weights
    failures: list[BaseException] = []

    def until_closed(wait: Any) -> threading.Thread:
        def run() -> None:
            try:
                wait()
            except SamplerClosed as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    threads = [until_closed(lambda: sampler.act([call("a", 0)])), until_closed(lambda: sampler.collect(3))]
    sampler.close()
    for thread in threads:
        thread.join(30)
    assert len(failures) == 2


def test_a_groups_noise_process_goes_on_whatever_other_groups_ask() -> None:
    sampler = ServedSampler(policy_of({"box_actions": {"deterministic": True}}, actions=Box(-1, 1, (1,))), 100, 2, 0)

    def noise(*calls: dict[str, Any]) -> list[np.ndarray]:
        greedy = [sampler.policy.step(one["observation"], mode="greedy").action for one in calls]
        answers: list[Any] = sampler.act(calls)
        return [answer["action"] - best for answer, best in zip(answers, greedy, strict=True)]

    sampler.load(sampler.policy.state_dict(), 5, {"noise": 0.1, "noise_theta": 0.0})
    first, other = noise(call("a", 0), call("b", 0, slots=3))
    assert (np.abs(first) > 1e-3).all() and (np.abs(other) > 1e-3).all()
    sampler.load(sampler.policy.state_dict(), 6, {"noise": 1e-9, "noise_theta": 0.0})
    np.testing.assert_allclose(noise(call("a", 1)), [first], atol=1e-6)
    new, again, still = noise(call("c", 0), call("b", 1, slots=3), call("a", 2))
    np.testing.assert_allclose(again, other, atol=1e-6)
    np.testing.assert_allclose(still, first, atol=1e-6)
    np.testing.assert_allclose(new, 0, atol=1e-6)
    ends = call("a", 3)
    ends["outcome"]["terminated"] = np.array([True, False])
    np.testing.assert_allclose(noise(ends), [first * [[0], [1]]], atol=1e-6)
