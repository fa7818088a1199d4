import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium.spaces import Box, Discrete
from support.experience import random_trajectory

from agents import build_policy, checkpoints
from agents.algorithms.ppo import PPO, PPOConfig
from warren.errors import CheckpointError

OBSERVATIONS = Box(-1, 1, (4,), np.float32)
META = {"weight_version": 7, "steps": 64, "seed": 1, "config": {"gamma": 0.99}}


def make(hidden=(16, 16), action_space=None, seed=1):
    policy = build_policy({"hidden_sizes": list(hidden)}, OBSERVATIONS, action_space or Discrete(3), seed)
    return policy, PPO(policy, PPOConfig(minibatch_size=32), seed)


def trained(seed=1):
    policy, algorithm = make(seed=seed)
    algorithm.update([random_trajectory(policy)])
    return policy, algorithm


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_training_resumes_exactly_from_a_checkpoint(tmp_path: Path):
    policy, algorithm = trained()
    path = checkpoints.save(tmp_path / "run", "first", policy, algorithm, META)
    restored, resumed = make(seed=2)
    checkpoint = checkpoints.load(path)
    checkpoints.restore(restored, resumed, checkpoint)
    assert (checkpoint.name, checkpoint.meta) == ("first", META)
    assert same(policy.state_dict(), restored.state_dict())
    trajectory = random_trajectory(policy, seed=8)
    assert algorithm.update([trajectory]) == resumed.update([trajectory])
    assert same(policy.state_dict(), restored.state_dict())


def test_a_checkpoint_of_an_untrained_learner_can_be_restored(tmp_path: Path):
    policy, algorithm = make()
    checkpoints.save(tmp_path, "start", policy, algorithm, {})
    restored, resumed = trained(seed=3)
    checkpoints.restore(restored, resumed, checkpoints.load(tmp_path))
    trajectory = random_trajectory(policy, seed=8)
    assert algorithm.update([trajectory]) == resumed.update([trajectory])


def test_a_checkpoint_is_plain_safetensors_with_json(tmp_path: Path):
    policy, algorithm = trained()
    path = checkpoints.save(tmp_path, "first", policy, algorithm, META)
    tensors = safetensors.torch.load_file(path)
    assert torch.equal(
        tensors["policy.network.value_trunk.layers.0.weight"], policy.network.value_trunk.layers[0].weight
    )
    with safetensors.safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["warren"])["meta"] == META


def test_latest_is_the_checkpoint_saved_last_whatever_its_name(tmp_path: Path):
    policy, algorithm = make()
    assert checkpoints.latest(tmp_path) is None
    for name in ("b", "c", "a"):
        path = checkpoints.save(tmp_path, name, policy, algorithm, {})
        assert checkpoints.latest(tmp_path) == path
    os.utime(tmp_path / "b.safetensors")  # touched or copied: the time inside the file counts
    assert checkpoints.load(tmp_path).name == "a"


