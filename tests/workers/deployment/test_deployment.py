"""A deployed policy decides as in training, batches its games, and changes its version during them."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.deployed import ACTOR, ROOT, Vector, run_folder, save
from support.game_clients import Tcp
from support.launched import Launched
from test_backends import with_onnx

from envs.rewards import Rewards
from warren.errors import CheckpointError, ConfigurationError
from workers import deploy
from workers.config.name_value import parse
from workers.config.schema import GatewayConfig
from workers.deployment import role
from workers.deployment.player import DeployedPlayer
from workers.deployment.role import Deployment
from workers.deployment.settings import DeployConfig
from workers.gateway.game import Agent
from workers.gateway.limits import Limits
from workers.gateway.passes import Decide, End
from workers.gateway.protocol import Kind, Request
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import opener
from workers.gateway.sessions import Sessions
from workers.models import backends
from workers.models.backends import build_backend
from workers.models.exporting import to_onnx

TICKS, EPISODE = 10_000, 100


Deploy = Callable[..., Deployment]


@pytest.fixture
def deployments(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Start deployments on free ports, and close them."""
    monkeypatch.chdir(ROOT)  # the example's actor is there
    made: list[Deployment] = []

    def make(folder: Path, **settings: Any) -> Deployment:
        config = DeployConfig(run=str(folder), gateway=GatewayConfig(port=0, tcp_port=0), **settings)
        made.append(Deployment(config))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.close()


class Game:
    """HTTP client with a connection of its own."""

    def __init__(self, deployment: Deployment, name: str = "a") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", deployment.server.port, timeout=30)
        self.name = name

    def ask(self, kind: str, message: Any = None) -> Any:
        body = b"" if message is None else json.dumps(message).encode()
        self.connection.request("POST", "/", body, {"session": self.name, "step_kind": kind})
        reply = self.connection.getresponse()
        said = reply.read()
        assert reply.status == 200, said
        return said

    def tick(self, observation: Any) -> int:
        message = {"observation": np.asarray(observation).tolist(), "reward": 1.0, "out_of_time": False}
        return int(json.loads(self.ask("tick", message))["action"])

    def facts(self, path: str = "/") -> dict[str, Any]:
        self.connection.request("GET", path)
        found: dict[str, Any] = json.loads(self.connection.getresponse().read())
        return found


def answers(player: Any, observations: np.ndarray) -> bytes:
    """Return an actor's answers to these observations in successive games."""

    async def play() -> bytes:
        sessions = Sessions(opener(Vector, {}, player, Rewards()), Limits())
        said = []
        for tick, observation in enumerate(observations):
            name = f"game-{tick // EPISODE}"
            if tick % EPISODE == 0:
                await sessions.answer(Request(name, Kind.start, b""))
            said.append(await sessions.answer(Request(name, Kind.tick, observation.tobytes())))
            if (tick + 1) % EPISODE == 0:
                await sessions.answer(Request(name, Kind.end, b""))
        return b"".join(said)

    return asyncio.run(play())


Network = dict[str, Any]
Players = tuple[GatewaySampler, DeployedPlayer]
LSTM: Network = {"hidden_sizes": [16], "core": {"name": "lstm", "size": 16}}


@pytest.fixture
def both(
    tmp_path: Path, one_thread: None, by_torch: None
) -> Iterator[Callable[[Network], tuple[GatewaySampler, DeployedPlayer]]]:
    """Make a training sampler and a deployed player of one policy and seed: both draw the same numbers."""
    made: list[Any] = []

    def make(network: Network) -> Players:
        policy = run_folder(tmp_path, network)
        sampler = GatewaySampler(policy, EPISODE, 1, Rewards(), seed=5, patience=0)
        sampler.load(policy.state_dict(), 1)
        player = DeployedPlayer(Rewards(), "sample", seed=5)
        player.swap(build_backend("pytorch", policy), 1)
        made.extend((sampler, player))
        return sampler, player

    yield make
    for one in made:
        one.close()


