"""Models as the pool lists them: a model's entry, with or without its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_64_intdigest

from league.matchmaking.view import ModelRef

REDIS, DISK = "redis", "disk"  # where a model's bytes are


@dataclass(frozen=True)
class ModelInfo:
    """A model without its weights; `created` is Unix time in s, `size` in bytes."""

    player: str
    version: int
    step: int  # environment steps at which it was made
    created: float
    size: int
    checksum: int  # XXH3 of the bytes, 64 bits
    frozen: bool
    parent: ModelRef | None  # the model from which its training began
    place: str  # "redis", or "disk" once it was spilled
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kept_by: str = ""  # of a frozen one: "hand" keeps it for good, "league" while a player needs it; "" where unknown
    frozen_at: float = field(default=0.0, compare=False)  # Unix time of the last `freeze` in s

    @property
    def ref(self) -> ModelRef:
        """Return the reference player@version."""
        return ModelRef(self.player, self.version)


@dataclass(frozen=True)
class Model:
    """A model with its weights: `data` is safetensors bytes, `created` Unix time in s."""

    player: str
    version: int
    step: int  # environment steps at which it was made
    created: float
    data: bytes


def checksum_of(data: bytes) -> int:
    """Return the XXH3 of the bytes, 64 bits, which finds damage at the speed of memory."""
    return xxh3_64_intdigest(data)


def damaged(ref: ModelRef) -> str:
    """Return the error message for bytes that do not match their checksum."""
    return f"pool: the weights of {ref} are damaged; put them again, or restore a snapshot"


def info_from(fields: Mapping[str, str]) -> ModelInfo:
    """Return the model described by the fields of a hash in Redis."""
    return ModelInfo(
        player=fields["player"],
        version=int(fields["version"]),
        step=int(fields["step"]),
        created=float(fields["created"]),
        size=int(fields["size"]),
        checksum=int(fields["checksum"]),
        frozen=fields["frozen"] == "1",
        parent=ModelRef.parse(fields["parent"]) if fields["parent"] else None,
        place=fields["place"],
        attributes={name[2:]: json.loads(value) for name, value in fields.items() if name.startswith("a:")},
        kept_by=fields.get("kept_by", ""),
        frozen_at=float(fields.get("frozen_at", 0.0)),
    )
