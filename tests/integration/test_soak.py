"""Test of a short `python -m benchmarks.soak`: services run in turns and nothing grows, whatever they raise."""

from __future__ import annotations

import pytest

from benchmarks.soak.__main__ import LOOPS, soak
from workers.servers import Servers


@pytest.mark.slow
@pytest.mark.parametrize("broker", ["rabbitmq", "embedded"])
def test_saturated_services_pass_in_turns_and_nothing_grows(request, broker):
    servers: Servers = request.getfixturevalue("servers" if broker == "rabbitmq" else "embedded")
    found = soak(servers.broker_url, servers.redis_url, 4.0)
    counts, samples = found["counts"], found["samples"]
    assert counts["loops"] >= LOOPS and min(counts.values()) > 0
    assert found["overtaken"] == 0
    assert all(found["longest"][name] <= turn for name, turn in found["turn"].items()), found["longest"]
    assert samples[-1]["caller blocks"] <= 1.1 * samples[len(samples) // 2]["caller blocks"]
    last = samples[-1]["worker descriptors"]
    assert last <= samples[len(samples) // 3]["worker descriptors"] + 4
