"""All private parts of torch.distributed that Warren uses, and nothing else; as of torch 2.13.

tests/workers/learning/test_allreduce.py fails when an upgrade of torch changes one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as distributed

FOREVER = timedelta(days=30)
dist: Any = distributed  # torch's stubs lack its classes


def gloo_group(store: Any, rank: int, size: int, here: str, within: timedelta) -> Any:
    """Return a process group of gloo beside torch's default group, of which a process has only one.

    It listens at the address `here` and connects within the time `within`, else raises RuntimeError or DistError. Its
    collectives then wait as long as it takes.
    """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=here)]
    options._timeout = within
    options._threads = 1
    group = dist.ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(FOREVER)
    return group
