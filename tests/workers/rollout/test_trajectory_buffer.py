import numpy as np
import pytest

from agents.segments import Segment
from workers.rollout.trajectory_buffer import Lanes

NO_EPISODES = np.zeros((0, 2), np.float32)


def decide(lanes, seats, number, version=0):
    """Decisions that can be told apart: `number` is in every field."""
    count = len(seats)
    of = np.full(count, number, np.float32)
    lanes.decide(
        np.array(seats), of[:, None], np.ones((count, 2), bool), np.full(count, number % 2), -of, 10 * of, version
    )


def earn(lanes, *rewards):
    lanes.earn(np.array(rewards, np.float32))


def test_a_reward_belongs_to_the_decision_before_it_also_when_others_move_in_between():
    lanes = Lanes(seats=1, length=2, observation_shape=(1,), num_actions=2)
    decide(lanes, [0], 1)
    for reward in (1, 2, 4):
        earn(lanes, reward)
    decide(lanes, [0], 2)
    earn(lanes, 8)
    lanes.end(np.array([0]))
    segment = lanes.take(1, NO_EPISODES)
    assert segment.reward[:, 0].tolist() == [7, 8]
    assert segment.terminated[:, 0].tolist() == [False, True]
    assert segment.bootstrap_value.tolist() == [0]
    assert segment.observation[:, 0, 0].tolist() == [1, 2]
    assert segment.log_prob[:, 0].tolist() == [-1, -2] and segment.action[:, 0].tolist() == [1, 0]
    assert segment.value[:, 0].tolist() == [10, 20]
    Segment.from_dict(segment.to_dict())


def test_a_full_lane_waits_for_the_value_of_the_next_decision():
    lanes = Lanes(seats=1, length=2, observation_shape=(1,), num_actions=2)
    decide(lanes, [0], 1)
    decide(lanes, [0], 2)
    earn(lanes, 5)
    assert lanes.ready == 0
    decide(lanes, [0], 3)
    segment = lanes.take(1, NO_EPISODES)
    assert segment.bootstrap_value.tolist() == [30]
    assert segment.reward[:, 0].tolist() == [0, 5]
    decide(lanes, [0], 4)
    lanes.end(np.array([0]))
    assert lanes.take(1, NO_EPISODES).observation[:, 0, 0].tolist() == [3, 4]


def test_games_in_which_a_seat_never_decided_leave_no_trace():
    lanes = Lanes(seats=1, length=1, observation_shape=(1,), num_actions=2)
    earn(lanes, 3)
    lanes.end(np.array([0]))
    decide(lanes, [0], 1)
    lanes.end(np.array([0]))
    earn(lanes, 9)  # of the next game, before its first decision there
    decide(lanes, [0], 2)
    lanes.end(np.array([0]))
    segment = lanes.take(2, NO_EPISODES)
    assert segment.reward.tolist() == [[0, 0]] and segment.terminated.all()


def test_seats_fill_at_their_own_pace_and_lanes_are_taken_in_the_order_of_completion():
    lanes = Lanes(seats=3, length=2, observation_shape=(1,), num_actions=2)
    for number in range(1, 5):
        decide(lanes, [2], number)
        decide(lanes, [0, 1] if number % 2 else [0], 10 * number)
    lanes.end(np.arange(3))
    assert lanes.ready == 5
    first, second = lanes.take(1, NO_EPISODES), lanes.take(4, NO_EPISODES)
    assert first.observation[..., 0].tolist() == [[1], [2]]
    assert second.observation[..., 0].tolist() == [[10, 30, 10, 3], [20, 40, 30, 4]]
    assert second.bootstrap_value.tolist() == [300, 0, 0, 0]
    assert lanes.ready == 0


def test_a_segment_bears_the_version_that_began_its_oldest_lane():
    lanes = Lanes(seats=2, length=2, observation_shape=(1,), num_actions=2)
    decide(lanes, [0], 1, version=5)
    decide(lanes, [0, 1], 2, version=6)
    decide(lanes, [1], 3, version=7)
    lanes.end(np.arange(2))
    assert lanes.take(2, NO_EPISODES).weight_version == 5
    decide(lanes, [0], 1, version=8)
    decide(lanes, [0], 1, version=9)
    lanes.end(np.arange(1))
    assert lanes.take(1, NO_EPISODES).weight_version == 8


def test_cleared_lanes_are_empty():
    lanes = Lanes(seats=1, length=1, observation_shape=(1,), num_actions=2)
    for number in (1, 2):
        decide(lanes, [0], number)
    assert lanes.ready == 1
    lanes.clear()
    assert lanes.ready == 0
    earn(lanes, 7)
    decide(lanes, [0], 3)
    lanes.end(np.array([0]))
    segment = lanes.take(1, NO_EPISODES)
    assert segment.observation.item() == 3 and segment.reward.item() == pytest.approx(0)
