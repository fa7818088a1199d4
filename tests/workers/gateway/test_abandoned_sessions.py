"""Sessions that are opened and never ended leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import json

import numpy as np
import psutil
from support.gateways import LENGTH, SLOTS, Echo

from agents import build_policy
from envs.rewards import Rewards
from workers.gateway.limits import Limits
from workers.gateway.protocol import Kind, Request
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import opener
from workers.gateway.sessions import Sessions


def test_ten_thousand_abandoned_sessions_leave_memory_flat() -> None:
    """Each game ticks twice and then sends nothing more; a made-up clock lets its session expire."""
    now = [0.0]
    policy = build_policy({"hidden_sizes": [8]}, Echo.observation_space, Echo.action_space, 0)
    sampler = GatewaySampler(policy, LENGTH, SLOTS, Rewards(), 0, patience=0)
    sampler.load(policy.state_dict(), 0)
    body = json.dumps({"observation": [0, 1, 2], "reward": 1}).encode()

    async def abandoned(sessions: Sessions, name: str) -> None:
        for kind in (Kind.start, Kind.tick, Kind.tick):
            await sessions.answer(Request(name, kind, body))

    async def several(rounds: int) -> int:
        sessions = Sessions(opener(Echo, {}, sampler, Rewards()), Limits(), clock=lambda: now[0])
        for _ in range(rounds):
            await asyncio.gather(*(abandoned(sessions, f"{now[0]}-{number}") for number in range(250)))
            now[0] += 61
            sessions.reap()
            assert len(sessions) == 0
        return sessions.reaped

    try:
        asyncio.run(several(10))  # allocates what later games reuse
        before = resident()
        assert asyncio.run(several(40)) == 10_000
        assert resident() - before < 5 << 20  # 1 kB kept per session would be 10 MB
        assert np.isfinite(sampler.collect(LENGTH).reward).all()
    finally:
        sampler.close()


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)