def test_ten_thousand_recorded_ticks_are_answered_as_in_training(both: Any) -> None:
    """Play ten games in step by a policy with a memory, in episodes of 100 ticks."""
    random = np.random.default_rng(0)
    actions: list[list[Any]] = [[], []]
    players = both(LSTM)
    agents = [[Agent() for _ in range(10)] for _ in players]
    for tick in range(TICKS // 10):
        observations = random.normal(size=(10, 4)).astype(np.float32)
        for which, player in enumerate(players):
            asked = [Decide(agent, seen, 1.0, None) for agent, seen in zip(agents[which], observations, strict=True)]
            actions[which] += player.decide_all(asked)
            if (tick + 1) % EPISODE == 0:
                player.end_all([End(agent, 1.0, None) for agent in agents[which]])
                player.after_pass()
    trained, served = map(np.array, actions)
    assert served.shape == (TICKS,) and (served == trained).all()
    assert 0.1 < served.mean() < 0.9 and players[1].episodes == TICKS // EPISODE


@pytest.mark.parametrize("network", [{"hidden_sizes": [16]}, LSTM], ids=["mlp", "lstm"])
def test_an_actor_answers_what_it_answered_in_training(both: Any, network: Network) -> None:
    sampler, player = both(network)
    observations = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    trained, served = answers(sampler, observations), answers(player, observations)
    assert len(served) == 300 and served == trained
    assert player.decisions == 300


def test_games_play_over_http_and_tcp_and_end_with_their_return(tmp_path: Path, deployments: Deploy) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, version=3)
    deployment = deployments(tmp_path)
    game = Game(deployment)
    assert game.ask("start") == b"welcome"
    assert {game.tick([0, 1, 2, 3]) for _ in range(5)} <= {0, 1}
    game.ask("stop", {"observation": [0, 0, 0, 0], "reward": 1.0, "out_of_time": False})
    body = json.dumps({"observation": [0, 1, 2, 3], "reward": 0}).encode()
    assert b"action" in Tcp(deployment.server.tcp_port).ask(body, session="b", step_kind="auto")[1]
    facts = game.facts()
    assert facts["version"] == 3 and facts["decisions"] == 6 and facts["sessions"] == 1
    assert facts["episodes"] == 1 and facts["mean_return"] == 5.0


def test_a_policy_without_an_actor_is_asked_in_json(tmp_path: Path, deployments: Deploy) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    game = Game(deployments(tmp_path, mode="greedy"))
    game.ask("start")
    assert len({game.tick([0.5, -1, 2, 1]) for _ in range(5)}) == 1, "greedy actions do not vary"
    game.connection.request("POST", "/", b'{"observation": [1]}', {"session": "a", "step_kind": "tick"})
    reply = game.connection.getresponse()
    assert reply.status == 422 and b"observation" in reply.read()
    game.tick([0, 0, 0, 0])  # the session stays open
    for action in (0, 1):
        legal = [action == other for other in (0, 1)]
        said = game.ask("tick", {"observation": [0.5, -1, 2, 1], "action_mask": legal})
        assert json.loads(said) == {"action": action}
    game.ask("stop")


def test_many_games_share_forward_passes(tmp_path: Path, deployments: Deploy) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]})
    deployment = deployments(tmp_path)

    def play(number: int) -> None:
        game = Game(deployment, f"game-{number}")
        game.ask("start")
        for _ in range(20):
            game.tick([0, 0, 0, number])

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(play, range(32)))
    facts = deployment.facts()
    assert facts["decisions"] == 640 > facts["passes"]


