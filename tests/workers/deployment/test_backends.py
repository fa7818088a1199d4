"""Backends compute the same as PyTorch or are refused; a network that cannot be exported is one clear error."""

from __future__ import annotations

import functools
import importlib.util
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from support.deployed import SHAPES, recorded_of, run_folder
from support.experience import random_trajectory

from agents import Policy, build_policy
from agents.networks import NETWORKS, Heads, Network, Outputs
from warren.errors import CheckpointError, ConfigurationError
from warren.trees import take
from workers import export
from workers.config.name_value import parse
from workers.deployment.json_actor import json_actor
from workers.models import exporting, model_file
from workers.models.backends import OnnxBackend, PytorchBackend, build_backend
from workers.models.export_settings import ExportConfig
from workers.models.processor import processor
from workers.models.verifying import agreeing, observations_of, verify
from workers.runtime.observation_sample import FILE, ObservationSample
from workers.runtime.trained import load

pytestmark = pytest.mark.usefixtures("one_thread")
with_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in exporting.PACKAGES), reason="the extra onnx is not installed"
)
PARTS = Dict({"kind": Discrete(5, start=2), "at": Box(-1, 1, (2,), np.float32), "has": MultiBinary(3)})


def policy_of(network: dict[str, Any], observations: Any = SHAPES[0], actions: Any = SHAPES[1]) -> Policy:
    return build_policy({"policy_gain": 1.0, **network}, observations, actions, 0)


CASES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "mlp": ({"hidden_sizes": [64, 64]}, *SHAPES),
    "nested": ({}, PARTS, Dict({"move": MultiDiscrete([2, 3]), "turn": Box(-1, 1, (1,), np.float32)})),
    "lstm": ({"core": {"name": "lstm", "size": 16}}, *SHAPES),
    "privileged": ({"privileged": ["has"], "core": {"name": "gru", "size": 8}}, PARTS, SHAPES[1]),
    "transformer": ({"shared": True, "core": {"name": "transformer", "size": 16, "memory": 8}}, *SHAPES),
}


@functools.cache
def exported(case: str) -> tuple[Policy, bytes]:
    """Return a policy and its ONNX model; cached, since the export takes seconds."""
    policy = policy_of(*CASES[case])
    return policy, exporting.to_onnx(policy)


@with_onnx
@pytest.mark.parametrize("case", CASES)
def test_onnx_acts_as_pytorch_does(case: str) -> None:
    policy, model = exported(case)
    verdict = verify(OnnxBackend(policy, model=model), recorded_of(policy))
    assert verdict.agreement >= 0.995 and verdict.difference < 1e-4, verdict
    ours, theirs = OnnxBackend(policy, model=model), PytorchBackend(policy)
    observation = take(recorded_of(policy).observation, 0)
    for mode in ("sample", "greedy"):
        actions = [
            policy.env_action(one.act(observation, one.initial_memory(4), mode, torch.Generator().manual_seed(3))[0])
            for one in (ours, theirs)
        ]
        assert agreeing(*actions).all()
    if case == "mlp":
        legal = np.array([[True, False], [False, True]] * 2)
        for mode in ("sample", "greedy"):
            action, _ = ours.act(observation, {}, mode, torch.Generator(), legal)
            assert action.tolist() == [0, 1, 0, 1]


@with_onnx
def test_a_model_has_no_privileged_inputs() -> None:
    inputs, _ = exporting.names(exported("privileged")[0])
    assert [name for name in inputs if name.startswith("observation")] == ["observation/at", "observation/kind"]


def test_a_deployed_policy_needs_no_privileged_inputs(tmp_path: Path) -> None:
    policy = policy_of(*CASES["privileged"])
    unrestricted = policy_of({}, PARTS)
    kept = ObservationSample(
        recorded_of(unrestricted).observation, recorded_of(policy).begins, recorded_of(policy).memory
    )
    kept.write(tmp_path / FILE, policy)
    recorded = ObservationSample.read(tmp_path / FILE, policy)
    assert set(recorded.observation) == {"kind", "at"} == set(json_actor(policy).observation_space.spaces)
    backend = PytorchBackend(policy)
    action, _ = backend.act(take(recorded.observation, 0), backend.initial_memory(4), "greedy", policy.generator)
    assert action.shape == (4,)


@with_onnx
@pytest.mark.parametrize("mode", ["sample", "greedy"])
def test_int8_acts_nearly_as_pytorch_does(mode: str) -> None:
    policy, model = exported("mlp")
    backend, recorded = OnnxBackend(policy, model=exporting.to_int8(model)), recorded_of(policy, 200, 8)
    verdict = verify(backend, recorded, mode)
    assert verdict.agreement > 0.95 and 1e-4 < verdict.difference < 0.5, verdict
    action, _ = backend.act(recorded.observation[0], {}, "greedy", torch.Generator())
    assert action.shape == (8,) and action.dtype == np.int64


class Forgetful(PytorchBackend):
    """Halves the memory after each step."""

    def outputs(self, observation: Any, memory: Any) -> Any:
        output, memory = super().outputs(observation, memory)
        return output, {name: part / 2 for name, part in memory.items()}


