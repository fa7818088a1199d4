"""Agents that learn together: games of several agents as slots of one vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import envs
from agents import build_algorithm, build_policy
from envs import EnvSettings
from envs.checking import first_steps, together
from envs.checking.report import Report
from envs.many_agents.team import Team
from envs.many_agents.vector import AgentsVectorEnv
from envs.masks import WrongMask
from warren.errors import ConfigurationError
from workers.rollout.vector_sampler import VectorSampler

LAMPS = "examples/agents/lamps.py:Lamps"


class Uneven:
    """Agent i sees i + 1 numbers, has i + 2 actions, and leaves after i + 2 steps; the last is cut off."""

    metadata: dict[str, Any] = {}

    def __init__(self, agents: int = 3, fault: str = "") -> None:
        self.possible_agents, self.fault = [f"a{i}" for i in range(agents)], fault

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-9, 9, (int(agent[1]) + 1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1, 1, (1,)) if self.fault == "action" else spaces.Discrete(int(agent[1]) + 2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.count = [*self.possible_agents], 0
        return self.seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        assert list(actions) == self.agents and all(a < int(agent[1]) + 2 for agent, a in actions.items())
        self.count, acting = self.count + 1, self.agents
        ended = {agent: self.count == int(agent[1]) + 2 for agent in acting}
        last = self.possible_agents[-1]
        self.agents = [agent for agent in acting if not ended[agent]]
        if self.fault == "lost" and self.count == 2:
            return {}, dict.fromkeys(acting, 1.0), ended, dict.fromkeys(acting, False), {}
        rewards = {agent: float(10 ** int(agent[1])) for agent in acting}
        if self.fault == "unflagged":
            nobody = dict.fromkeys(acting, False)
            return self.seen(acting), rewards, nobody, nobody, {}
        cut = {agent: agent == last and ended[agent] for agent in acting}
        return self.seen(acting), rewards, {a: ended[a] and not cut[a] for a in acting}, cut, {a: {} for a in acting}

    def seen(self, agents: list[str]) -> dict[str, np.ndarray]:
        return {agent: np.full(int(agent[1]) + 1, self.count, np.float32) for agent in agents}

    def close(self) -> None: ...


def vector_of(games: int = 2, **settings: Any) -> AgentsVectorEnv:
    made = envs.make_vector(EnvSettings(f"{__file__}:Uneven", **settings), games, 1)
    assert isinstance(made, AgentsVectorEnv)
    return made


def test_agents_are_slots_that_are_valid_until_they_leave() -> None:
    vector = vector_of()
    observation, info = vector.reset()
    assert vector.num_envs == 6 and vector.group.tolist() == [0, 0, 0, 1, 1, 1]
    assert observation.shape == (6, 3) and info["valid"].all()
    valid, ended, rewards = [], [], []
    for _ in range(5):
        observation, reward, terminated, truncated, info = vector.step(np.zeros(6, int))
        valid.append(info["valid"][:3].tolist())
        ended.append((terminated[:3].tolist(), truncated[:3].tolist()))
        rewards.append(reward[:3].tolist())
        if len(valid) in (2, 4):  # a0 has left, or the game has ended and restarted
            last = info["final_obs"][0 if len(valid) == 2 else 2]
            assert last.tolist() == ([2, 0, 0] if len(valid) == 2 else [4, 4, 4])
    assert valid == [[True] * 3, [False, True, True], [False, False, True], [True] * 3, [True] * 3]
    no = [False] * 3
    assert ended == [
        (no, no), ([True, False, False], no), ([True, True, False], no),
        ([True, True, False], [False, False, True]), (no, no),
    ]  # fmt: skip
    assert rewards == [[1, 10, 100], [1, 10, 100], [0, 10, 100], [0, 0, 100], [1, 10, 100]]
    assert observation.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]] * 2  # padded with zeros
    assert vector.pop_episodes().tolist() == [[pytest.approx((2 + 30 + 400) / 3), 4]] * 2


def test_an_agent_that_is_gone_without_a_flag_has_terminated() -> None:
    team = Team(Uneven(fault="unflagged"), EnvSettings("uneven"))
    team.reset(seed=1)
    ended = [(terminated.tolist(), truncated.any()) for _, _, terminated, truncated, _ in map(team.step, [[0] * 3] * 4)]
    each = np.eye(3, dtype=bool).tolist()  # one after the other; otherwise the value of a place without an agent counts
    assert ended == [([False] * 3, False), *((one, False) for one in each)] and team.over


def test_actions_that_an_agent_does_not_have_are_masked() -> None:
    vector = vector_of(1)
    _, info = vector.reset()
    assert vector.single_action_space == spaces.Discrete(4)
    mine = [[True, True, False, False], [True, True, True, False], [True] * 4]
    assert info["action_mask"].tolist() == mine
    assert envs.describe(EnvSettings(f"{__file__}:Uneven")).masks


@pytest.mark.parametrize(("how", "reward"), [("mean", 37.0), ("sum", 111.0)])
def test_team_rewards_are_the_mean_or_sum_of_all_agents(how: str, reward: float) -> None:
    vector = vector_of(1, team_reward=how)
    vector.reset()
    assert vector.step(np.zeros(3, int))[1].tolist() == [reward] * 3


def test_agent_and_state_are_keys_of_observations_by_setting() -> None:
    vector = vector_of(2, agent_id=True, state=True)
    observation, _ = vector.reset()
    assert observation["agent"].tolist() == [0, 1, 2] * 2
    assert observation["state"].shape == (6, 6)  # without state(): all agents' observations
    observation, *_ = vector.step(np.zeros(6, int))
    assert observation["state"].tolist() == [[1] * 6] * 6
    lamps = envs.make_vector(EnvSettings(LAMPS, state=True), 1, 3)
    observation, _ = lamps.reset()
    own = lamps.teams[0].env.state()  # type: ignore[attr-defined]
    assert (observation["state"] == own).all() and own.any()


def test_a_seed_repeats_all_games_and_all_games_differ() -> None:
    def played(seed: int) -> np.ndarray:
        vector = envs.make_vector(LAMPS, 2, seed)
        seen, info = [vector.reset()[0]], {}
        del info
        for _ in range(45):  # past the ends of games
            seen.append(vector.step(np.ones(6, int))[0])
        return np.stack(seen)

    assert np.array_equal(played(1), played(1)) and not np.array_equal(played(1), played(2))
    first = played(1)
    assert not np.array_equal(first[0], first[20]) and not np.array_equal(first[0, :3], first[0, 3:])


def test_two_agents_learn_together_only_if_set() -> None:
    with pytest.raises(ConfigurationError, match=r"game of two players.* env\.together=true"):
        envs.make(EnvSettings(f"{__file__}:Uneven", {"agents": 2}))
    team = envs.make(EnvSettings(f"{__file__}:Uneven", {"agents": 2}, together=True))
    assert isinstance(team, Team) and team.agents == ["a0", "a1"]


def test_a_turn_based_game_of_pettingzoo_can_be_played_in_parallel() -> None:
    pytest.importorskip("pettingzoo")
    vector = envs.make_vector(EnvSettings("pettingzoo:rps_v2", together=True), 2, 1)
    vector.reset()
    for _ in range(20):
        *_, info = vector.step(np.ones(4, int))
    assert info["valid"].all()


def test_an_agent_that_waits_for_its_turn_has_one_legal_action() -> None:
    pytest.importorskip("pettingzoo")
    vector = envs.make_vector(EnvSettings("pettingzoo:tictactoe_v3", together=True), 1, 1)
    _, info = vector.reset()
    assert info["action_mask"].tolist() == [[True] * 9, [True] + [False] * 8]
    rewards = []
    for step, place in enumerate([0, 3, 1, 4, 2]):  # the first player's column
        action = np.array([place, 0] if step % 2 == 0 else [0, place])
        assert info["action_mask"][np.arange(2), action].all() and info["valid"].all()
        observation, reward, terminated, *_, info = vector.step(action)
        rewards.append(reward.tolist())
        assert terminated.all() == (step == 4)
    assert rewards == [[0, 0]] * 4 + [[1, -1]]
    assert not observation.any() and info["action_mask"][0].all()  # a new board
    assert vector.pop_episodes().tolist() == [[0, 5]]


class Relay:
    """Three agents in turn score for all by playing the last number + 1. Agent 0 leaves after its second move."""

    metadata: dict[str, Any] = {}

    def __init__(self) -> None:
        self.possible_agents = ["a0", "a1", "a2"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (4,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(4)

    def agent_iter(self) -> None: ...

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.moves, self.last = list(self.possible_agents), 0, 0
        self.agent_selection = "a0"
        self._clear()

    def _clear(self) -> None:
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations, self.infos = dict.fromkeys(self.agents, False), {agent: {} for agent in self.agents}

    def observe(self, agent: str) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[self.last]

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if action is None:
            self.agents.remove(mover)
            self._clear()
            self._next(mover)
            return
        self._clear()
        self.rewards = dict.fromkeys(self.agents, float(action == (self.last + 1) % 4))
        self.last, self.moves = action, self.moves + 1
        if mover == "a0" and self.moves > 3:
            self.terminations["a0"] = True  # is selected once more, to leave
            return
        if self.moves == 10:
            self.truncations, self.agents = dict.fromkeys(self.agents, True), []
        self._next(mover)

    def _next(self, mover: str) -> None:
        order = self.possible_agents
        later = order[order.index(mover) + 1 :] + order
        self.agent_selection = next((agent for agent in later if agent in self.agents), mover)

    def close(self) -> None: ...


def test_agents_in_turns_leave_are_truncated_and_learn(one_thread: None) -> None:
    vector = envs.make_vector(EnvSettings(f"{__file__}:Relay"), 4, 1)
    policy = build_policy({"hidden_sizes": [16]}, vector.single_observation_space, vector.single_action_space, 1)
    sampler = VectorSampler(vector, policy, 2)
    first = sampler.collect(10)
    assert first.valid is not None and first.valid[:, 0].tolist() == [True] * 4 + [False] * 6
    assert first.terminated[3, 0] and not first.truncated[3, 0]
    assert first.truncated[9, 1:3].all() and not first.terminated[9, 1:3].any()
    assert first.episodes[:, 1].tolist() == [10] * 4
    waits = first.action_mask.sum(2) == 1
    assert (waits[:, 1] == [True, False, True, True, False, True, False, True, False, True]).all()
    assert not first.extras["log_prob"][waits].any()
    settings = {"learning_rate": 1e-2, "minibatch_size": 128, "epochs": 4, "gamma": 0.9}
    ppo, returns = build_algorithm("ppo", settings, policy, 0), []
    for _ in range(25):
        trajectory = sampler.collect(20)
        returns.append(trajectory.episodes[:, 0].mean())
        ppo.update([trajectory])
    assert returns[0] < 4 and np.mean(returns[-3:]) > 6.5, returns


@pytest.mark.parametrize(
    ("env_id", "settings", "said"),
    [
        ("CartPole-v1", {"agent_id": True}, r"env\.agent_id: 'CartPole-v1' has one agent"),
        (LAMPS, {"workers": 2}, r"env\.workers: games of several agents"),
        (LAMPS, {"frame_stack": 2}, r"env\.frame_stack: .* has 3 agents"),
        (LAMPS, {"reward_channels": {"a": 1.0, "b": 1.0}}, r"env\.reward_channels: agents that learn together"),
        (LAMPS, {"team_reward": "max"}, r"env\.team_reward: .*mean"),
        (f"{__file__}:Uneven", {"kwargs": {"fault": "action"}}, None),
    ],
)
def test_unsuitable_settings_of_several_agents_are_refused(
    env_id: str, settings: dict[str, Any], said: str | None
) -> None:
    if said is None:
        assert envs.spaces(EnvSettings(env_id, **settings))[1] == spaces.Box(-1, 1, (1,))
        return
    with pytest.raises(ConfigurationError, match=said):
        envs.make_vector(EnvSettings(env_id, **settings), 2, 1)


def test_a_missing_observation_of_an_agent_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"gave no observation of agent 'a1', which is to decide"):
        first_steps._step(EnvSettings(f"{__file__}:Uneven", {"fault": "lost"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (({}, {}, {}, {}), r"gave 4 values; it must give 5 dicts by agent: observations, rewards, terminations"),
        (None, r"gave a NoneType; it must give 5 dicts by agent"),
        (({}, 1.0, {}, {}, {}), r"gave the rewards 1.0, which must be a dict by agent"),
        (({}, {"a1": np.zeros(1)}, {}, {}, {}), r"gave agent 'a1' the reward array\(\[0.\]\); it must be one number"),
    ],
)
def test_results_of_agents_of_another_form_are_named(given: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Uneven, "step", lambda self, actions: given)
    with pytest.raises(ConfigurationError, match=r"^environment '.*': step\(.*\) " + said):
        first_steps._step(EnvSettings(f"{__file__}:Uneven"))


def test_an_agent_that_is_not_listed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Uneven.step

    def joined_by_another(self: Uneven, actions: dict[str, int]) -> tuple[Any, ...]:
        given = step(self, actions)
        self.agents.append("late")
        return given

    monkeypatch.setattr(Uneven, "step", joined_by_another)
    said = r"step\(.*\) let agent 'late' play, which possible_agents does not list; list every agent"
    with pytest.raises(ConfigurationError, match=said):
        first_steps._step(EnvSettings(f"{__file__}:Uneven"))


class SomeMasks(Uneven):
    """Each agent has two actions, and only the games in `masked`, counted over all copies, have masks."""

    games = 0

    def __init__(self, masked: tuple[int, ...]) -> None:
        super().__init__()
        self.masked = masked

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        observations, infos = super().reset(seed, options)
        if SomeMasks.games in self.masked:
            infos["a1"] = {"action_mask": [True, False]}
        SomeMasks.games += 1
        return observations, infos


@pytest.mark.parametrize(("copies", "masked"), [(1, (0,)), (1, (1,)), (2, (0,)), (2, (1,))])
def test_masks_in_some_games_alone_are_an_error(
    copies: int, masked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SomeMasks, "games", 0)
    vector = envs.make_vector(EnvSettings(f"{__file__}:SomeMasks", {"masked": masked}), copies, 1)
    with pytest.raises(WrongMask, match="in some games, and not in others"):
        vector.reset()
        for _ in range(4):
            vector.step(np.zeros(3 * copies, np.int64))


def test_a_game_of_agents_needs_no_method_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Uneven, "close")
    team = Team(Uneven(), EnvSettings("uneven"))
    team.reset(seed=1)
    team.close()


def test_the_check_describes_the_agents(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    together.check(report, EnvSettings(LAMPS, agent_id=True), 200)
    told = capsys.readouterr().out
    assert not report.problems and "3 that learn by one policy: walker_0" in told and "presence" in told
