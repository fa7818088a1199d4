"""Trajectories that a gateway makes from games that come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, Space

from agents import Policy, build_policy
from agents.trajectories import Trajectory
from agents.trees import spec_of
from envs.rewards import Rewards
from workers.gateway.game import Game
from workers.gateway.sampler import GatewaySampler
from workers.rollout.sampler import SamplerClosed

OBSERVATIONS, ACTIONS = Box(-np.inf, np.inf, (2,), np.float32), Discrete(3)


class Played:
    """Makes games for a sampler of trajectories of `length` decisions in `slots` slots."""

    def __init__(
        self,
        network: dict[str, object],
        length: int,
        slots: int = 1,
        actions: Space = ACTIONS,
        rewards: Rewards = Rewards(),  # noqa: B008
    ) -> None:
        self.policy = build_policy({"hidden_sizes": [4], **network}, OBSERVATIONS, actions, 0)
        self.rewards = rewards
        self.sampler = GatewaySampler(self.policy, length, slots, rewards, 0)
        self.sampler.load(self.policy.state_dict(), 3)

    def game(self) -> Game:
        return Game("a", self.sampler, spec_of(OBSERVATIONS), self.rewards, asyncio.get_running_loop())


@pytest.fixture
def made() -> Iterator[list[Played]]:
    made: list[Played] = []
    yield made
    for one in made:
        one.sampler.close()


def collected(played: Played, budget: int) -> Trajectory:
    trajectory = played.sampler.collect(budget)
    return Trajectory.from_dict(trajectory.to_dict(), played.policy.spec())


def value(policy: Policy, observation: list[float]) -> float:
    return float(policy.value(np.array([observation], np.float32))[0])


def test_a_game_fills_a_trajectory_and_the_next_game_goes_on_with_it(made) -> None:
    made.append(played := Played({}, 4))

    async def play() -> None:
        game = played.game()
        for number in range(3):
            await game.act([number, 0.0], "")
            game.reward(1.0, "")
            game.reward(number, "")
        game.finish()
        other = played.game()
        for number in range(2):
            await other.act([10.0 + number, 0.0], "")

    asyncio.run(play())
    trajectory = collected(played, 4)
    assert trajectory.observation[:, 0, 0].tolist() == [0, 1, 2, 10]
    assert trajectory.reward[:, 0].tolist() == [1, 2, 3, 0]
    assert trajectory.terminated[:, 0].tolist() == [False, False, True, False] and not trajectory.truncated.any()
    assert trajectory.last["observation"].tolist() == [[11, 0]]
    assert trajectory.last["value"][0] == pytest.approx(value(played.policy, [11, 0]))
    assert trajectory.episodes.tolist() == [[6, 3]] and trajectory.version.tolist() == [3]


def test_rewards_of_several_channels_are_dicts_of_all_channels(made) -> None:
    made.append(played := Played({}, 2, rewards=Rewards({"win": 1.0, "kills": 0.0})))

    async def play() -> None:
        game = played.game()
        await game.act([0.0, 0.0], "")
        with pytest.raises(ValueError, match=r"gave rewards named win; env\.reward_channels declares win, kills"):
            game.reward({"win": 1.0}, "")
        game.reward({"win": 1.0, "kills": 2.0}, "")
        await game.act([1.0, 0.0], "")
        game.reward({"win": 0.0, "kills": 3.0}, "")
        game.finish()

    asyncio.run(play())
    trajectory = played.sampler.collect(2)
    assert trajectory.reward[:, 0].tolist() == [1, 0]
    assert trajectory.episodes.tolist() == [[1, 2, 1, 5]]


def test_each_game_keeps_its_own_noise_process(made) -> None:
    box = {"box_actions": {"deterministic": True}}
    made.append(played := Played(box, 100, actions=Box(-1, 1, (1,), np.float32)))
    played.sampler.load(played.policy.state_dict(), 4, {"noise": 0.1, "noise_theta": 0.0})
    mode = played.policy.step(np.zeros((1, 2), np.float32), mode="greedy").action[0]
    noises = []

    async def play() -> None:
        one, other = played.game(), played.game()
        for version, game in ((5, one), (6, other), (7, one)):
            noises.append(await game.act([0.0, 0.0], "") - mode)
            weights = played.policy.state_dict()
            played.sampler.load(weights, version, {"noise": 1e-9, "noise_theta": 0.0})

    asyncio.run(play())
    first, other, again = noises
    assert abs(first) > 1e-3
    np.testing.assert_allclose(other, 0, atol=1e-6)
    np.testing.assert_allclose(again, first, atol=1e-6)


def test_a_cut_off_game_bootstraps_from_its_last_observation(made) -> None:
    made.append(played := Played({}, 3))

    async def play() -> None:
        gone, late = played.game(), played.game()
        for number in range(3):
            await gone.act([number, 1.0], "")
            gone.reward(1, "")
        gone.abandon()  # the outcome of its third decision is unknown
        await late.act([5.0, 5.0], "")
        late.reward(2, "")
        late.over("", [7.0, 7.0])

    asyncio.run(play())
    trajectory = collected(played, 3)
    assert trajectory.observation[:, 0, 0].tolist() == [0, 1, 5]
    assert trajectory.truncated[:, 0].tolist() == [False, True, True] and not trajectory.terminated.any()
    cut = [value(played.policy, where) for where in ([2.0, 1.0], [7.0, 7.0])]
    assert trajectory.cut["value"][:, 0].tolist() == pytest.approx([0, *cut])
    assert trajectory.episodes.tolist() == [[2, 1]]  # the return of the abandoned game is unknown


def test_each_agent_of_concurrent_games_has_a_memory_of_its_own(made) -> None:
    made.append(played := Played({"core": {"name": "lstm", "size": 4}}, 5, slots=20))

    async def play(seed: int) -> None:
        random = np.random.default_rng(seed)
        for games in range(3):
            game = played.game()
            for _ in range(seed + games + 1):
                for agent in ("left", "right"):
                    await game.act(random.normal(size=2), agent)
            game.finish()

    async def all_of_them() -> None:
        await asyncio.gather(*map(play, range(8)))

    asyncio.run(all_of_them())
    trajectory = collected(played, 5)
    done = trajectory.terminated | trajectory.truncated
    begins = torch.from_numpy(np.concatenate([np.zeros((1, 20), bool), done[:-1]]))
    memory = {name: torch.from_numpy(part) for name, part in trajectory.memory.items()}
    observation = played.policy.leaves(trajectory.observation)
    evaluated, _ = played.policy.unroll(observation, memory, begins, torch.from_numpy(trajectory.action))
    assert evaluated.log_prob.detach().numpy() == pytest.approx(trajectory.extras["log_prob"], abs=1e-5)
    assert begins.any() and any(part.any() for part in memory.values())


def test_an_agent_has_one_pending_action_and_wrong_numbers_are_refused(made) -> None:
    made.append(played := Played({}, 4))

    async def play() -> None:
        game = played.game()
        both = await asyncio.gather(game.act([0, 0], ""), game.act([0, 0], ""), return_exceptions=True)
        assert [type(one) for one in both if not isinstance(one, np.generic)] == [ValueError]
        for observation in ([0.0], [np.nan, 0], ["a", "b"], None, {"a": 1}, [1e300, 0]):
            with pytest.raises(ValueError, match="observation"):
                await game.act(observation, "")
        for amount in (float("inf"), float("nan"), 1e39, -1e39):  # the last two are no float32 numbers
            with pytest.raises(ValueError, match=r"reward: .* is not finite, or beyond 1e\+30"):
                game.reward(amount, "")
        with pytest.raises(ValueError, match="reward"):
            game.reward([1, 2], "")
        game.finish()
        with pytest.raises(ValueError, match="closed"):
            await game.act([0, 0], "")

    asyncio.run(play())


@pytest.mark.parametrize("actions", [ACTIONS, Box(-1, 1, (2,), np.float32)], ids=str)
def test_an_observation_beyond_the_network_spoils_no_trajectory(made, actions: Space) -> None:
    made.append(played := Played({"hidden_sizes": [64, 64], "activation": "relu"}, 4, actions=actions))
    with torch.no_grad():
        for parameter in played.policy.parameters():
            parameter.mul_(40)

    async def play() -> None:
        game, other = played.game(), played.game()
        for number in range(4):
            given = [number, 0.0] if number != 1 else [3e38, 3e38]  # finite, and their products with weights are not
            both = await asyncio.gather(game.act(given, ""), other.act([10, 0], ""), return_exceptions=True)
            assert not isinstance(both[1], BaseException)
            assert isinstance(both[0], ValueError) == (number == 1) and (number != 1 or "so large" in str(both[0]))
        game.finish()
        await other.act([0.0, 0.0], "")

    asyncio.run(play())
    assert collected(played, 4).observation[:, 0, 0].tolist() in ([0, 2, 3, 10], [10, 10, 10, 10])


def test_closing_the_sampler_wakes_collect() -> None:
    played, failed = Played({}, 4), []

    def collect() -> None:
        try:
            played.sampler.collect(4)
        except SamplerClosed as error:
            failed.append(error)

    thread = threading.Thread(target=collect)
    thread.start()
    played.sampler.close()
    thread.join(30)
    assert failed
