"""The games of benchmarks.adapters, each twice: through its adapter, and by the library alone.

Of every step the bare loops keep what any learner needs: observations, rewards and ends, in arrays. They do not check
actions, keep an ended episode's last observation apart or count returns and lengths, as the adapters do.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

import envs
from benchmarks.adapters.steppers import (
    COPIES,
    SEED,
    Adapted,
    AdaptedGames,
    Bare,
    BareAEC,
    BareParallel,
    BareStates,
    Case,
    Missing,
    Stepper,
    drawn,
    outcomes,
)


def needs(*modules: str) -> None:
    """Raise Missing if a module is not installed."""
    if missing := [module for module in modules if importlib.util.find_spec(module) is None]:
        raise Missing(f"{', '.join(missing)} not installed")


def gymnasium_cartpole() -> Case:
    return lambda: Adapted(envs.EnvSettings("CartPole-v1")), lambda: Bare(lambda: gymnasium.make("CartPole-v1"))


def gymnasium_acrobot() -> Case:
    return lambda: Adapted(envs.EnvSettings("Acrobot-v1")), lambda: Bare(lambda: gymnasium.make("Acrobot-v1"))


def gym_cartpole() -> Case:
    import envs.one_agent.gym_envs

    gym = importlib.import_module("gym")
    bare = lambda: gym.make("CartPole-v1", disable_env_checker=True)  # noqa: E731
    return lambda: Adapted(envs.EnvSettings("gym:CartPole-v1")), lambda: Bare(bare)


def atari_pong() -> Case:
    needs("ale_py", "cv2")
    importlib.import_module("ale_py")

    def bare() -> Any:
        env = gymnasium.make("ALE/Pong-v5", frameskip=1, obs_type="grayscale")
        env = gymnasium.wrappers.AtariPreprocessing(env, 30, 4, 84, grayscale_obs=True)
        return gymnasium.wrappers.FrameStackObservation(env, 4)

    return lambda: Adapted(envs.EnvSettings("atari:pong")), lambda: Bare(bare, np.asarray)


def envpool_pong() -> Case:
    needs("envpool")
    envpool = importlib.import_module("envpool")

    class Pool(Stepper):
        def __init__(self) -> None:
            self.pool = envpool.make("Pong-v5", env_type="gymnasium", num_envs=COPIES, seed=SEED, num_threads=2)
            self.actions = drawn(self.pool.action_space)
            self.pool.reset()

        def step(self) -> None:
            self.pool.step(next(self.actions))

        def close(self) -> None:
            self.pool.close()

    return lambda: Adapted(envs.EnvSettings("envpool:Pong-v5", {"num_threads": 2})), Pool


def vizdoom_basic() -> Case:
    needs("vizdoom")
    importlib.import_module("vizdoom.gymnasium_wrapper")
    adapter = envs.EnvSettings("vizdoom:basic", {"screen_only": True})
    bare = lambda: gymnasium.make("VizdoomBasic-v1")  # noqa: E731
    return lambda: Adapted(adapter), lambda: Bare(bare, lambda observation: observation["screen"])


def mpe_simple() -> Case:
    needs("mpe2")
    simple = importlib.import_module("mpe2.simple_v3")

    class One(Stepper):
        def __init__(self) -> None:
            self.copies = [simple.parallel_env() for _ in range(COPIES)]
            for env in self.copies:
                env.reset(seed=SEED)
            (self.agent,) = self.copies[0].possible_agents
            self.actions = drawn(self.copies[0].action_space(self.agent))

        def step(self) -> None:
            seen, (rewards, ends) = [], outcomes()
            for i, (env, action) in enumerate(zip(self.copies, next(self.actions), strict=True)):
                observations, gained, over, cut, _ = env.step({self.agent: action})
                rewards[i] = gained[self.agent]
                if over[self.agent] or cut[self.agent]:
                    ends[i] = True
                    observations, _ = env.reset(seed=SEED)
                seen.append(observations[self.agent])
            np.stack(seen)

    return lambda: Adapted(envs.EnvSettings("mpe:simple")), One


def football() -> Case:
    needs("gfootball")
    import envs.one_agent.gym_envs

    level = "academy_empty_goal_close"
    library = importlib.import_module("gfootball.env.football_env")
    config = importlib.import_module("gfootball.env.config")
    wrappers = importlib.import_module("gfootball.env.wrappers")
    players = {"level": level, "players": ["agent:left_players=1"], "game_engine_random_seed": SEED}

    def seen(observation: Any) -> Any:
        return wrappers.Simple115StateWrapper.convert_observation(observation, True)[0]

    class One(library.FootballEnv):  # type: ignore[name-defined,misc]
        def step(self, action: Any) -> tuple[Any, ...]:
            observation, (reward,), *more = super().step(action)  # one reward per controlled player
            return observation, reward, *more

    return lambda: Adapted(envs.EnvSettings(f"football:{level}")), lambda: Bare(
        lambda: One(config.Config(players)), seen
    )


def gym_slimevolley() -> Case:
    needs("slimevolleygym")
    import envs.one_agent.gym_envs

    volley = importlib.import_module("slimevolleygym")
    return lambda: Adapted(envs.EnvSettings("gym:slimevolleygym:SlimeVolley-v0")), lambda: Bare(volley.SlimeVolleyEnv)


def slimevolley_of_two() -> Case:
    needs("slimevolleygym")
    import envs.one_agent.gym_envs  # noqa: F401

    volley = importlib.import_module("slimevolleygym")
    table = volley.SlimeVolleyEnv.action_table

    def start(env: Any) -> Sequence[Any]:
        observation = env.reset()
        return observation, env.game.agent_left.getObservation()

    def move(env: Any, one: int, other: int) -> tuple[Sequence[Any], float, bool]:
        observation, won, over, info = env.step(table[one], table[other])
        return (observation, info["otherObs"]), won, over

    bare = lambda: BareParallel(volley.SlimeVolleyEnv, start, move, len(table), np.float32)  # noqa: E731
    return lambda: AdaptedGames("examples/slimevolley/slimevolley.py:SlimeVolley"), bare


def openspiel(name: str) -> Callable[[], Case]:
    def case() -> Case:
        needs("pyspiel")
        return lambda: AdaptedGames(f"openspiel:{name}"), lambda: BareStates(name)

    return case


def pettingzoo_connect_four() -> Case:
    needs("pettingzoo")
    return lambda: AdaptedGames("pettingzoo:connect_four_v3"), lambda: BareAEC("classic/connect_four-v3")


def pettingzoo_pong() -> Case:
    needs("multi_agent_ale_py", "ale_py", "cv2")
    from envs.games.atari_games import emulator

    cv2 = importlib.import_module("cv2")
    frames: dict[int, np.ndarray] = {}

    def make() -> Any:
        return emulator("pong", "atari/pong-v3", obs_type="grayscale_image")

    def start(env: Any) -> Any:
        found, _ = env.reset()
        frames[id(env)] = np.stack([small(found["first_0"])] * 4)
        return frames[id(env)]

    def small(screen: np.ndarray) -> np.ndarray:
        found: np.ndarray = cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)
        return found

    def move(env: Any, one: int, other: int) -> tuple[Any, float, bool]:
        screens, won = [], 0.0
        for _ in range(4):
            found, gained, over, cut, _ = env.step({"first_0": one, "second_0": other})
            won += gained["first_0"]
            if any(over.values()) or any(cut.values()):
                return None, won, True
            screens.append(found["first_0"])
        newest = small(np.maximum(screens[-1], screens[-2]))
        frames[id(env)] = np.concatenate([frames[id(env)][1:], newest[None]])
        return frames[id(env)], won, False

    return lambda: AdaptedGames("pettingzoo:pong_v3"), lambda: BareParallel(make, start, move, 6, np.uint8)


CASES: dict[str, Callable[[], Case]] = {
    "gymnasium-cartpole": gymnasium_cartpole,
    "gymnasium-acrobot": gymnasium_acrobot,
    "gym-cartpole": gym_cartpole,
    "gym-slimevolley": gym_slimevolley,
    "atari-pong": atari_pong,
    "envpool-pong": envpool_pong,
    "vizdoom-basic": vizdoom_basic,
    "mpe-simple": mpe_simple,
    "football": football,
    "openspiel-leduc": openspiel("leduc_poker"),
    "openspiel-connect-four": openspiel("connect_four"),
    "openspiel-breakthrough": openspiel("breakthrough"),
    "pettingzoo-connect-four": pettingzoo_connect_four,
    "pettingzoo-pong": pettingzoo_pong,
    "slimevolley-of-two": slimevolley_of_two,
}
