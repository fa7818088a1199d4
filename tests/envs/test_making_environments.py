import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import envs
from warren.errors import ConfigurationError, UnknownName

MODERN = """
import gymnasium, numpy as np

class Line(gymnasium.Env):
    def __init__(self, length=3):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (length,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.observation_space.shape, np.float32), {}
    def step(self, action):
        return np.ones(self.observation_space.shape, np.float32), 1.0, True, False, {}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Yield a function that writes a module and returns its path; forget its imports afterwards."""
    before, path_before = set(sys.modules), list(sys.path)

    def write(text: str, name: str = "my_game.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    yield write
    sys.path[:] = path_before
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "gymnasium:CartPole-v1", "gym:CartPole-v1", "gym:Acrobot-v1"])
def test_an_environment_of_any_source_has_gymnasiums_interface(env_id: str):
    env = envs.make(env_id)
    observation, info = env.reset(seed=3)
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    assert env.observation_space.contains(observation)
    assert info == {}
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(observation)
    assert reward in (1.0, -1.0)  # CartPole, Acrobot
    assert (terminated, truncated) == (False, False)
    assert isinstance(info, dict)


def test_a_seed_repeats_an_environment_of_old_gym():
    first, second = (envs.make("gym:CartPole-v1").reset(seed=11)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_old_gym_plays_the_same_cartpole_as_gymnasium():
    old, new = envs.make("gym:CartPole-v1"), envs.make("CartPole-v1")
    np.testing.assert_array_equal(old.reset(seed=5)[0], new.reset(seed=5)[0])
    for action in [0, 1, 1, 0, 1, 0, 0]:
        np.testing.assert_allclose(old.step(action)[0], new.step(action)[0], rtol=1e-5)


def test_the_time_limit_of_an_old_gym_environment_truncates():
    env = envs.make("gym:MountainCar-v0")
    env.reset(seed=0)
    steps = [env.step(1) for _ in range(200)]
    assert [s[3] for s in steps] == [False] * 199 + [True]
    assert not any(s[2] for s in steps)


def test_arguments_reach_the_constructor():
    assert envs.make("CartPole-v1", max_episode_steps=7).get_wrapper_attr("_max_episode_steps") == 7


def test_an_unknown_id_names_near_ones():
    with pytest.raises(UnknownName, match=r"environment 'Cartpole-v1' does not exist; did you mean CartPole-v1"):
        envs.make("Cartpole-v1")


def test_an_unknown_version_lists_the_known_ones():
    with pytest.raises(UnknownName, match=r"CartPole-v7.*`v0`, `v1`"):
        envs.make("CartPole-v7")


def test_an_unknown_id_of_old_gym_names_near_ones_with_the_prefix():
    with pytest.raises(UnknownName, match=r"'gym:Cartpole-v1' does not exist; did you mean gym:CartPole-v1"):
        envs.make("gym:Cartpole-v1")


def test_an_argument_that_the_constructor_refuses_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match=r"'CartPole-v1' of gymnasium failed.*gravity"):
        envs.make("CartPole-v1", gravity=1.6)


def test_an_argument_that_a_users_class_lacks_is_named_with_the_class(source):
    path = source(MODERN)
    with pytest.raises(ConfigurationError) as raised:
        envs.make(f"{path}:Line", bog=1)
    (said,) = raised.value.problems
    assert said.startswith(f"environment '{path}:Line': Line.__init__() got an unexpected keyword argument 'bog'")
    assert "it takes (length=3) at " in said and f"{path.name}:" in said and "user_envs" not in said


def test_a_class_in_a_file_is_an_environment(source):
    env = envs.make(f"{source(MODERN)}:Line", length=5)
    assert env.observation_space.shape == (5,)


