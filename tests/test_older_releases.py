"""Tests that today's code resumes and reads data of release 0.1.0; tests/releases says how it was made."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import redis
from gymnasium.spaces import Box, Discrete

from agents import Batch, build_policy, checkpoints
from agents.trajectories import Trajectory
from league.models.pool import Pool
from league.models.snapshots import Snapshots
from league.redis.store import Store
from league.state.replay import FORMAT, fold, read_folder
from tasks import codec
from warren import formats
from warren.files import read_json
from workers.config.schema import Config, from_yaml
from workers.config.validation import verify
from workers.launch.kinds.training import resumed
from workers.learning.delivery import Delivery
from workers.learning.plain import PlainRecipe
from workers.learning.player_state import PlayerState
from workers.rollout.served.sampler import ServedSampler
from workers.runtime.trained import load
from workers.servers import Servers

RELEASE = Path(__file__).parent / "releases" / "0.1.0"
STEPS, VERSION = 4096, 4  # the checkpoint's


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a folder with a copy of the release's runs."""
    shutil.copytree(RELEASE, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def messages() -> Any:
    return codec.decode((RELEASE / "messages.bin").read_bytes())


def test_a_plain_run_goes_on_with_its_weights_optimizer_and_steps(run: Path, messages: Any) -> None:
    config = resumed(Config(resume=str(run / "cartpole"), run="later"), ["total_steps=9000"])
    verify(config, "train")
    assert (config.network["hidden_sizes"], config.total_steps, config.trackers) == ([8], 9000, ["tensorboard"])
    state = PlayerState(SimpleNamespace(config=config, pool=None), PlainRecipe(config, run / "cartpole"))
    assert (state.progress.steps, state.progress.version) == (STEPS, VERSION)
    kept = checkpoints.load(run / "cartpole" / "checkpoints")
    for name, tensor in state.policy.state_dict().items():
        assert tensor.equal(kept.policy[name]), name
    tensors, _ = state.algorithm.state()
    moments = [name for name in tensors if tensors[name].any()]
    assert moments and all(tensors[name].equal(kept.algorithm[name]) for name in moments), "Adam's moments are lost"
    state.algorithm.update(Batch([Trajectory.from_dict(messages["segment"]["trajectory"], state.spec)]))
    assert not all(tensor.equal(kept.policy[name]) for name, tensor in state.policy.state_dict().items())


def test_a_trained_policy_acts_as_it_did(run: Path) -> None:
    trained = load(run / "cartpole")
    assert trained.version == VERSION and trained.act(np.zeros(4, np.float32)) in (0, 1)
    main = load(run / "kuhn", "main")
    frozen = load(run / "kuhn", "main@0")
    assert (main.version, frozen.version, main.two_player) == (7, 0, True)


def test_a_league_goes_on_where_it_was(run: Path, embedded: Servers, run_name: str) -> None:
    folder, client = run / "kuhn" / "league", redis.Redis.from_url(embedded.redis_url)
    verify(resumed(Config(resume=str(run / "kuhn"), run="later"), []), "train")
    saved = fold(read_folder(folder))
    assert list(saved.players) == ["main", "main_exploiter", "main@0"] and saved.counted == 80
    store = Store(client, f"{run_name}:league:")
    pool = Pool(client, f"{run_name}:", cache_bytes=0)
    snapshots = Snapshots(folder, store, pool)
    snapshots.restore()
    assert store.load().differences(saved) == []
    assert {str(info.ref) for info in pool.models()} >= {"main@0", "main@7"}
    match = store.request("main", "an actor", 60.0)
    assert store.report(match.id, "w").status == "counted"
    snapshots.save()
    assert read_json(folder / FORMAT) == formats.stamp(formats.LEAGUE)
    assert fold(read_folder(folder)).counted == saved.counted + 1


def test_a_segment_of_an_actor_is_taken(messages: Any) -> None:
    config = from_yaml(RELEASE / "cartpole" / "config.yaml")
    policy = build_policy(config.network, Box(-np.inf, np.inf, (4,), np.float32), Discrete(2), 0)
    taken: list[Any] = []
    delivery = Delivery([messages["segment"]], lambda _, error: pytest.fail(str(error)))
    delivery.read(policy.spec(), taken.append)
    assert [one.trajectory.num_steps for one in taken] == [16]


@pytest.mark.parametrize("masked", [False, True])
def test_an_env_runner_is_served_or_refused_in_one_line(messages: Any, masked: bool) -> None:
    policy = build_policy({"hidden_sizes": [4]}, Box(-np.inf, np.inf, (4,), np.float32), Discrete(2), 0)
    sampler = ServedSampler(policy, 8, 2, 0, legal_actions=masked)
    sampler.load(policy.state_dict(), 1)
    mask = {"action_mask": np.ones((2, 2), np.bool_)} if masked else {}
    answers = [sampler.act([call | mask])[0] for call in messages["calls"]]
    if masked:
        refused = [str(answer) for answer in answers if not isinstance(answer, dict)]
        assert refused and all("env runners of older releases" in one and "\n" not in one for one in refused)
        return
    assert all(isinstance(answer, dict) for answer in answers)
    trajectory = Trajectory.from_dict(sampler.collect(8).to_dict(), policy.spec())
    assert trajectory.truncated.sum() == 2 and trajectory.cut["value"][trajectory.truncated].all()
