"""Networks: from an observation to the policy's outputs and the value. `NETWORKS` holds them by name."""

from agents.networks import (  # noqa: F401  (importing registers them)
    board_resnet,
    impala_resnet,
    mlp,
    nature_cnn,
    recurrent,
    transformer,
)
from agents.networks.asymmetric import PrivilegedConfig, acting_space, build_asymmetric
from agents.networks.core import CORES
from agents.networks.network import Heads, Memory, Network, Outputs
from agents.networks.normalized import NormalizationConfig, Normalized
from agents.networks.registry import NETWORKS, build_network

__all__ = [
    "CORES",
    "NETWORKS",
    "Heads",
    "Memory",
    "Network",
    "NormalizationConfig",
    "Normalized",
    "Outputs",
    "PrivilegedConfig",
    "acting_space",
    "build_asymmetric",
    "build_network",
]