def test_a_class_in_a_module_is_an_environment(source, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(source(MODERN, "line_game.py").parent)
    assert envs.make("line_game:Line").observation_space.shape == (3,)


def test_a_function_that_makes_an_environment_is_accepted(source):
    path = source(MODERN + "\ndef long_line():\n    return Line(length=9)\n")
    assert envs.make(f"{path}:long_line").observation_space.shape == (9,)


def test_a_file_may_import_its_neighbours_and_runs_once(source):
    source("count = 0\n", "neighbour_of_game.py")
    path = source("import neighbour_of_game\nneighbour_of_game.count += 1\n" + MODERN)
    for _ in range(3):
        envs.make(f"{path}:Line")
    assert sys.modules["neighbour_of_game"].count == 1


def test_two_files_of_one_name_are_two_modules(source, tmp_path: Path):
    (tmp_path / "other").mkdir()
    first, second = source(MODERN), source(MODERN.replace("length=3", "length=4"), "other/my_game.py")
    assert envs.make(f"{first}:Line").observation_space.shape == (3,)
    assert envs.make(f"{second}:Line").observation_space.shape == (4,)


def test_a_missing_class_names_near_ones(source):
    with pytest.raises(UnknownName, match=r"environment 'Lime' does not exist; did you mean Line\?"):
        envs.make(f"{source(MODERN)}:Lime")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"there is no file .*absent\.py"):
        envs.make(f"{tmp_path / 'absent.py'}:Line")


def test_a_missing_module_is_named_with_the_remedy():
    with pytest.raises(ConfigurationError, match=r"there is no module 'absent_game'.*PYTHONPATH"):
        envs.make("absent_game:Line")


def test_a_module_that_imports_something_missing_blames_its_own_line(source):
    path = source("x = 1\nimport absent_library\n")
    with pytest.raises(ConfigurationError, match=r"importing .*my_game\.py:2: ModuleNotFoundError.*absent_library"):
        envs.make(f"{path}:Line")


def test_a_file_that_fails_can_be_corrected_and_loaded_again(source):
    path = source("1 / 0\n")
    with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
        envs.make(f"{path}:Line")
    source(MODERN)
    assert envs.make(f"{path}:Line").observation_space.shape == (3,)


def test_a_syntax_error_names_file_and_line(source):
    path = source("x = 1\ndef f(:\n")
    with pytest.raises(ConfigurationError, match=r"SyntaxError: .*my_game\.py, line 2"):
        envs.make(f"{path}:Line")


def test_a_module_that_exits_does_not_end_the_process(source):
    with pytest.raises(ConfigurationError, match="SystemExit: 3"):
        envs.make(f"{source('import sys; sys.exit(3)')}:Line")


def test_a_constructor_that_fails_blames_its_line(source):
    path = source("def make():\n    raise RuntimeError('no display')\n")
    with pytest.raises(ConfigurationError, match=r"my_game\.py:2: RuntimeError: no display"):
        envs.make(f"{path}:make")


def test_spaces_are_those_of_the_environment():
    observation_space, action_space = envs.spaces("CartPole-v1")
    assert observation_space.shape == (4,)
    assert action_space == gymnasium.spaces.Discrete(2)


def test_a_vector_of_no_environments_is_refused():
    with pytest.raises(ConfigurationError, match="num_envs=0"):
        envs.make_vector("CartPole-v1", 0, seed=1)


def test_copies_whose_spaces_differ_are_refused(source):
    path = source(MODERN + "\nlengths = iter(range(2, 9))\ndef uneven():\n    return Line(next(lengths))\n")
    with pytest.raises(ConfigurationError, match=r"2 copies of environment .*uneven' failed.*observation spaces"):
        envs.make_vector(f"{path}:uneven", 2, seed=1)


GAMES_OF_TWO = """
from envs import TwoPlayerVectorEnv

class Vectorised(TwoPlayerVectorEnv):
    def __init__(self, num_envs, seed):
        super().__init__("game", num_envs, (2,), 3)
    def _reset(self): ...
    def _step(self, action): ...

class Agents:
    possible_agents = ["a", "b"]
    def observation_space(self, agent): ...
"""


@pytest.mark.parametrize("name", ["Vectorised", "Agents", "openspiel:kuhn_poker", "pettingzoo:tictactoe_v3"])
def test_a_game_of_two_players_is_refused_with_the_settings_of_a_league(source, name: str):
    env_id = name if ":" in name else f"{source(GAMES_OF_TWO)}:{name}"
    with pytest.raises(ConfigurationError, match=r"is a game of two players, .*: league=mine league\.env=") as error:
        envs.make(env_id)
    assert f"league.env={env_id} in place of env.id={env_id}" in str(error.value)


def test_a_missing_module_is_named_with_the_way_to_get_it(source):
    with pytest.raises(ConfigurationError, match=r"bin/pip install absent_library; if it is a module of your own"):
        envs.make(f"{source('import absent_library')}:Line")
    with pytest.raises(UnknownName, match=r"gym:slimevolleygym:SlimeVolley-v0, or by its class, module:Class"):
        envs.make("gym:SlimeVolley-v0")


