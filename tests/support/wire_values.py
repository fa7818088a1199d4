"""Values, calls and hand-made messages for tests of the wire."""

from __future__ import annotations

import math
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def same(sent: Any, received: Any) -> bool:
    """Return whether both have the same types and values: dtypes, shapes, byte and memory order, sign of zero, NaN."""
    if type(sent) is not type(received):
        return False
    if isinstance(sent, dict):
        return len(sent) == len(received) and all(
            same(*keys) and same(*values)
            for keys, values in zip(
                zip(sent, received, strict=True), zip(sent.values(), received.values(), strict=True), strict=True
            )
        )
    if isinstance(sent, (list, tuple)):
        return len(sent) == len(received) and all(map(same, sent, received))
    if isinstance(sent, np.ndarray):
        return same_array(sent, received)
    if isinstance(sent, np.generic):
        return sent.dtype == received.dtype and sent.tobytes() == received.tobytes()
    if isinstance(sent, torch.Tensor):
        return (
            sent.dtype == received.dtype
            and sent.shape == received.shape
            and same_array(bits(sent), bits(received))
            and not received.requires_grad
        )
    if isinstance(sent, float):
        return (math.isnan(sent) and math.isnan(received)) or (
            sent == received and math.copysign(1, sent) == math.copysign(1, received)
        )
    return bool(sent == received)


def same_array(sent: np.ndarray, received: np.ndarray) -> bool:
    order_kept = sent.flags.c_contiguous or not sent.flags.f_contiguous or received.flags.f_contiguous
    return bool(
        sent.dtype == received.dtype
        and sent.dtype.byteorder == received.dtype.byteorder
        and sent.shape == received.shape
        and sent.tobytes() == received.tobytes()
        and order_kept
    )


def bits(tensor: torch.Tensor) -> np.ndarray:
    """Return the tensor's memory in C order, also for dtypes that NumPy lacks."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return (plain.view(torch.int16) if plain.dtype is torch.bfloat16 else plain).numpy()


def peak_memory(call: Callable[[], Any]) -> tuple[int, Any]:
    """Run `call`; return the most bytes that Python and NumPy held over those held before, and its result."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        returned = call()
        return tracemalloc.get_traced_memory()[1] - before, returned
    finally:
        tracemalloc.stop()


def message(skeleton: bytes, frames: bytes = b"") -> bytes:
    """Return the message that has just this MessagePack `skeleton` and these `frames`."""
    return struct.pack("<4sI", b"WRN\x01", len(skeleton)) + skeleton + frames


def extension(code: int, payload: bytes) -> bytes:
    return struct.pack(">BHb", 0xC8, len(payload), code) + payload  # including codes that msgpack refuses to write


def shape(code: int, *dimensions: int) -> bytes:
    return struct.pack(f"<B{len(dimensions)}Q", code, *dimensions)
