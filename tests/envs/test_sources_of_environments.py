"""Environments of other libraries, by name; tests that need a missing library are skipped."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import envs
from envs import EnvSettings
from envs.checking import one_agent
from envs.checking.report import Report
from envs.many_agents.team import Team
from warren.errors import ConfigurationError, UnknownName


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_agent, "VECTOR_SECONDS", 0.05)
    monkeypatch.setattr("envs.checking.repeatable.STEPS", 20)


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        ("ale_py", EnvSettings("atari:pong", noop_start=0)),
        ("envpool", EnvSettings("envpool:CartPole-v1")),
        ("envpool", EnvSettings("envpool:Pong-v5")),
        ("vizdoom", EnvSettings("vizdoom:basic", {"screen_only": True}, grey=True, resize=84)),
        ("vizdoom", EnvSettings("vizdoom:defend_center")),
        ("mpe2", EnvSettings("mpe:simple")),
        ("minatar", EnvSettings("minatar:breakout")),
        ("minatar", EnvSettings("minatar:SpaceInvaders", {"sticky_action_prob": 0.0})),
    ],
    ids=lambda given: given.id if isinstance(given, EnvSettings) else "",
)
def test_the_checker_finds_no_problem(module: str, settings: EnvSettings) -> None:
    pytest.importorskip(module)
    report = Report()
    one_agent.check(report, settings, 40)
    assert report.problems == []


@pytest.mark.parametrize(
    ("env_id", "module", "extra"),
    [
        ("atari:pong", "ale_py", "atari"),
        ("envpool:Pong-v5", "envpool", "envpool"),
        ("vizdoom:basic", "vizdoom", "vizdoom"),
        ("mpe:simple", "mpe2", "mpe"),
        ("minatar:breakout", "minatar", "minatar"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(
    env_id: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"install -e '\.\[{extra}\]'"):
        envs.make(env_id)


@pytest.mark.parametrize(
    ("module", "wrong", "near"),
    [
        ("ale_py", "atari:pogn", "atari:pong"),
        ("envpool", "envpool:Pogn-v5", "envpool:Pong-v5"),
        ("vizdoom", "vizdoom:basik", "vizdoom:basic"),
        ("mpe2", "mpe:simpel", "mpe:simple"),
        ("minatar", "minatar:brakeout", "minatar:breakout"),
    ],
)
def test_an_unknown_name_lists_near_names(module: str, wrong: str, near: str) -> None:
    pytest.importorskip(module)
    with pytest.raises(UnknownName, match=near):
        envs.make(wrong)


def test_atari_has_the_usual_preprocessing_unless_set_otherwise() -> None:
    pytest.importorskip("ale_py")
    by_name, by_id = envs.make("atari:Pong"), envs.make(EnvSettings("ALE/Pong-v5", preprocessing="atari"))
    assert by_name.observation_space == by_id.observation_space == gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    np.testing.assert_array_equal(by_name.reset(seed=5)[0], by_id.reset(seed=5)[0])
    for action in (0, 2, 3, 3, 1):
        mine, theirs = by_name.step(action), by_id.step(action)
        np.testing.assert_array_equal(mine[0], theirs[0])
        assert mine[1:4] == theirs[1:4]
    assert EnvSettings("atari:pong").rewards().clip == 1
    assert EnvSettings("atari:pong", frame_stack=2).resolved().frame_stack == 2
    assert EnvSettings("atari:pong", preprocessing="none").resolved().frame_stack is None


def test_a_pool_plays_as_single_copies_do_and_resets_in_the_last_step() -> None:
    pytest.importorskip("envpool")
    copies, seed = 3, 11
    pool = envs.make_vector("envpool:CartPole-v1", copies, seed)
    alone = [envs.make_vector("envpool:CartPole-v1", 1, seed + i) for i in range(copies)]
    observation, _ = pool.reset()
    np.testing.assert_array_equal(observation, [one.reset()[0][0] for one in alone])
    generator, ends = np.random.default_rng(0), 0
    for _ in range(150):
        action = generator.integers(0, 2, copies)
        observation, reward, terminated, truncated, info = pool.step(action)
        for i, one in enumerate(alone):
            seen, gained, ended, cut, said = one.step(action[i : i + 1])
            assert (gained[0], ended[0], cut[0]) == (reward[i], terminated[i], truncated[i])
            np.testing.assert_array_equal(observation[i], seen[0])
            if ended[0] or cut[0]:
                ends += 1
                np.testing.assert_array_equal(info["final_obs"][i], said["final_obs"][0])
    assert ends > 5
    pool.close()


def test_envpools_cartpole_equals_gymnasiums_to_single_precision() -> None:
    pytest.importorskip("envpool")
    theirs, plain = envs.make("envpool:CartPole-v1"), gymnasium.make("CartPole-v1").unwrapped
    generator = np.random.default_rng(0)
    for episode in range(5):
        plain.reset()
        plain.state = theirs.reset(seed=episode)[0].astype(np.float64)
        ended = False
        while not ended:
            action = int(generator.integers(2))
            observation, reward, ended, _, _ = theirs.step(action)
            expected, gained, over, _, _ = plain.step(action)
            np.testing.assert_allclose(observation, expected, rtol=1e-4, atol=1e-5)
            assert (reward, ended) == (gained, over)


def test_an_mpe_game_of_several_agents_is_a_team() -> None:
    pytest.importorskip("mpe2")
    team = envs.make(EnvSettings("mpe:simple_tag", state=True))
    assert isinstance(team, Team) and len(team.agents) == 4
    observations, info = team.reset(seed=1)
    assert {one["observation"].shape for one in observations} == {(16,)} and info["valid"].all()  # the longest
    assert observations[0]["state"].shape == (62,)


def test_minatar_gives_the_actions_that_have_an_effect_or_all_six() -> None:
    pytest.importorskip("minatar")
    assert envs.make("minatar:breakout").action_space.n == 3  # type: ignore[attr-defined]
    all_of_them = envs.make("minatar:breakout", use_minimal_action_set=False)
    assert all_of_them.action_space.n == 6  # type: ignore[attr-defined]
    observation, _ = all_of_them.reset(seed=1)
    assert observation.dtype == np.bool_ and observation.shape == (10, 10, 4) and observation[9, 4, 0]
    with pytest.raises(ConfigurationError, match=r"minatar:breakout.*stick"):
        envs.make("minatar:breakout", stick=1)


def test_an_episode_of_minatar_does_not_begin_with_the_last_ones_action() -> None:
    pytest.importorskip("minatar")
    env = envs.make("minatar:breakout", sticky_action_prob=1.0)  # it repeats the last action forever
    played = []
    for action, of_game in ((2, 3), (1, 1)):
        env.reset(seed=1)
        env.unwrapped.game.last_action = of_game  # type: ignore[attr-defined]
        played.append(env.step(0)[0][9, :, 0].argmax())
        env.reset(seed=1)
        assert env.step(action)[0][9, :, 0].argmax() == 4, "the paddle stays where it is"
    assert played == [5, 3]


def test_pictures_of_minatar_are_uint8_and_large_enough_for_a_film() -> None:
    pytest.importorskip("minatar")
    env = envs.make("minatar:breakout", render_mode="rgb_array")
    observation, _ = env.reset(seed=1)
    picture = env.render()
    assert isinstance(picture, np.ndarray) and (picture.dtype, picture.shape) == (np.uint8, (160, 160, 3))
    cells = picture[8::16, 8::16]
    assert (cells[~observation.any(2)] == 0).all() and (cells[observation.any(2)] > 0).any(1).all()
