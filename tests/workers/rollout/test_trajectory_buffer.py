import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from agents.trajectories import Trajectory, on_policy
from workers.rollout.games.trajectory_buffer import TrajectoryBuffer

SPEC = on_policy(Box(-np.inf, np.inf, (1,), np.float32), Discrete(2), legal_actions=True)
NO_EPISODES = np.zeros((0, 2), np.float32)


def decide(buffer, seats, number, version=0):
    """Add decisions that can be told apart: `number` is in every field."""
    count = len(seats)
    of = np.full(count, number, np.float32)
    decision = {
        "observation": of[:, None],
        "action": np.full(count, number % 2),
        "action_mask": np.ones((count, 2), bool),
        "extras": {"log_prob": -of, "value": 10 * of},
    }
    buffer.decide(np.array(seats), decision, {}, version)


def earn(buffer, *rewards):
    buffer.earn(np.array(rewards, np.float32))


def test_a_reward_belongs_to_the_decision_before_it_though_others_moved_since():
    buffer = TrajectoryBuffer(seats=1, length=2, spec=SPEC)
    decide(buffer, [0], 1)
    for reward in (1, 2, 4):
        earn(buffer, reward)
    decide(buffer, [0], 2)
    earn(buffer, 8)
    buffer.end(np.array([0]))
    trajectory = buffer.take(1, NO_EPISODES)
    assert trajectory.reward[:, 0].tolist() == [7, 8]
    assert trajectory.terminated[:, 0].tolist() == [False, True]
    assert trajectory.last["value"].tolist() == [0]
    assert trajectory.observation[:, 0, 0].tolist() == [1, 2]
    assert trajectory.extras["log_prob"][:, 0].tolist() == [-1, -2] and trajectory.action[:, 0].tolist() == [1, 0]
    assert trajectory.extras["value"][:, 0].tolist() == [10, 20]
    Trajectory.from_dict(trajectory.to_dict())


def test_a_full_lane_waits_for_the_value_of_the_next_decision():
    buffer = TrajectoryBuffer(seats=1, length=2, spec=SPEC)
    decide(buffer, [0], 1)
    decide(buffer, [0], 2)
    earn(buffer, 5)
    assert buffer.ready == 0
    decide(buffer, [0], 3)
    trajectory = buffer.take(1, NO_EPISODES)
    assert trajectory.last["value"].tolist() == [30]
    assert trajectory.reward[:, 0].tolist() == [0, 5]
    decide(buffer, [0], 4)
    buffer.end(np.array([0]))
    assert buffer.take(1, NO_EPISODES).observation[:, 0, 0].tolist() == [3, 4]


def test_games_in_which_a_seat_never_decided_leave_no_trace():
    buffer = TrajectoryBuffer(seats=1, length=1, spec=SPEC)
    earn(buffer, 3)
    buffer.end(np.array([0]))
    decide(buffer, [0], 1)
    buffer.end(np.array([0]))
    earn(buffer, 9)  # in the next game, before the seat's first decision
    decide(buffer, [0], 2)
    buffer.end(np.array([0]))
    trajectory = buffer.take(2, NO_EPISODES)
    assert trajectory.reward.tolist() == [[0, 0]] and trajectory.terminated.all()


def test_trajectories_are_taken_in_the_order_of_their_completion():
    buffer = TrajectoryBuffer(seats=3, length=2, spec=SPEC)
    for number in range(1, 5):
        decide(buffer, [2], number)
        decide(buffer, [0, 1] if number % 2 else [0], 10 * number)
    buffer.end(np.arange(3))
    assert buffer.ready == 5
    first, second = buffer.take(1, NO_EPISODES), buffer.take(4, NO_EPISODES)
    assert first.observation[..., 0].tolist() == [[1], [2]]
    assert second.observation[..., 0].tolist() == [[10, 30, 10, 3], [20, 40, 30, 4]]
    assert second.last["value"].tolist() == [300, 0, 0, 0]
    assert buffer.ready == 0


def test_each_slot_keeps_the_version_that_began_it():
    buffer = TrajectoryBuffer(seats=2, length=2, spec=SPEC)
    decide(buffer, [0], 1, version=5)
    decide(buffer, [0, 1], 2, version=6)
    decide(buffer, [1], 3, version=7)
    buffer.end(np.arange(2))
    assert buffer.take(2, NO_EPISODES).version.tolist() == [5, 6]
    decide(buffer, [0], 1, version=8)
    decide(buffer, [0], 1, version=9)
    buffer.end(np.arange(1))
    assert buffer.take(1, NO_EPISODES).version.tolist() == [8]


