"""Checkpoints and weights as safetensors: readable by anything, never code. A checkpoint is one file, NAME.safetensors.

Tensors of the network are called `policy.*`, the algorithm's `algorithm.*`, those of averages of the weights
`averages.*`; the header holds the JSON for the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError, safe_open
from torch import Tensor

from agents.algorithms import Algorithm
from agents.policies import Policy
from warren import formats
from warren.errors import CheckpointError
from warren.files import write_whole

SUFFIX = ".safetensors"
_HEADER = "warren"  # the key, in the safetensors header, of the JSON document
_WRITTEN_BY = "written_by"  # the key, in that document, of the release and its format
_POLICY, _ALGORITHM, _AVERAGES = "policy.", "algorithm.", "averages."


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as read: `policy` and `algorithm` tensors by name, the algorithm's scalars, the saver's `meta`."""

    name: str
    policy: dict[str, Tensor]
    algorithm: dict[str, Tensor]
    scalars: dict[str, Any]
    meta: dict[str, Any]
    averages: dict[str, Tensor] = field(default_factory=dict)  # agents.weight_averages


@dataclass(frozen=True)
class Moment:
    """Copies of all that a checkpoint holds, as it was at one moment, while training goes on."""

    tensors: dict[str, Tensor]
    scalars: dict[str, Any]
    meta: dict[str, Any]

    @classmethod
    def of(
        cls,
        policy: Policy,
        algorithm: Algorithm,
        meta: Mapping[str, Any],
        averages: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Moment:
        """Copy the present state."""
        algorithm_tensors, scalars = algorithm.state()
        tensors = {_POLICY + key: tensor for key, tensor in policy.state_dict().items()}
        tensors |= {_ALGORITHM + key: tensor for key, tensor in algorithm_tensors.items()}
        tensors |= {_AVERAGES + key: tensor for key, tensor in averages.items()}
        return cls({key: tensor.detach().clone() for key, tensor in tensors.items()}, dict(scalars), dict(meta))

    @classmethod
    def of_weights(cls, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Moment:
        """Return a moment of a policy's weights alone: policies can act by it, but runs cannot resume from it."""
        return cls({_POLICY + key: tensor for key, tensor in tensors.items()}, {}, dict(meta))


def save(
    folder: Path, name: str, policy: Policy, algorithm: Algorithm, meta: Mapping[str, Any], keep: int | None = None
) -> Path:
    """Write a checkpoint of the present state; see `write`."""
    return write(folder, name, Moment.of(policy, algorithm, meta), keep)


def write(folder: Path, name: str, moment: Moment, keep: int | None = None) -> Path:
    """Write folder/NAME.safetensors atomically and return its path.

    `meta` of the moment is any JSON (weight version, steps, seed, configuration). `keep`: how many of the folder's
    newest checkpoints to keep; None: all. Raises OSError when the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, older = folder / (name + SUFFIX), _times(folder)
    write_whole(path, to_bytes(moment, after=max(older.values(), default=0)))
    _sync_folder(folder)
    if keep is not None:
        for old in [one for one in older if one != path][max(keep, 1) - 1 :]:
            old.unlink(missing_ok=True)
    return path


def to_bytes(moment: Moment, after: int = 0) -> bytes:
    """Return the bytes of a checkpoint's file, whose time is later than `after`, in ns since 1970."""
    tensors = moment.tensors
    saved = max(time.time_ns(), after + 1)  # a clock may be set back, or be another host's
    header = {"saved_at": saved, "crc32": _checksum(tensors), "scalars": moment.scalars, "meta": moment.meta}
    header[_WRITTEN_BY] = formats.stamp(formats.CHECKPOINT)
    data: bytes = safetensors.torch.save(tensors, {_HEADER: json.dumps(header)})
    return data


def from_bytes(data: bytes, name: str) -> Checkpoint:
    """Read the bytes of `to_bytes` as the checkpoint `name`. Raises CheckpointError for other bytes."""
    try:
        tensors, header = safetensors.torch.load(data), _header_of(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{name} of {len(data)} bytes is damaged: {error!r}") from None
    _refuse_newer(name, header)
    return _checkpoint(name, tensors, header)


def load(path: Path) -> Checkpoint:
    """Read this file, or the newest checkpoint in this folder. Raises CheckpointError: missing, damaged, too new."""
    if path.is_dir():
        newest = latest(path)
        if newest is None:
            raise CheckpointError(f"folder {path} holds no checkpoint (*{SUFFIX})")
        path = newest
    header = _read_header(path)
    _refuse_newer(f"checkpoint {path}", header)
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {error}") from None
    if _checksum(tensors) != header["crc32"]:
        reason = "its tensors do not match the checksum in its header"
        raise CheckpointError(f"checkpoint {path} is damaged: {reason}; delete it to go on from the one before")
    return _checkpoint(path.name.removesuffix(SUFFIX), tensors, header)


def _refuse_newer(what: str, header: Mapping[str, Any]) -> None:
    if refusal := formats.refusal(what, header.get(_WRITTEN_BY), formats.CHECKPOINT):
        raise CheckpointError(refusal)


def _checkpoint(name: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        name=name,
        policy=_under(_POLICY, tensors),
        algorithm=_under(_ALGORITHM, tensors),
        scalars=header["scalars"],
        meta=header["meta"],
        averages=_under(_AVERAGES, tensors),
    )


def latest(folder: Path) -> Path | None:
    """Return the newest readable checkpoint in `folder`, by the time written in it, or None."""
    paths = readable(folder)
    return paths[0] if paths else None


def readable(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder` whose header can be read, the newest first by the time written in it."""
    return list(_times(folder))


def unreadable(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder` whose header cannot be read: `latest` passes them over."""
    return sorted({*folder.glob("*" + SUFFIX)}.difference(_times(folder)))


def _times(folder: Path) -> dict[Path, int]:
    """Return the times written in the checkpoints of `folder`, the newest first."""
    saved = {path: saved_at(path) for path in folder.glob("*" + SUFFIX)}
    times = {path: time for path, time in saved.items() if time is not None}
    return dict(sorted(times.items(), key=itemgetter(1), reverse=True))


def saved_at(path: Path) -> int | None:
    """Return the time written in a checkpoint, in ns since 1970; None where its header cannot be read."""
    try:
        return int(_read_header(path)["saved_at"])
    except (CheckpointError, KeyError, TypeError, ValueError):
        return None


def restore(policy: Policy, algorithm: Algorithm, checkpoint: Checkpoint) -> None:
    """Continue from `checkpoint`. Raises CheckpointError, having changed nothing, when it is of another network."""
    load_weights(policy, checkpoint.policy, f"checkpoint {checkpoint.name!r}")
    algorithm.load_state(checkpoint.algorithm, checkpoint.scalars)


def weights_to_bytes(policy: Policy, metadata: Mapping[str, Any]) -> bytes:
    """Return the policy's weights as safetensors bytes; `metadata` (player, version, step) is JSON in the header."""
    return encode_weights(policy.state_dict(), metadata)


def encode_weights(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> bytes:
    """Return a state dict as safetensors bytes, as `weights_to_bytes` does."""
    data: bytes = safetensors.torch.save(dict(tensors), {_HEADER: json.dumps(dict(metadata))})
    return data


def digest(policy: Policy) -> str:
    """Return the SHA-256 of the weights, as hex: the same for the same names, shapes and bits."""
    return hashlib.sha256(encode_weights(policy.state_dict(), {})).hexdigest()


def fingerprint(policy: Policy) -> int:
    """Return 52 bits of a fast hash of the weights: the same for the same names and bits."""
    hashed = xxhash.xxh3_64()
    for name, tensor in policy.state_dict().items():
        hashed.update(name.encode())
        hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hashed.intdigest() >> 12


def weights_from_bytes(data: bytes, source: str = "weights") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return (tensors, metadata) from the bytes of `weights_to_bytes`, read at `source`.

    Raises CheckpointError, which names `source`, for other bytes.
    """
    try:
        return safetensors.torch.load(data), _header_of(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{source}: {len(data)} bytes that are damaged or not Warren's weights ({error!r}); restore a backup of it"
        ) from None


def _header_of(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")  # the format: u64 length, JSON header, tensor bytes
    header: dict[str, Any] = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_HEADER])
    return header


def load_weights(policy: Policy, tensors: Mapping[str, Tensor], source: str = "weights") -> None:
    """Copy `tensors` into the policy. Raises CheckpointError, having changed nothing, which lists what differs."""
    check_weights(policy, tensors, source)
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            tensor.copy_(tensors[name])


def check_weights(policy: Policy, tensors: Mapping[str, Tensor], source: str = "weights") -> None:
    """Raise CheckpointError, which lists what differs, for tensors that are not this policy's by name and shape."""
    own = policy.state_dict()
    differing = [
        f"  {name}: {_shape(tensors.get(name))} in the {source}, {_shape(own.get(name))} in the policy"
        for name in sorted(own.keys() | tensors.keys())
        if _shape(tensors.get(name)) != _shape(own.get(name))
    ]
    if differing:
        raise CheckpointError("\n".join([f"the {source} are of another network; these tensors differ:", *differing]))


def _shape(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else str(list(tensor.shape))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    crc = 0
    for name in sorted(tensors):
        flat = tensors[name].detach().cpu().contiguous().view(-1)
        crc = zlib.crc32(flat.view(torch.uint8).numpy().data, zlib.crc32(name.encode(), crc))
    return crc


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()[_HEADER])
            return header
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {error}") from None
    except (TypeError, KeyError, ValueError):
        raise CheckpointError(f"{path} is a safetensors file, but no checkpoint of Warren's") from None


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


__all__ = [
    "Checkpoint",
    "latest",
    "load",
    "load_weights",
    "restore",
    "save",
    "weights_from_bytes",
    "weights_to_bytes",
]