def test_the_goal_of_an_environment_is_its_reward_threshold(source):
    assert envs.reward_threshold("CartPole-v1") == 475
    assert envs.reward_threshold("Acrobot-v1") == -100
    assert envs.reward_threshold("gym:CartPole-v0") == 195
    assert envs.reward_threshold("Taxi-v4") == 8
    assert envs.reward_threshold("Pendulum-v1") is None
    assert envs.reward_threshold("openspiel:kuhn_poker") is None
    assert envs.reward_threshold("Absent-v0") is None
    assert envs.reward_threshold(f"{source('1 / 0')}:Line") is None


def test_without_mujoco_the_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigurationError, match=r"'Hopper-v5' .* MuJoCo, of Warren's extra `mujoco`; install it: "):
        envs.make("Hopper-v5")


def test_without_box2d_the_error_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    with pytest.raises(ConfigurationError, match=r"'LunarLander-v3' .* Box2D, of Warren's extra `box2d`; install it: "):
        envs.make("LunarLander-v3")


def test_cartpole_without_velocities_shows_scaled_position_and_angle() -> None:
    whole, hidden = gymnasium.make("CartPole-v1"), envs.make("envs.hidden_velocities:CartPole")
    seen, _ = whole.reset(seed=3)
    observation, _ = hidden.reset(seed=3)
    for _ in range(5):
        assert observation in hidden.observation_space
        assert observation == pytest.approx([seen[0] / 2.4, seen[2] / 0.2095])
        seen, observation = whole.step(1)[0], hidden.step(1)[0]


def test_only_the_diver_that_always_goes_right_finds_the_treasure() -> None:
    sea = envs.make("envs.deep_sea:DeepSea", size=5, seed=2)
    right = np.random.default_rng(2).integers(2, size=(5, 5))

    def dive(moves: list[bool]) -> tuple[float, list[list[int]]]:
        observation, _ = sea.reset(seed=0)
        total, places, ended = 0.0, [], False
        for move in moves:
            assert not ended and observation.sum() == 1.0
            row, column = np.argwhere(observation)[0].tolist()
            places.append([row, column])
            action = right[row, column] if move else 1 - right[row, column]
            observation, reward, ended, truncated, _ = sea.step(action)
            total += float(reward)
        assert ended and not truncated and not observation.any()
        return total, places

    assert dive([True] * 5) == (pytest.approx(0.99), [[row, row] for row in range(5)])
    assert dive([False, True, True, True, True]) == (
        pytest.approx(-0.008),
        [[0, 0], *([row, row - 1] for row in range(1, 5))],
    )
    assert dive([True, False, False, False, True]) == (pytest.approx(-0.004), [[0, 0], [1, 1], [2, 0], [3, 0], [4, 0]])


REGISTERING = (
    MODERN
    + """
gymnasium.register("Maze/Line-v3", entry_point=Line, max_episode_steps=5, reward_threshold=2.0)
"""
)


def test_an_id_that_a_module_or_a_file_registers_can_be_made(source, monkeypatch: pytest.MonkeyPatch):
    file = source(REGISTERING, "mazes.py")
    monkeypatch.chdir(file.parent)
    for env_id in ("mazes:Maze/Line-v3", f"{file}:Maze/Line-v3", "gymnasium:mazes:Maze/Line-v3"):
        env = envs.make(env_id, length=2)
        assert env.observation_space.shape == (2,) and env.spec.max_episode_steps == 5
    assert envs.make_vector("mazes:Maze/Line-v3", 2, seed=1).reset()[0].shape == (2, 3)


def test_an_id_that_a_module_does_not_register_is_refused_with_near_ones(source, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(gymnasium.registry, "Maze/Line-v3", raising=False)
    file = source(REGISTERING, "mazes.py")
    monkeypatch.chdir(file.parent)
    with pytest.raises(UnknownName, match="'Maze/Lime-v3' does not exist; did you mean Maze/Line-v3"):
        envs.make("mazes:Maze/Lime-v3")
    with pytest.raises(ConfigurationError, match="there is no module 'amazing'"):
        envs.make("amazing:Maze-v0")
    with pytest.raises(UnknownName, match="one that a package registers: MODULE:ID"):
        envs.make("Amazing-v0")
    with pytest.raises(
        UnknownName, match=r"'mazes.py' does not exist \(a class or function of a file: mazes.py:NAME\)"
    ):
        envs.make("mazes.py")