def test_only_the_newest_are_kept(tmp_path: Path):
    policy, algorithm = make()
    (tmp_path / "notes.safetensors").write_bytes(b"somebody else's")
    for version in range(5):
        checkpoints.save(tmp_path, f"v{version}", policy, algorithm, {}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.safetensors", "v3.safetensors", "v4.safetensors"]


def test_a_clock_set_back_does_not_change_which_checkpoint_is_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    policy, algorithm = make()
    for version in range(3):
        checkpoints.save(tmp_path, f"v{version}", policy, algorithm, {}, keep=2)
    monkeypatch.setattr(checkpoints.time, "time_ns", lambda: 1)
    for version in (3, 4):
        path = checkpoints.save(tmp_path, f"v{version}", policy, algorithm, {}, keep=2)
        assert checkpoints.latest(tmp_path) == path
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v3.safetensors", "v4.safetensors"]


def test_saving_under_a_name_again_replaces_it(tmp_path: Path):
    policy, algorithm = make()
    checkpoints.save(tmp_path, "only", policy, algorithm, {"steps": 1})
    checkpoints.save(tmp_path, "only", policy, algorithm, {"steps": 2}, keep=1)
    assert checkpoints.load(tmp_path / "only.safetensors").meta == {"steps": 2}


def test_a_disk_that_fails_midway_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    policy, algorithm = make()
    checkpoints.save(tmp_path, "only", policy, algorithm, {"steps": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(tmp_path, "only", policy, algorithm, {"steps": 2})
    assert checkpoints.load(tmp_path).meta == {"steps": 1}


def test_a_process_killed_while_it_saves_leaves_the_old_checkpoint(tmp_path: Path):
    script = textwrap.dedent(
        """
        import os, sys, signal, numpy as np
        from pathlib import Path
        from gymnasium.spaces import Box, Discrete
        from agents import build_policy, checkpoints
        from agents.algorithms.ppo import PPO, PPOConfig
        policy = build_policy({}, Box(-1, 1, (4,), np.float32), Discrete(3), 1)
        algorithm = PPO(policy, PPOConfig(), 1)
        checkpoints.save(Path(sys.argv[1]), "only", policy, algorithm, {"steps": 1})
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        checkpoints.save(Path(sys.argv[1]), "only", policy, algorithm, {"steps": 2})
        """
    )
    process = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    half, whole = sorted(p.name for p in tmp_path.iterdir())
    assert half.startswith(".only.") and half.endswith(".tmp"), "cleaning a run's folder looks for this pattern"
    assert whole == "only.safetensors"
    assert checkpoints.load(tmp_path).meta == {"steps": 1}
    checkpoints.save(tmp_path, "only", *make(), {"steps": 3})
    assert checkpoints.load(tmp_path).meta == {"steps": 3}


def test_a_missing_checkpoint_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no checkpoint .*v1\.safetensors"):
        checkpoints.load(tmp_path / "v1.safetensors")
    with pytest.raises(CheckpointError, match=r"folder .* holds no checkpoint"):
        checkpoints.load(tmp_path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_truncated_checkpoint_is_damaged_and_never_the_latest(tmp_path: Path, length: int):
    policy, algorithm = trained()
    whole = checkpoints.save(tmp_path, "whole", policy, algorithm, {})
    path = checkpoints.save(tmp_path, "cut", policy, algorithm, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors is damaged"):
        checkpoints.load(path)
    assert checkpoints.latest(tmp_path) == whole


def test_a_flipped_bit_is_found(tmp_path: Path):
    policy, algorithm = trained()
    path = checkpoints.save(tmp_path, "first", policy, algorithm, {})
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"checksum .*; delete it to go on from the one before"):
        checkpoints.load(path)


def test_safetensors_of_another_program_are_refused(tmp_path: Path):
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint of Warren's"):
        checkpoints.load(tmp_path / "x.safetensors")


def test_a_checkpoint_of_another_network_lists_every_difference_and_changes_nothing(tmp_path: Path):
    checkpoints.save(tmp_path, "small", *trained(), {})
    policy, algorithm = make(hidden=(16, 32), action_space=Box(-1, 1, (2,), np.float32))
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        checkpoints.restore(policy, algorithm, checkpoints.load(tmp_path))
    message = str(error.value)
    assert "checkpoint 'small'" in message
    for difference in (
        "network.policy_trunk.layers.1.weight: [16, 16] in the checkpoint 'small', [32, 16] in the policy",
        "network.value_trunk.layers.1.bias: [16] in the checkpoint 'small', [32] in the policy",
        "distribution.log_std: absent in the checkpoint 'small', [2] in the policy",
    ):
        assert difference in message
    assert "layers.0" not in message
    assert same(before, policy.state_dict())


def test_weights_survive_the_wire_with_their_stamp():
    policy, _ = trained()
    stamp = {"player": "main", "version": 12, "step": 12_288}
    tensors, metadata = checkpoints.weights_from_bytes(checkpoints.weights_to_bytes(policy, stamp))
    assert metadata == stamp
    twin, _ = make(seed=5)
    checkpoints.load_weights(twin, tensors)
    assert same(policy.state_dict(), twin.state_dict())


def test_loaded_weights_are_a_copy():
    policy, _ = make()
    tensors = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    checkpoints.load_weights(policy, tensors)
    for tensor in tensors.values():
        tensor.zero_()
    assert policy.state_dict()["network.value_trunk.layers.0.weight"].any()


def test_weights_of_another_network_are_refused_with_the_tensors():
    policy, _ = make()
    other, _ = make(hidden=(16,))
    with pytest.raises(CheckpointError, match=r"layers\.2\.weight: absent in the weights, \[3, 16\] in the policy"):
        checkpoints.load_weights(policy, other.state_dict())


@pytest.mark.parametrize("damage", [b"", b"junk", b"\x80\x04K\x01.", lambda data: data[:-1], lambda data: data[8:]])
def test_bytes_that_are_not_weights_are_refused(damage):
    data = checkpoints.weights_to_bytes(make()[0], {})
    with pytest.raises(CheckpointError, match="damaged or not Warren's"):
        checkpoints.weights_from_bytes(damage(data) if callable(damage) else damage)


def test_safetensors_without_a_stamp_are_refused():
    with pytest.raises(CheckpointError, match="not Warren's"):
        checkpoints.weights_from_bytes(safetensors.torch.save({"x": torch.zeros(1)}))
