"""Leases of other processes: on another machine, or dead on this one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from workers.runtime.lease import Lease


def held_elsewhere(client: Any, prefix: str, work: str, **facts: Any) -> Lease:
    """Return a lease that a process on another machine holds; `facts` update those of the process."""
    lease = Lease(client, prefix, work, seconds=600.0)
    lease._me = json.dumps({"host": "gpu-3", "pid": 77, "space": "another", "token": "x"} | facts)
    assert lease.renew()
    return lease


def taken_elsewhere(client: Any, prefix: str, work: str) -> Lease:
    """Return the lease that a process on another machine takes from its holder in one step."""
    lease = Lease(client, prefix, work, seconds=600.0)
    lease._me = json.dumps({"host": "gpu-3", "pid": 77, "space": "another", "token": "x"})
    assert lease._hold(replaced=client.get(lease._key) or b"") is None
    return lease


def held_by_the_dead(client: Any, prefix: str, work: str) -> Lease:
    """Return the lease of a process that ran on this machine and was killed."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    here = json.loads(Lease(client, prefix, work)._me)
    return held_elsewhere(client, prefix, work, **{**here, "pid": process.pid, "token": "x"})
