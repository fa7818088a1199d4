"""Frozen players of a league are exported to ONNX and int8, verified and served."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_backends import with_onnx

import envs
from agents import Policy, build_algorithm, build_policy, checkpoints
from league.models.saved_files import MODELS
from workers import export
from workers.config.schema import Config, GatewayConfig, to_yaml
from workers.deployment.role import Deployment
from workers.deployment.settings import DeployConfig
from workers.models.verifying import observations_of
from workers.runtime.observation_sample import FILE, ObservationSample
from workers.runtime.trained import load

NIM = "examples/nim/vectorised.py:Nim"
NETWORK: dict[str, Any] = {"name": "mlp", "hidden_sizes": [16], "policy_gain": 1.0}
LSTM = {**NETWORK, "core": {"name": "lstm", "size": 8}}

pytestmark = pytest.mark.usefixtures("one_thread")


def league_folder(folder: Path, network: dict[str, Any]) -> Policy:
    """Make a league's run folder without recordings: main, and main@3 with other weights, whose policy is returned."""
    config = Config(league={"env": NIM, "network": network, "players": {"main": {"kind": "self_play"}}})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    games = envs.make_two_player(NIM, 1, 0)
    spaces = games.single_observation_space, games.single_action_space
    main, old = (build_policy(network, *spaces, seed) for seed in (1, 2))
    checkpoints.save(folder / "players/main/checkpoints", "00000007", main, build_algorithm("ppo", {}, main, 0), {})
    (folder / "league" / MODELS).mkdir(parents=True)
    (folder / "league" / MODELS / "main@3.safetensors").write_bytes(checkpoints.weights_to_bytes(old, {}))
    return old


@with_onnx
@pytest.mark.parametrize(("network", "int8"), [(NETWORK, False), (LSTM, True)], ids=["mlp-onnx", "lstm-int8"])
def test_a_frozen_player_is_exported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    network: dict[str, Any],
    int8: bool,
) -> None:
    import onnxruntime

    old, file = league_folder(tmp_path / "run", network), tmp_path / "model.onnx"
    given = ["export", f"run={tmp_path / 'run'}", "player=main@3", f"int8={int8}", "agreement=0.95", "--to", str(file)]
    monkeypatch.setattr("sys.argv", given)
    assert export.main() == 0, capsys.readouterr()
    assert "recorded observations" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["warren"])
    assert (told["player"], told["version"]) == ("main@3", 3)
    assert all("one at a time, with masks" in each["agreement"] for each in told["verified"])
    seen = observations_of(load(tmp_path / "run", "main@3")).observation[:, 0]
    memory = {f"memory/{name}": part.numpy() for name, part in old.initial_memory(len(seen)).items()}
    action = session.run(["action"], {"observation": seen, **memory})[0]
    assert (action == old.act(seen, mode="greedy")[0]).mean() >= 0.95


@with_onnx
@pytest.mark.parametrize("backend", ["onnx", "int8"])
def test_a_frozen_player_is_served(tmp_path: Path, backend: str) -> None:
    old = league_folder(tmp_path, NETWORK)
    config = DeployConfig(
        run=str(tmp_path),
        player="main@3",
        backend=backend,
        mode="greedy",
        agreement=0.95,
        gateway=GatewayConfig(port=0, tcp_port=0),
    )
    deployment = Deployment(config)
    deployment.start()
    try:
        assert deployment.verdict is not None and "one at a time, with masks" in deployment.verdict.ways
        connection = http.client.HTTPConnection("127.0.0.1", deployment.server.port, timeout=30)
        observation = observations_of(load(tmp_path, "main@3")).observation[0, 0]
        for legal in range(3):
            mask = np.arange(3) == legal
            body = json.dumps({"observation": observation.tolist(), "reward": 0.0, "action_mask": mask.tolist()})
            connection.request("POST", "/", body, {"session": "a", "step_kind": "auto"})
            assert json.loads(connection.getresponse().read()) == {"action": legal}
        body = json.dumps({"observation": observation.tolist(), "reward": 0.0})
        connection.request("POST", "/", body, {"session": "a", "step_kind": "tick"})
        expected = int(old.act(observation[None], mode="greedy")[0][0])
        assert json.loads(connection.getresponse().read()) == {"action": expected}
    finally:
        deployment.close()


def test_a_frozen_player_is_verified_on_observations_of_learners(tmp_path: Path) -> None:
    """The file of its own learner comes first, then that of another player."""
    old = league_folder(tmp_path, NETWORK)
    games = observations_of(load(tmp_path, "main@3"))
    assert games.begins.shape[1] == 2, "nothing is recorded: it plays against itself, a slot for each seat"
    assert games.action_mask is not None and games.action_mask.shape == (*games.begins.shape, 3)
    assert games.action_mask.any(-1).all() and games.begins[0].all() and not games.begins.all()
    for steps, player in ((5, "rival"), (3, "main")):
        cut = ObservationSample(games.observation[:steps], games.begins[:steps], {}, games.action_mask[:steps])
        (tmp_path / "players" / player / "checkpoints").mkdir(parents=True, exist_ok=True)
        cut.write(tmp_path / "players" / player / FILE, old)
        found = observations_of(load(tmp_path, "main@3"))
        assert len(found.begins) == steps and found.action_mask is not None
        assert (found.action_mask == games.action_mask[:steps]).all()
