"""Images of bytes as convolutions take them, computed by the C library."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from agents.native.library import library
from agents.native.perceptron import at, pool_of

A_THREAD = 1 << 18  # bytes that are worth a thread of their own


def scaled_images(images: Tensor, scale: float) -> Tensor | None:
    """Return uint8 images [N, C, H, W] times `scale`, float32 and channels last; None where torch has to compute them.

    Under autocast they are bfloat16, as convolutions would convert them. Equal to torch's bit for bit.
    """
    if images.dtype is not torch.uint8 or not images.is_cpu or images.dim() != 4 or not images.numel():
        return None
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    if torch.compiler.is_compiling() or kind not in (torch.float32, torch.bfloat16) or (loaded := library()) is None:
        return None
    number, channels, height, width = images.shape
    pixels = height * width
    if images.is_contiguous(memory_format=torch.channels_last):
        channels, pixels = 1, channels * pixels  # in this order already
    else:
        images = images.contiguous()
    scaled = torch.empty(images.shape, dtype=kind, memory_format=torch.channels_last)
    scale_part = loaded.scale_images if kind is torch.float32 else loaded.scale_images_to_halves
    size = channels * pixels

    def compute(first: int, after: int) -> None:
        counts = (ctypes.c_int64(count) for count in (after - first, channels, pixels))
        scale_part(at(images, first * size), *counts, ctypes.c_float(scale), at(scaled, first * size))

    parts = max(1, min(torch.get_num_threads(), number, number * size // A_THREAD))
    bounds = [number * part // parts for part in range(parts + 1)]
    others = [pool_of(parts).submit(compute, *bounds[part : part + 2]) for part in range(1, parts)]
    compute(*bounds[:2])
    for other in others:
        other.result()
    return scaled
