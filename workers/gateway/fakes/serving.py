"""A gateway without a run: an Actor class, a policy that learns nothing, and the ports."""

from __future__ import annotations

import argparse
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from agents import build_policy
from envs.rewards import Rewards
from warren import stop_signals
from warren.arguments import table
from warren.environment import secret
from workers.gateway.actor import Actor
from workers.gateway.limits import TOKEN, Limits
from workers.gateway.sampler import GatewaySampler
from workers.gateway.server import Server, opener
from workers.gateway.sessions import Sessions
from workers.runtime.garbage import spare_loaded

LENGTH, SLOTS = 64, 8  # shape of trajectories; they are not learned from


@contextmanager
def served(
    actor: type[Actor],
    address: str,
    port: int,
    tcp_port: int | None = None,
    network: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    limits: Limits = Limits(),  # noqa: B008  (it is frozen)
) -> Iterator[Server]:
    """Serve a gateway within the block. Raises ConfigurationError."""
    torch.set_num_threads(1)
    policy = build_policy(dict(network or {}), actor.observation_space, actor.action_space, 0)
    sampler = GatewaySampler(policy, LENGTH, SLOTS, Rewards(), 0, patience=0.0, legal_actions=actor.action_masks)
    sampler.load(policy.state_dict(), 0)
    sessions = Sessions(opener(actor, kwargs or {}, sampler, Rewards()), limits, secret(TOKEN))
    server = Server(sessions, address, port, tcp_port).start()
    try:
        yield server
    finally:
        server.stop()
        sampler.close()


def serve_until_told_to_stop(actor: type[Actor], options: argparse.Namespace, kwargs: Mapping[str, Any]) -> int:
    """Print the ports of `options` as one line of JSON and serve `actor` there; return exit status 0, 1 on failure."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    network = table("--network", options.network)
    stopping = threading.Event()
    stop_signals.hear(lambda _: stopping.set())
    with served(actor, options.address, options.port, options.tcp_port, network, kwargs) as server:
        spare_loaded()
        print(json.dumps({"port": server.port, "tcp_port": server.tcp_port}), flush=True)
        while not stopping.wait(1.0) and server.failure is None:
            pass
    return 0 if server.failure is None else 1
