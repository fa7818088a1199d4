"""Every private part of torch.distributed that is touched, and nothing else; tests/workers/learning/test_allreduce.py
fails when an upgrade of torch changes one. They hold for torch 2.13.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as distributed

FOREVER = timedelta(days=30)
dist: Any = distributed  # its classes are there, and in no stub


def gloo_group(store: Any, rank: int, size: int, here: str, within: timedelta) -> Any:
    """A process group of gloo's that is not torch's default one, of which a process has one alone.

    It listens at the address `here`, and is connected `within`, or raises RuntimeError or DistError; its collectives
    then wait for ever.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=here)]
    options._timeout = within
    options._threads = 1
    group = dist.ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(FOREVER)
    return group
