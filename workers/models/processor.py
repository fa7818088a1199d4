"""The processor of this machine: 8-bit models run by different instructions on different processors."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch

# Instruction sets that multiply 8-bit numbers, by torch's names: of x86, then of ARM.
KERNELS = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512_f", "avx2", "sve", "i8mm", "dot", "neon")


def processor() -> str:
    """Return the name and the instruction sets that matter here, as in "AMD EPYC (avx512_vnni, avx2)"."""
    find = getattr(torch.cpu, "get_capabilities", None)  # torch 2.7 to 2.9 have none
    found: Mapping[str, Any] = find() if find is not None else {}
    name = found.get("cpu_name") or platform.processor() or platform.machine()
    kernels = [kernel for kernel in KERNELS if found.get(kernel)]
    return f"{name} ({', '.join(kernels) or torch.backends.cpu.get_cpu_capability().lower()})"