def test_memory_is_zeros_where_an_episode_begins() -> None:
    policy = policy_of(*CASES["lstm"])
    recorded = recorded_of(policy)
    memory = PytorchBackend(policy).initial_memory(2)
    assert all(part.shape == (2, 16) and not part.any() for part in memory.values())
    always = replace(recorded, begins=np.ones_like(recorded.begins))
    assert verify(Forgetful(policy), always).difference == 0  # no step has a memory of an earlier one
    assert verify(Forgetful(policy), recorded).difference > 1e-3


class Other(PytorchBackend):
    """Negates the outputs for every tenth observation of a batch."""

    name = "other"

    def outputs(self, observation: Any, memory: Any) -> Any:
        output, memory = super().outputs(observation, memory)
        return torch.where((torch.arange(len(output)) % 10 == 0)[:, None], -output, output), memory


def test_a_backend_that_acts_otherwise_is_refused() -> None:
    policy = policy_of({})
    verdict = verify(Other(policy), recorded_of(policy, 20, 10), "greedy")
    assert verdict.ways["together"] == pytest.approx(0.9, abs=0.01) and verdict.ways["one at a time"] == 0
    wanted = r"backend=other: refused.*same action 0.00 % where asked one at a time .*; at least 99.5 %"
    with pytest.raises(ConfigurationError, match=wanted):
        verdict.check()
    verdict.check(0.0)
    same = verify(PytorchBackend(policy), recorded_of(policy))
    assert (same.agreement, same.difference) == (1.0, 0.0)


class Constant(PytorchBackend):
    """Has the network's outputs but always takes action 0."""

    name = "constant"

    def act(self, observation: Any, memory: Any, *args: Any) -> Any:
        action, memory = super().act(observation, memory, *args)
        return np.zeros_like(action), memory


class Unmasked(PytorchBackend):
    """Acts as if every action were legal."""

    name = "unmasked"

    def act(self, observation: Any, memory: Any, mode: str, generator: Any, action_mask: Any = None) -> Any:
        return super().act(observation, memory, mode, generator)


class OneByOne(PytorchBackend):
    """Acts wrongly on a single observation."""

    name = "one by one"

    def act(self, observation: Any, memory: Any, *args: Any) -> Any:
        action, memory = super().act(observation, memory, *args)
        return (1 - action if len(action) == 1 else action), memory


@pytest.mark.parametrize(
    ("kind", "right"), [(Constant, set()), (Unmasked, {"together", "one at a time"}), (OneByOne, {"together"})]
)
def test_verification_asks_a_backend_to_act_as_games_do(kind: type[PytorchBackend], right: set[str]) -> None:
    policy = policy_of({})
    recorded = recorded_of(policy, 20, 10)
    for mode in ("sample", "greedy"):
        verdict = verify(kind(policy), recorded, mode)
        assert {way for way, share in verdict.ways.items() if share == 1} >= right and verdict.difference == 0
        with pytest.raises(ConfigurationError, match="refused"):
            verdict.check()
    masks = np.zeros((20, 10, 2), np.bool_)
    masks[..., 0] = True
    told = verify(Unmasked(policy), replace(recorded, action_mask=masks), "greedy")
    assert told.way == "together, with masks" or told.way == "one at a time, with masks"


@with_onnx
@pytest.mark.parametrize("case", ["mlp", "lstm"])
def test_int8_weights_suit_processors_that_saturate_sums(case: str) -> None:
    """Such processors saturate the sum of two products of an unsigned and a signed byte at 16 bits."""
    import onnx
    from onnxruntime import quantization

    def can_be_cut(model: onnx.ModelProto) -> set[str]:
        held = [onnx.numpy_helper.to_array(tensor).astype(np.int64) for tensor in model.graph.initializer]
        signed = [tensor.data_type == onnx.TensorProto.INT8 for tensor in model.graph.initializer]
        names = [tensor.name for tensor in model.graph.initializer]
        return {
            name
            for name, is_signed, weights in zip(names, signed, held, strict=True)
            if is_signed and 2 * 255 * np.abs(weights).max(initial=0) > np.iinfo(np.int16).max
        }

    _, model = exported(case)
    int8 = onnx.load_from_string(exporting.to_int8(model))
    bytes_each = [tensor for tensor in int8.graph.initializer if tensor.data_type in (2, 3) and len(tensor.dims) > 1]
    assert len(bytes_each) >= 3 and not can_be_cut(int8)
    with exporting._silence(), tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        quantization.quantize_dynamic(onnx.load_from_string(model), plain, weight_type=quantization.QuantType.QInt8)
        assert can_be_cut(onnx.load(plain))


