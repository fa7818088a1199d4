"""Invertible rescaling of values, in place of clipping rewards: Pohlen et al. 2018, Kapturowski et al. 2019."""

from __future__ import annotations

from torch import Tensor

EPSILON = 1e-3


def rescaled(x: Tensor) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + EPSILON x."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + EPSILON * x


def unscaled(x: Tensor) -> Tensor:
    """Return the x' with h(x') = x; in float64, as roots of nearly equal numbers are subtracted, and cast back."""
    exact = x.double()
    root = (1 + 4 * EPSILON * (exact.abs() + 1 + EPSILON)).sqrt()
    return (exact.sign() * (((root - 1) / (2 * EPSILON)).square() - 1)).to(x.dtype)
