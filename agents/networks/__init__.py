"""Networks: from an observation to the policy's parameters and the value. `NETWORKS` holds them by name."""

from agents.networks import actor_critic  # noqa: F401  (enters itself)
from agents.networks.registry import NETWORKS, Network, build_network

__all__ = ["NETWORKS", "Network", "build_network"]
