"""Sums over the steps of unrolls, computed by the C library."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from agents.native.library import library
from agents.native.perceptron import at


def sum_from_the_end(term: Tensor, decay: Tensor) -> Tensor | None:
    """Return x [T, ...], x_t = term_t + decay_t x_{t+1}, x_T = 0; None where torch has to compute it.

    `decay` broadcasts to `term`. Torch computes numbers that are not float32 on the CPU, or have gradients.
    """
    needed = torch.is_grad_enabled() and (term.requires_grad or decay.requires_grad)
    here = all(one.dtype is torch.float32 and one.is_cpu for one in (term, decay))
    if needed or not here or torch.compiler.is_compiling() or (loaded := library()) is None:
        return None
    term, decay = term.contiguous(), decay.expand(term.shape).contiguous()
    sums = torch.empty_like(term)
    numbers = term[0].numel() if len(term) else 0
    loaded.sum_from_the_end(at(term), at(decay), ctypes.c_int64(len(term)), ctypes.c_int64(numbers), at(sums))
    return sums
