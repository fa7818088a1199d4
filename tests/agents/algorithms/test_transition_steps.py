"""Steps on transitions as on a GPU equal those on the CPU: packed, with late checks, and by recorded graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from support.drawn_batches import drawn_batch
from support.recorded_graphs import Recorder, use_recorded_graphs

from agents import build_algorithm, build_policy
from agents.algorithms import captured
from agents.algorithms.late_checks import LateChecks
from agents.algorithms.transitions import transitions
from warren.errors import NotFinite

SEEN, MOVES, CHOICES = Box(-3, 3, (4,), np.float32), Box(-2, 2, (2,), np.float32), Discrete(3)
NETWORKS: dict[str, dict[str, Any]] = {
    "sac": {"box_actions": {"squashed": True, "state_std": True}, "value": False},
    "td3": {"box_actions": {"deterministic": True}, "value": False},
    "ddpg": {"box_actions": {"deterministic": True}, "value": False},
    "dqn": {"discrete_actions": {"greedy": True}},
}
CRITIC = {"critic": {"hidden_sizes": [16]}, "target_rate": 0.1}
CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("sac", MOVES, CRITIC),
    (
        "sac",
        MOVES,
        CRITIC | {"tuned": False, "temperature": 0.3, "max_grad_norm": 0.1, "learning_rates": {"network": 0.5}},
    ),
    ("sac", CHOICES, CRITIC | {"anneal_steps": 100, "temperature_rate": 2.0}),
    ("td3", MOVES, CRITIC | {"optimizer": "adamw", "weight_decay": 0.1}),
    ("ddpg", MOVES, CRITIC),
    ("dqn", CHOICES, {"target_every": 3, "dueling": True, "double": True}),
    ("dqn", CHOICES, {"target_rate": 0.1, "optimizer": "rmsprop"}),
]
WAYS = pytest.mark.parametrize(("name", "space", "settings"), CASES, ids=str)
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def made(name: str, space: Any, settings: dict[str, Any], device: str = "cpu", **network: Any) -> Any:
    policy = build_policy({"hidden_sizes": [16], "policy_gain": 1.0, **NETWORKS[name], **network}, SEEN, space, 1)
    return build_algorithm(name, {"learning_rate": 0.01, "gamma": 0.9, **settings}, policy.to(device), 1)


def as_on_a_gpu(algorithm: Any) -> Any:
    for descent in algorithm.descents.values():
        descent.late = LateChecks(descent.parameters.gradient)
    return algorithm


def everything(algorithm: Any) -> dict[str, torch.Tensor]:
    return {name: one.cpu().clone() for name, one in (algorithm.policy.state_dict() | algorithm.state()[0]).items()}


def assert_alike(one: Any, other: Any, atol: float = 1e-6) -> None:
    expected, found = everything(one), everything(other)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=1e-4, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


def batch_for(algorithm: Any, seed: int) -> Any:
    """Return a batch; every fourth has fewer transitions, as of agents that do not decide at each step."""
    return drawn_batch(algorithm.policy, length=1, slots=8 if seed % 4 == 3 else 12, seed=seed, weighted=True)


@WAYS
@pytest.mark.parametrize("normalizes", [False, True])
def test_packed_and_recorded_steps_equal_those_on_the_cpu(
    name: str, space: Any, settings: dict[str, Any], normalizes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(name, space, settings, normalize_observations=normalizes)
    use_recorded_graphs(monkeypatch)
    other = as_on_a_gpu(made(name, space, settings, normalize_observations=normalizes))
    for update in range(14):
        if update == 10:  # what a graph of steps holds fast is replaced
            for algorithm in (one, other):
                algorithm.adjust({"max_grad_norm": 0.05})
        for algorithm in (one, other):
            algorithm.begin_at(7 * update)
        batch = batch_for(one, update)
        with monkeypatch.context() as on_the_cpu:
            on_the_cpu.setattr("agents.algorithms.transition_steps.PACKED", ())
            expected = one.update(batch)
        found = other.update(batch)
        assert list(found.metrics) == list(expected.metrics)
        for key, metric in expected.metrics.items():
            assert found.metrics[key] == pytest.approx(metric, rel=1e-4, abs=1e-5), key
        np.testing.assert_allclose(found.priorities, expected.priorities, rtol=1e-4, atol=1e-5)
    assert_alike(one, other)
    assert (Recorder.recordings > 0) == (settings.get("optimizer") != "rmsprop")


@WAYS
def test_steps_go_on_from_a_loaded_state(
    name: str, space: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_recorded_graphs(monkeypatch)
    one, other = (as_on_a_gpu(made(name, space, settings)) for _ in range(2))
    for update in range(6):
        one.update(batch_for(one, 4 * update))
        if update < 4:
            other.update(batch_for(one, 4 * update + 100))
    other.policy.load_state_dict(one.policy.state_dict())
    other.load_state(*one.state())
    for update in range(6):
        batch = batch_for(one, 4 * update + 200)
        for algorithm in (one, other):
            algorithm.update(batch)
    assert_alike(one, other, 0.0)


@pytest.mark.parametrize("updates", [1, 6])  # launched one by one, and recorded
@pytest.mark.parametrize(("name", "space", "settings"), CASES[:6], ids=str)
def test_a_step_that_is_not_finite_changes_nothing(
    name: str, space: Any, settings: dict[str, Any], updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(name, space, settings)
    use_recorded_graphs(monkeypatch)
    other = as_on_a_gpu(made(name, space, settings))
    for update in range(updates):
        with monkeypatch.context() as on_the_cpu:
            on_the_cpu.setattr("agents.algorithms.transition_steps.PACKED", ())
            one.update(batch := batch_for(one, 4 * update))
        other.update(batch)
    before, bad, said = everything(other), batch_for(one, 400), []
    bad[0].reward[0, 3] = np.nan
    for algorithm, kinds in ((one, ()), (other, ("cpu",))):
        monkeypatch.setattr("agents.algorithms.transition_steps.PACKED", kinds)
        with pytest.raises(NotFinite) as error:
            algorithm.update(bad)
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "reward is nan at 1 of 12" in said[0]
    after = everything(other)
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items() if key != "generator")


@pytest.mark.parametrize(("name", "space", "settings"), CASES, ids=str)
def test_a_step_reads_nothing_from_the_device(
    name: str, space: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device "meta" holds no numbers: reading one raises."""
    monkeypatch.setattr("agents.algorithms.transition_steps.PACKED", ("meta",))
    monkeypatch.setattr("agents.algorithms.transition_steps._told", lambda outcome, drawn: outcome)
    monkeypatch.setattr("agents.algorithms.adam.adam", lambda *given, **named: None)  # torch has none for "meta"
    algorithm = as_on_a_gpu(made(name, space, settings, "meta"))
    drawn = transitions(algorithm.policy, batch_for(made(name, space, settings), 1), 0.9, torch.device("cpu"))
    noise = {key: torch.zeros(12, 2) for key in ("following", "now", "target")} if space is MOVES else {}
    for moves in (False, True):
        outcome = algorithm.learn(drawn, noise, moves)
        assert outcome.numbers.device.type == "meta"
        assert len(outcome.numbers) == len(outcome.names) + 12 + sum(len(one.flags) for one in outcome.checks)


