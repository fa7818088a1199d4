"""The model of a run as services, and as a player of a league, on real servers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from support import launched
from support.deployed import run_folder, save
from support.waiting import PATIENCE, until
from test_frozen_players import league_folder

from agents.checkpoints import encode_weights, weights_from_bytes, weights_to_bytes
from league.matchmaking.view import ModelRef
from league.models.pool import Pool
from league.redis.store import Store
from tasks.admin.cleanup import remove_run
from tasks.app import create_app
from tasks.events import WEIGHTS, EventDispatcher, Subscription, of_player
from tasks.solver import Solver
from tasks.topology import Topology
from warren.errors import ConfigurationError, PlayerError, RemoteFailure
from workers import clone as command
from workers.models.cloning import clone
from workers.runtime.trained import load
from workers.servers import Servers

LSTM = {"hidden_sizes": [8], "core": {"name": "lstm", "size": 4}}


@pytest.fixture
def league(servers: Servers, run_name: str) -> Iterator[tuple[Store, Pool]]:
    """Make a league of one learning player, in the Redis of `run_name`."""
    client = redis.Redis.from_url(servers.redis_url)
    prefix = f"warren.{run_name}:"
    store = Store(client, f"{prefix}league:", seed=3)
    store.create()
    store.add_player("main", "pfsp")
    yield store, Pool(client, prefix)
    for key in client.scan_iter(f"{prefix}*"):
        client.delete(key)


@contextmanager
def model_of(folder: Path, servers: Servers, run_name: str) -> Iterator[tuple[Solver, Any, Topology]]:
    """Serve the model of a run folder in a process of its own; yield a solver, the application and the topology."""
    topology = Topology(run_name)
    app = create_app(topology, servers.broker_url, servers.redis_url)
    urls = {"WARREN_BROKER_URL": servers.broker_url, "WARREN_REDIS_URL": servers.redis_url, "WARREN_RUN": run_name}
    arguments = ["workers.deployment.model_service:Model", "--kwargs", json.dumps({"run": str(folder)})]
    log = folder / "log"
    log.write_bytes(b"")
    given = {**os.environ, **urls, "OMP_NUM_THREADS": "1"}
    process = launched.start("workers.serve", *arguments, log=log, given=given)
    solver = Solver(app, topology, deadline=PATIENCE)
    try:
        until(lambda: "serves model." in log.read_text() or process.poll() is not None)
        yield solver, app, topology
    finally:
        solver.close()
        process.terminate()
        process.wait(PATIENCE)
        remove_run(app, redis.Redis.from_url(servers.redis_url), topology)
    assert process.returncode == 0, log.read_text()


def test_services_of_a_model_forward_get_publish_and_clone(
    servers: Servers, run_name: str, tmp_path: Path, league: tuple[Store, Pool]
) -> None:
    store, _ = league
    run_folder(tmp_path / "run", LSTM, version=3, env="CartPole-v1")
    newer = save(tmp_path / "other", 1, LSTM, seed=4)
    with model_of(tmp_path / "run", servers, run_name) as (solver, _, _):
        observations = np.ones((2, 4), np.float32)
        answers = list(solver.map("model.forward", [(observations, {})] * 5, in_flight=5))
        assert all(answer["version"] == 3 and answer["action"].shape == (2,) for answer in answers)
        memory = answers[0]["memory"]
        assert all(part.shape == (2, 4) for part in memory.values()) and any(part.any() for part in memory.values())
        later = solver.call("model.forward", observations, memory)["memory"]
        assert any((later[name] != memory[name]).any() for name in memory)

        data = weights_to_bytes(newer, {})
        assert solver.call("model.publish_weights", data, 1000) == 4
        model = solver.call("model.get_model", "main")
        assert (model["player"], model["version"], model["step"]) == ("main", 4, 1000)
        tensors, _ = weights_from_bytes(model["data"])
        assert all((tensors[name] == tensor).all() for name, tensor in newer.state_dict().items())
        assert solver.call("model.forward", observations, {})["version"] == 4
        with pytest.raises(RemoteFailure, match="are of another network"):
            solver.call("model.publish_weights", weights_to_bytes(save(tmp_path / "third", 1, {}), {}), 0)

        assert solver.call("model.clone", "champion") == "champion@4"
        champion = store.player("champion")
        assert champion.frozen and champion.model == ModelRef("champion", 4)


NIM = {"name": "mlp", "hidden_sizes": [16], "policy_gain": 1.0}


def test_a_leagues_model_follows_its_player_and_publishes_to_it(
    servers: Servers, run_name: str, tmp_path: Path, league: tuple[Store, Pool]
) -> None:
    """It follows its player's event, publishes with the player's generation, and respects masks of legal actions."""
    _, pool = league
    old = league_folder(tmp_path, NIM)
    stamp = {"player": "main", "version": 8, "step": 800, "generation": 2, "behaviour": {}}
    pool.put("main", 8, 800, weights_to_bytes(old, stamp))
    event, turn = of_player(WEIGHTS, "main"), (np.zeros((4, 16), np.float32), {})
    arrived: list[dict[str, Any]] = []
    with model_of(tmp_path, servers, run_name) as (solver, app, topology):
        assert solver.call("model.forward", *turn)["version"] == 8
        subscription = Subscription(app, topology, {event: arrived.append}, "test").start()
        events = EventDispatcher(app, topology)
        try:
            data = weights_to_bytes(old, {**stamp, "version": 9})
            pool.put("main", 9, 900, data)
            events.fire(event, {**stamp, "version": 9, "data": data})
            until(lambda: solver.call("model.forward", *turn)["version"] == 9)
            for legal in range(3):
                masks = np.arange(3)[None].repeat(4, 0) == legal
                assert (solver.call("model.forward", *turn, masks)["action"] == legal).all()
            with pytest.raises(RemoteFailure, match=r"mask of legal actions is \[4, 2\]; it must be \[4, 3\]"):
                solver.call("model.forward", *turn, np.ones((4, 2), bool))

            broken = {name: tensor * float("nan") for name, tensor in old.state_dict().items()}
            with pytest.raises(RemoteFailure, match="hold numbers that are not finite"):
                solver.call("model.publish_weights", encode_weights(broken, {}), 1000)
            assert pool.version("main") == 9 == solver.call("model.forward", *turn)["version"]

            assert solver.call("model.publish_weights", weights_to_bytes(old, {"generation": 1}), 1000) == 10
            until(lambda: any(payload["version"] == 10 for payload in arrived))
            (published,) = [payload for payload in arrived if payload["version"] == 10]
            assert published["generation"] == 2 and published["step"] == 1000
            newest = pool.newest("main")
            assert newest is not None and weights_from_bytes(newest.data)[1]["generation"] == 2
            assert solver.call("model.forward", *turn)["version"] == 10
        finally:
            subscription.stop()
            events.close()


def test_a_model_skips_weights_that_are_not_finite(
    servers: Servers, run_name: str, tmp_path: Path, league: tuple[Store, Pool]
) -> None:
    _, pool = league
    policy = run_folder(tmp_path, {"hidden_sizes": [8]}, version=3, env="CartPole-v1")
    broken = {name: tensor * float("nan") for name, tensor in policy.state_dict().items()}
    pool.put("main", 4, 0, encode_weights(broken, {"version": 4}))
    with model_of(tmp_path, servers, run_name) as (solver, _, _):
        assert solver.call("model.forward", np.ones((2, 4), np.float32), {})["version"] == 3


def test_a_clone_is_an_opponent_of_the_league_and_learns_nothing(
    servers: Servers, run_name: str, tmp_path: Path, league: tuple[Store, Pool], capsys: pytest.CaptureFixture[str]
) -> None:
    store, pool = league
    policy = run_folder(tmp_path, {"hidden_sizes": [8]}, version=7, env="CartPole-v1")
    given = command.CloneConfig(str(tmp_path), "champion", run_name, servers.redis_url)
    for _ in range(2):  # repeating it changes nothing
        assert command.run(given) == 0
    assert f"champion is a player of league {run_name}, for good the model champion@7" in capsys.readouterr().out
    match = store.request("main", "me", 60.0)
    assert (match.away, match.away_frozen) == ("champion", True), "the clone is the only frozen rival"
    tensors, _ = weights_from_bytes(pool.get("champion", 7).data)
    assert all((tensors[name] == tensor).all() for name, tensor in policy.state_dict().items())
    save(tmp_path, 8, {"hidden_sizes": [8]}, seed=2)
    with pytest.raises(PlayerError, match="is in the league already, and is another model"):
        command.run(given)
    other = run_folder(tmp_path / "other", {"hidden_sizes": [16]}, env="CartPole-v1")
    with pytest.raises(ConfigurationError, match=r"its network is not the league's: .* is \(16,\) here and \(8,\)"):
        clone(store, pool, other, 1, "wide")
    assert "wide" not in store.view().roster
    assert load(tmp_path, version=7).version == 7
