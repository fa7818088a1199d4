"""Evaluations of a run without a league: whole episodes with the newest weights, beside training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import redis
from gymnasium.spaces import Box, Discrete

import envs
from agents import build_policy, checkpoints
from agents.policies import Policy
from league.models.pool import Pool
from tasks.events import EVALUATION
from warren.errors import ConfigurationError
from workers.config import plain_checks
from workers.config.schema import Config, EnvConfig, EvaluationConfig, to_yaml
from workers.evaluation.episodes import Episodes, Interrupted
from workers.evaluation.plain import PlainEvaluator
from workers.learning import curve
from workers.learning.metrics import EVALUATIONS, read_metrics
from workers.runtime.trained import load

GAME = f"{__file__}:Walk"


class Walk(gymnasium.Env):
    """Episodes of one step more than the seed's last digit; each step earns 2 by action 1 and 0 by action 0."""

    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = (seed or 0) % 10 + 1
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.ones(1, np.float32), 2.0 * int(action), self.left == 0, False, {}


class Endless(Walk):
    """Episodes without an end."""

    def step(self, action):
        return np.ones(1, np.float32), 1.0, False, False, {}


class Masked(Walk):
    """Walk in which action 1 is never legal."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action):
        return *super().step(action)[:4], {"action_mask": np.array([1, 0], np.int8)}


def policy_for(action: int) -> Policy:
    """Return a policy that slightly prefers `action`."""
    policy = build_policy({"hidden_sizes": []}, Walk.observation_space, Walk.action_space, seed=1)
    for parameter in policy.parameters():
        parameter.data.zero_()
    policy.network.policy_trunk.layers[-1].bias.data[action] = 0.1
    return policy


def test_each_episode_counts_once_with_the_likeliest_actions():
    settings = envs.EnvSettings(GAME, reward_scale=0.5)
    episodes = Episodes(settings, count=5, copies=2, seed=20)
    expected = [[2.0 * (i + 1), i + 1] for i in range(5)]  # returns are not scaled
    for _ in range(2):
        assert episodes.play(policy_for(1)).tolist() == expected
    assert episodes.play(policy_for(0))[:, 0].tolist() == [0.0] * 5
    episodes.close()
    masked = Episodes(envs.EnvSettings(f"{__file__}:Masked"), count=2, copies=2, seed=20)
    assert masked.play(policy_for(1)).tolist() == [[0.0, 1.0], [0.0, 2.0]]
    masked.close()


def test_an_evaluation_can_be_interrupted_and_cuts_endless_episodes(monkeypatch: pytest.MonkeyPatch):
    episodes = Episodes(envs.EnvSettings(f"{__file__}:Endless"), count=1, copies=4, seed=1)
    with pytest.raises(Interrupted):
        episodes.play(policy_for(1), over=lambda: True)
    monkeypatch.setattr("workers.evaluation.episodes.LONGEST", 7)
    assert episodes.play(policy_for(1)).tolist() == [[7.0, 7.0]]
    episodes.close()


@pytest.fixture
def session(redis_url: str, run_name: str) -> Iterator[Any]:
    """Yield a session that keeps its events in `fired`."""
    client, prefix = redis.Redis.from_url(redis_url), f"warren.{run_name}:"
    fired: list[Any] = []
    events = SimpleNamespace(fire=lambda name, payload: fired.append((name, payload)))
    yield SimpleNamespace(redis=client, pool=Pool(client, prefix), events=events, fired=fired)
    for key in client.scan_iter(f"{prefix}*"):
        client.delete(key)


def evaluator(session: Any, folder: Path, **evaluation: Any) -> PlainEvaluator:
    config = Config(folder=str(folder), project="p", trial="t", env=EnvConfig(id=GAME, num_envs=2))
    config.network = {"name": "mlp", "hidden_sizes": []}
    config.evaluation = EvaluationConfig(**{"every": 100, "episodes": 3, "keep_best": True, **evaluation})
    config.algorithm = {"name": "ppo"}
    (folder / "p" / "t").mkdir(parents=True, exist_ok=True)
    (folder / "p" / "t" / "config.yaml").write_text(to_yaml(config))
    return PlainEvaluator(config, session)


def put(session: Any, version: int, step: int, action: int) -> None:
    stamp = {"player": "main", "version": version, "step": step}
    session.pool.put("main", version, step, checkpoints.weights_to_bytes(policy_for(action), stamp))


def test_weights_are_evaluated_every_so_many_steps_and_at_the_end(session: Any, tmp_path: Path):
    role = evaluator(session, tmp_path)
    assert not role.step()  # nothing is published yet
    for version, step, action, due in ((0, 0, 0, False), (1, 99, 0, False), (2, 130, 1, True), (3, 199, 0, False)):
        put(session, version, step, action)
        assert role.step() is due
    put(session, 4, 450, 0)  # several intervals passed during the last evaluation
    assert role.step() and not role.step()
    put(session, 5, 480, 0)
    assert role.step(last=True) and not role.step(last=True)
    folder = tmp_path / "p" / "t"
    role.leave()
    points = read_metrics(folder, EVALUATIONS)
    assert [(point["version"], point["steps"]) for point in points] == [(2, 130), (4, 450), (5, 480)]
    assert points[0]["mean_return"] > 0 == points[1]["mean_return"] and points[0]["episodes"] == 3
    assert [name for name, _ in session.fired] == [EVALUATION] * 3 and session.fired[0][1]["steps"] == 130
    best = load(folder, best=True)
    assert (best.version, best.act(np.ones(1, np.float32))) == (2, 1)
    assert list((folder / "tensorboard" / EVALUATIONS).iterdir())


def test_a_resumed_run_drops_evaluations_of_lost_weights_and_keeps_its_best(session: Any, tmp_path: Path):
    first = evaluator(session, tmp_path)
    for version, step, action in ((1, 100, 1), (2, 200, 0), (3, 300, 0)):
        put(session, version, step, action)
        assert first.step()
    first.leave()
    again = evaluator(session, tmp_path)
    again._begin(2)
    assert [point["version"] for point in read_metrics(again.folder, EVALUATIONS)] == [1, 2]
    put(session, 4, 320, 0)
    assert again.step() and load(again.folder, best=True).version == 1
    again.leave()


def test_the_learning_curve_shows_evaluations_beside_training(tmp_path: Path):
    point = {"steps": 10, "mean_return": 1.0, "training_seconds": 1.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    config = Config()
    bare = curve.draw(tmp_path, config).read_bytes()
    (tmp_path / "evaluation.jsonl").write_text(json.dumps({**point, "deviation": 0.5}) + "\n")
    assert curve.draw(tmp_path, config).read_bytes() != bare


def test_wrong_settings_of_evaluations_are_refused():
    config = Config(evaluation=EvaluationConfig(every=0, episodes=0), evaluators=2)
    config.env.id = "gamecore:file.py:Actor"
    found = [one for one in plain_checks.problems(config, "train") if one.startswith("evaluat")]
    assert [one.partition(":")[0] for one in found] == [
        "evaluation.every", "evaluation.episodes", "evaluators", "evaluation.every",
    ]  # fmt: skip


def test_a_run_without_a_best_checkpoint_says_how_to_keep_one(session: Any, tmp_path: Path):
    folder = evaluator(session, tmp_path).folder
    with pytest.raises(ConfigurationError, match=r"evaluation.every=STEPS evaluation.keep_best=true"):
        load(folder, best=True)