def test_a_cleared_buffer_is_empty():
    buffer = TrajectoryBuffer(seats=1, length=1, spec=SPEC)
    for number in (1, 2):
        decide(buffer, [0], number)
    assert buffer.ready == 1
    buffer.clear()
    assert buffer.ready == 0
    earn(buffer, 7)
    decide(buffer, [0], 3)
    buffer.end(np.array([0]))
    trajectory = buffer.take(1, NO_EPISODES)
    assert trajectory.observation.item() == 3 and trajectory.reward.item() == pytest.approx(0)


def play(decisions_a_game, slots=64, length=8, staleness=8, trajectories=60, max_age=None):
    """Return each take's largest age in versions; one policy has both seats of a slot in turn, a version per take."""
    buffer = TrajectoryBuffer(2 * slots, length, spec=SPEC, max_age=max_age)
    home, left, version, ages = np.arange(slots) % 2, np.full(slots, decisions_a_game), 0, []
    left -= np.arange(slots) % decisions_a_game  # games do not end all at once
    while len(ages) < trajectories:
        decide(buffer, 2 * np.arange(slots) + home, 1, version)
        left -= 1
        if (over := np.flatnonzero(left <= 0)).size:
            buffer.end(np.concatenate([2 * over, 2 * over + 1]))
            home[over], left[over] = 1 - home[over], decisions_a_game
        while buffer.ready >= slots:
            ages.append(version - buffer.take(slots, NO_EPISODES).version.min())
            version += 1
    return np.array(ages)


@pytest.mark.parametrize("decisions_a_game", [5, 100, 200, 1000])
def test_no_lane_waits_for_a_game_of_the_other_seat_however_long_games_are(decisions_a_game):
    ages = play(decisions_a_game)
    assert (ages > 8).mean() == 0, "trajectories that a learner would drop"


def test_the_next_game_fills_a_trajectory_that_a_game_left_unfinished():
    buffer = TrajectoryBuffer(seats=4, length=3, spec=SPEC)
    decide(buffer, [0], 1)
    buffer.end(np.array([0]))
    decide(buffer, [3], 2)
    decide(buffer, [3], 3)
    buffer.end(np.array([3]))
    trajectory = buffer.take(1, NO_EPISODES)
    assert trajectory.observation[:, 0, 0].tolist() == [1, 2, 3]
    assert trajectory.terminated[:, 0].tolist() == [True, False, True]


def test_the_unfinished_trajectory_that_waits_longest_is_filled_first():
    buffer = TrajectoryBuffer(seats=4, length=2, spec=SPEC)
    for seat in (2, 0):
        decide(buffer, [seat], 10 + seat)
        decide(buffer, [1 + seat], 20 + seat)
        buffer.end(np.array([seat]))
    assert buffer.take(buffer.ready, NO_EPISODES).observation.ravel().tolist() == [12, 10]
    buffer.end(np.array([3]))
    buffer.end(np.array([1]))
    decide(buffer, [2], 30)
    buffer.end(np.array([2]))
    assert buffer.take(buffer.ready, NO_EPISODES).observation.ravel().tolist() == [22, 30]


def test_experience_older_than_allowed_is_dropped_and_counted_lane_by_lane():
    buffer = TrajectoryBuffer(seats=3, length=2, spec=SPEC, max_age=2)
    decide(buffer, [0, 1], 1, version=0)  # seat 0 goes on, seat 1 ends
    buffer.end(np.array([1]))
    buffer.renew(3)
    assert buffer.pop_expired() == 2 and buffer.pop_expired() == 0
    earn(buffer, 9, 9, 9)  # for a decision that was dropped, so it counts for none
    decide(buffer, [0, 2], 5, version=3)
    decide(buffer, [0, 2], 6, version=3)
    buffer.end(np.arange(3))
    trajectory = buffer.take(2, NO_EPISODES)
    assert trajectory.version.tolist() == [3, 3] and not trajectory.reward.any()
    assert trajectory.observation[..., 0].tolist() == [[5, 5], [6, 6]]


def test_complete_trajectories_that_grew_too_old_are_dropped_too():
    buffer = TrajectoryBuffer(seats=2, length=1, spec=SPEC, max_age=1)
    decide(buffer, [0, 1], 1, version=0)
    buffer.end(np.arange(2))
    decide(buffer, [0], 2, version=1)
    buffer.end(np.arange(2))
    assert buffer.ready == 3
    buffer.renew(2)
    assert buffer.ready == 1 and buffer.pop_expired() == 2
    assert buffer.take(1, NO_EPISODES).observation.item() == 2