class Branching(Network):
    """Network that ONNX cannot express: it branches on its input."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.layer, self.heads = torch.nn.Linear(4, heads.policy + 1), heads

    def step(self, observation: Any, memory: Any) -> Any:
        if observation.sum().item() > 0:
            observation = observation * 2
        said = self.layer(observation)
        return Outputs(said[:, :-1], said[:, -1]), memory


@with_onnx
def test_a_network_that_cannot_be_exported_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS._entries, "branching", lambda config, space, heads, generator: Branching(heads))
    policy = build_policy({"name": "branching"}, *SHAPES, 0)
    with pytest.raises(ConfigurationError) as raised:
        exporting.to_onnx(policy)
    (line,) = raised.value.problems
    assert line.startswith("network Branching cannot be exported to ONNX: ") and "\n" not in line
    assert "backend=pytorch" in line


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PACKAGES", ("onnx_that_is_not_there",))
    with pytest.raises(ConfigurationError, match=r"onnx_that_is_not_there: not installed.*pip install -e '\.\[onnx\]'"):
        build_backend("onnx", policy_of({}))


@with_onnx
def test_the_command_writes_a_model_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnx
    import onnxruntime

    run_folder(tmp_path / "run", {"hidden_sizes": [8]}, version=7)
    file = tmp_path / "model.onnx"
    monkeypatch.setattr("sys.argv", ["export", f"run={tmp_path / 'run'}", "version=7", "--to", str(file)])
    assert export.main() == 0
    said = capsys.readouterr().out
    assert "same action 100.00 %" in said and "observation -> output, action" in said
    (about,) = onnx.load(file).metadata_props
    assert about.key == "warren"
    told = json.loads(about.value)
    assert told["version"] == 7 and [each["mode"] for each in told["verified"]] == ["sample", "greedy"]
    assert all(each["processor"] == processor() and processor() in said for each in told["verified"])
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    output, action = session.run(None, {"observation": np.zeros((5, 4), np.float32)})
    assert output.shape == (5, 2) and (action == output.argmax(-1)).all()


@pytest.mark.parametrize(("to", "why"), [("none/x.onnx", "there is no folder .*none; make it"), ("", "is a folder")])
def test_a_file_that_cannot_be_written_is_refused_before_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, why: str
) -> None:
    monkeypatch.setattr(model_file, "load", lambda *_: pytest.fail("the policy was loaded"))
    with pytest.raises(ConfigurationError, match=f"--to {tmp_path / to}: {why}"):
        list(model_file.write(ExportConfig(str(tmp_path)), tmp_path / to))
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ConfigurationError, match=f"--to .*: nothing can be written in {tmp_path}; name a file"):
        list(model_file.write(ExportConfig(str(tmp_path)), tmp_path / "x.onnx"))


@pytest.mark.parametrize("share", ["nan", "1.5", "-0.1"])
def test_an_agreement_of_an_export_that_cannot_be_reached_is_refused(share: str) -> None:
    with pytest.raises(ConfigurationError, match=f"agreement={share} must be between 0 and 1"):
        parse(ExportConfig, ["run=runs/cartpole", f"agreement={share}"])


def test_recorded_observations_come_back_as_they_were(tmp_path: Path) -> None:
    policy = policy_of({"shared": True, "core": {"name": "lstm", "size": 4}}, PARTS)
    recorded = recorded_of(policy, 5, 2)
    recorded.write(tmp_path / FILE, policy)
    found = ObservationSample.read(tmp_path / FILE, policy)
    assert found.observations == 10 and (found.begins == recorded.begins).all()
    assert all((found.observation[name] == recorded.observation[name]).all() for name in PARTS.spaces)
    assert set(found.memory) == {"h", "c"}
    with pytest.raises(CheckpointError, match="holds no recorded observations of this policy"):
        ObservationSample.read(tmp_path / FILE, policy_of({}))
    with pytest.raises(CheckpointError, match="observation"):
        ObservationSample.read(
            tmp_path / FILE, policy_of({"shared": True}, Dict({**PARTS.spaces, "at": Box(-1, 1, (3,))}))
        )


def test_masks_of_a_trajectory_are_recorded_too(tmp_path: Path) -> None:
    policy = policy_of({})
    masks = np.random.default_rng(0).random((16, 4, 2)) < 0.5
    trajectory = replace(random_trajectory(policy), action_mask=masks)
    slot = trajectory.observation[:, 0].nbytes
    ObservationSample.of(trajectory, most=2 * slot).write(tmp_path / FILE, policy)
    found = ObservationSample.read(tmp_path / FILE, policy)
    assert found.action_mask is not None and (found.action_mask == masks[:, :2]).all()
    assert ObservationSample.of(random_trajectory(policy)).action_mask is None


def test_without_recorded_observations_the_environment_is_played(tmp_path: Path) -> None:
    run_folder(tmp_path, {"hidden_sizes": [8]}, env="CartPole-v1")
    (tmp_path / FILE).unlink()
    found = observations_of(load(tmp_path))
    assert found.begins[0, 0] and 1 < found.begins.sum() < found.observations == 1000
    run_folder(tmp_path / "game", {"hidden_sizes": [8]})
    (tmp_path / "game" / FILE).unlink()
    with pytest.raises(ConfigurationError, match=r"holds no recorded.safetensors.*recorded=FILE"):
        observations_of(load(tmp_path / "game"))