def test_a_newer_checkpoint_is_served_in_the_middle_of_a_game(
    tmp_path: Path, deployments: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    network = {"hidden_sizes": [8], "core": {"name": "lstm", "size": 8}}
    run_folder(tmp_path, network, version=1)
    deployment = deployments(tmp_path, follow=60.0, mode="greedy")
    game = Game(deployment)
    game.ask("start")
    assert not deployment.look()
    before = [game.tick([0, 1, 0, number % 7]) for number in range(20)]
    save(tmp_path, 5, network, seed=9)
    assert deployment.look() and not deployment.look()
    after = [game.tick([0, 1, 0, number % 7]) for number in range(20)]
    assert game.facts()["version"] == 5 and before != after
    with caplog.at_level("WARNING"):
        (tmp_path / "checkpoints" / "00000009.safetensors").write_bytes(b"damaged")
        assert not deployment.look() and not deployment.look() and game.facts()["version"] == 5
    assert caplog.text.count("00000009.safetensors is damaged, and passed over") == 1


def test_following_loads_nothing_where_nothing_is_newer(
    tmp_path: Path, deployments: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, version=1)
    deployment = deployments(tmp_path, follow=60.0)

    def load(*_: Any) -> Any:
        raise AssertionError("everything was loaded")

    with monkeypatch.context() as patched:
        patched.setattr(role, "load", load)
        assert not deployment.look() and deployment.refused == 0
    save(tmp_path, 2, {"hidden_sizes": [8]})
    assert deployment.look()


def test_errors_of_a_newer_version_do_not_end_the_service(
    tmp_path: Path, deployments: Deploy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, version=1)
    deployment = deployments(tmp_path, follow=60.0)
    save(tmp_path, 2, {"hidden_sizes": [8]})

    def fail(*_: Any) -> Any:
        raise RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED")

    with monkeypatch.context() as patched:
        patched.setattr(role, "build_backend", fail)
        assert not deployment.look() and not deployment.look()
    assert deployment.refused == 1 and deployment.player.version == 1
    assert "version 1 goes on, version 2 is not served: RuntimeError: [ONNXRuntimeError]" in caplog.text
    game = Game(deployment)
    game.ask("start")
    assert game.tick([0, 1, 2, 3]) in (0, 1)
    save(tmp_path, 3, {"hidden_sizes": [8]})
    assert deployment.look() and deployment.player.version == 3


@pytest.mark.parametrize("wrong", ["port=70000", "idle=0", "max_sessions=0", "receive=-1", "tcp_port=-1"])
def test_settings_of_the_gateway_are_checked_as_in_training(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"gateway.{wrong.partition('=')[0]}: "):
        parse(DeployConfig, ["run=x", f"gateway.{wrong}"])


@with_onnx
def test_only_versions_that_pass_verification_are_served(
    tmp_path: Path, deployments: Deploy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = {"hidden_sizes": [8]}
    policy = run_folder(tmp_path, network)
    model = to_onnx(policy)
    monkeypatch.setattr(backends, "to_onnx", lambda policy: model)  # every version gets the model of the first
    caplog.set_level("INFO")
    deployment = deployments(tmp_path, backend="onnx", follow=60.0)
    assert "onnx against pytorch on 256 recorded observations: largest difference of an output" in caplog.text
    game = Game(deployment)
    game.ask("start")
    assert {game.tick([0, 1, 2, 3]) for _ in range(5)} <= {0, 1}
    assert game.facts()["backend"] == "onnx" and game.facts()["agreement"] == 1.0
    save(tmp_path, 2, network, seed=1)
    assert not deployment.look() and not deployment.look()
    assert game.facts()["version"] == 1 and deployment.refused == 1
    assert "version 1 goes on, version 2 is not served: backend=onnx: refused" in caplog.text
    with pytest.raises(ConfigurationError, match="backend=onnx: refused"):
        Deployment(deployment.config)
    quantized = deployments(tmp_path, backend="int8", version=1, agreement=0.9)
    assert quantized.player.ready and quantized.facts()["agreement"] > 0.9


def test_a_chosen_version_must_exist(tmp_path: Path, deployments: Deploy) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, version=1)
    save(tmp_path, 4, {"hidden_sizes": [8]})
    assert deployments(tmp_path).player.version == 4
    assert deployments(tmp_path, version=1).player.version == 1
    with pytest.raises(CheckpointError, match="no checkpoint of version 2; it holds 1, 4"):
        deployments(tmp_path, version=2)


def test_a_port_in_use_is_found_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]})
    monkeypatch.setattr(role, "load", lambda *_: pytest.fail("a model was loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for setting in ("port", "tcp_port"):
            gateway = GatewayConfig(**{"port": 0, "tcp_port": 0, setting: port})
            with pytest.raises(
                ConfigurationError, match=rf"gateway\.{setting}: 127\.0\.0\.1 port {port} cannot be used"
            ):
                Deployment(DeployConfig(run=str(tmp_path), gateway=gateway))


def test_wrong_settings_are_reported_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(DeployConfig, ["bakend=onnx", "port", "gateway.prt=1"])
    said = "\n".join(raised.value.problems)
    assert "bakend" in said and "backend" in said and "port: is not a setting" in said and "gateway.port" in said
    with pytest.raises(ConfigurationError, match="run: not given"):
        parse(DeployConfig, ["follow=1"])
    with pytest.raises(ConfigurationError, match="version"):
        parse(DeployConfig, ["run=x", "version=new"])
    for wrong in ("0", "nan", "inf"):
        with pytest.raises(ConfigurationError, match=rf"follow={wrong}.* must be above 0 s and finite, or null"):
            parse(DeployConfig, ["run=x", f"follow={wrong}"])
    with pytest.raises(ConfigurationError, match=r"follow: a version is chosen"):
        parse(DeployConfig, ["run=x", "version=1", "follow=1"])
    found = parse(DeployConfig, ["run=x", "gateway.port=0", "kwargs.level=3", "follow=2"])
    assert (found.gateway.port, found.kwargs, found.follow) == (0, {"level": 3}, 2.0)
    with pytest.raises(ConfigurationError, match="backend 'onx'"):
        parse(DeployConfig, ["run=x", "backend=onx"])


def test_the_command_prints_where_it_serves_and_stops_when_told(tmp_path: Path) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    with Launched(tmp_path / "log", deploy.__name__, f"run={tmp_path}", "gateway.port=0") as command:
        said = json.loads(command.until(lambda: re.search(r"^{.*}$", command.output, re.MULTILINE))[0])
        connection = http.client.HTTPConnection("127.0.0.1", said["port"], timeout=30)
        connection.request("GET", "/")
        assert json.loads(connection.getresponse().read())["version"] == 1 == said["version"]
        command.process.send_signal(signal.SIGTERM)
        assert command.wait() == 0


def test_an_actor_of_other_spaces_is_refused(tmp_path: Path, deployments: Deploy) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    with pytest.raises(ConfigurationError, match=r"observation_space is .*, and the policy was trained on"):
        deployments(tmp_path, actor=ACTOR)
