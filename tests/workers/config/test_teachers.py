"""A run's teacher: its names, errors before anything starts, and the same teacher after a resume."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agents import build_algorithm, build_policy, checkpoints
from agents.policies import Policy
from league.matchmaking.view import ModelRef
from warren.errors import ConfigurationError, PoolError
from workers.config import teachers
from workers.config.schema import Config, EnvConfig
from workers.config.validation import verify
from workers.learning.plain import plain_trainer
from workers.learning.trainer import Trainer

CARTPOLE = "CartPole-v1"


def policy_of(network: dict[str, Any], seed: int = 4) -> Policy:
    import envs

    return build_policy(network, *envs.spaces(CARTPOLE), seed)


def taught(path: Path, network: dict[str, Any], seed: int = 4) -> Policy:
    """Make a run folder at `path` with a checkpoint; return its policy."""
    policy = policy_of(network, seed)
    algorithm = build_algorithm("ppo", {}, policy, 1)
    checkpoints.save(path / "checkpoints", "00000007", policy, algorithm, {"network": network, "environment": CARTPOLE})
    return policy


def config_of(folder: Path, teacher: str) -> Config:
    env, algorithm = EnvConfig(id=CARTPOLE), {"name": "ppo", "teacher": teacher}
    return Config(folder=str(folder), trial="t", run="r", env=env, algorithm=algorithm)


def trainer_of(config: Config, folder: Path) -> Trainer:
    pool = SimpleNamespace(newest=lambda player, newer_than: None)
    session: Any = SimpleNamespace(config=config, pool=pool)
    return plain_trainer(session, folder, on_finished=lambda: None)


def same(one: Policy, other: Policy) -> bool:
    mine, its = one.state_dict(), other.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


def test_a_teacher_is_named_by_run_folder_checkpoint_folder_or_checkpoint(tmp_path: Path) -> None:
    network = {"name": "mlp", "hidden_sizes": [8]}
    policy = taught(tmp_path / "run", network)
    for name in ("run", "run/checkpoints", "run/checkpoints/00000007.safetensors"):
        teacher, its_network = teachers.load(str(tmp_path / name), policy_of({}), None)
        assert same(teacher, policy)
        assert its_network == network


def test_a_student_keeps_its_teacher_when_that_run_is_gone_or_learned_more(tmp_path: Path) -> None:
    policy, student = taught(tmp_path / "run", {"hidden_sizes": [8]}), tmp_path / "student"
    config = config_of(tmp_path, str(tmp_path / "run"))
    assert same(trainer_of(config, student).algorithm.teacher, policy)  # type: ignore[attr-defined]
    taught(tmp_path / "run", {"hidden_sizes": [8]}, seed=5)
    assert same(trainer_of(config, student).algorithm.teacher, policy)  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "run")
    assert same(trainer_of(config, student).algorithm.teacher, policy)  # type: ignore[attr-defined]
    other = taught(tmp_path / "other", {"hidden_sizes": [8]}, seed=6)
    changed = replace(config, algorithm={**config.algorithm, "teacher": str(tmp_path / "other")})
    assert same(trainer_of(changed, student).algorithm.teacher, other)  # type: ignore[attr-defined]


def test_a_wrong_teacher_is_reported_before_anything_starts(tmp_path: Path) -> None:
    def said(teacher: str, env_id: str = CARTPOLE) -> str:
        config = replace(config_of(tmp_path, teacher), env=EnvConfig(id=env_id))
        with pytest.raises(ConfigurationError) as error:
            verify(config, role="train")
        (problem,) = error.value.problems
        return problem

    taught(tmp_path / "run", {"hidden_sizes": [8]})
    (tmp_path / "league" / "players" / "main").mkdir(parents=True)
    assert "runs/absent does not exist; name a run folder or a checkpoint" in said("runs/absent")
    assert "main@12 is a model of a league's pool; here, name a run folder" in said("main@12")
    assert "is a league's run folder; name one of its players: " in said(str(tmp_path / "league"))
    assert "are of another network; these tensors differ" in said(str(tmp_path / "run"), "Acrobot-v1")
    taught(tmp_path / "remembering", {"core": {"name": "gru", "size": 4}})
    assert "has a network with a memory" in said(str(tmp_path / "remembering"))
    verify(config_of(tmp_path, str(tmp_path / "run")), role="train")


def test_a_leagues_pool_has_teachers_by_player_and_version() -> None:
    policy = policy_of({})
    asked = []

    def pool(ref: ModelRef) -> bytes:
        asked.append(ref)
        if ref.version != 12:
            raise PoolError(f"model {ref} is not in the pool")
        return checkpoints.weights_to_bytes(policy, {})

    assert same(teachers.from_pool("main@12", pool, lambda *_: {}, policy_of({}, 9))[0], policy)
    assert asked == [ModelRef("main", 12)]
    with pytest.raises(ConfigurationError, match=r"algorithm\.teacher: model main@13 is not in the pool"):
        teachers.from_pool("main@13", pool, lambda *_: {}, policy_of({}))