def test_a_network_of_ones_own_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(torch.nn.Linear):
        """A layer that might wait for the device."""

    use_recorded_graphs(monkeypatch)
    algorithm = as_on_a_gpu(made("sac", MOVES, CRITIC))
    layers = algorithm.policy.network.policy_trunk.layers
    layers[0].__class__ = Own
    for update in range(6):
        algorithm.update(batch_for(algorithm, 4 * update))
    assert Recorder.recordings == 0


def test_observations_in_parts_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"camera": Box(0, 255, (3, 8, 8), np.uint8), "place": Discrete(5), "speed": Box(-1, 1, (2,), np.float32)}
    network, plain = {"hidden_sizes": [16], **NETWORKS["dqn"]}, made("dqn", CHOICES, {})
    one, other = (build_algorithm("dqn", {}, build_policy(network, Dict(parts), CHOICES, 1), 1) for _ in range(2))
    as_on_a_gpu(other)
    for update in range(6):
        drawn = drawn_batch(plain.policy, length=1, seed=update, ending=0.0)[0]
        chance = np.random.default_rng(update)
        seen = {
            "camera": chance.integers(0, 256, (2, 12, 3, 8, 8), np.uint8),
            "place": chance.integers(0, 5, (2, 12)),
            "speed": chance.normal(size=(2, 12, 2)).astype(np.float32),
        }
        drawn.observation, drawn.last = (
            {name: part[:1] for name, part in seen.items()},
            {"observation": {name: part[1] for name, part in seen.items()}},
        )
        one.update([drawn])
        with monkeypatch.context() as as_there:
            use_recorded_graphs(as_there)
            other.update([drawn])
    assert_alike(one, other)


@NO_GPU
@WAYS
def test_steps_on_a_gpu_equal_those_on_the_cpu(name: str, space: Any, settings: dict[str, Any]) -> None:
    here, there = made(name, space, settings), made(name, space, settings, "cuda")
    for update in range(2 * captured.LEAST + 4):
        batch = batch_for(here, 4 * update)
        expected, found = here.update(batch), there.update(batch)
        for key, metric in expected.metrics.items():
            assert found.metrics[key] == pytest.approx(metric, rel=0.02, abs=2e-3), key
    assert_alike(here, there, 2e-3)
