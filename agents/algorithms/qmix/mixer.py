"""Mixers: the value of a whole game from its agents' values; it never falls where one of these rises."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.operators.blocks import uniform, unset


class Mixer(nn.Module):
    """The mixing network of Rashid et al. 2018, section 4.1: hypernetworks over the state give its weights.

    Weights are absolute values of linear functions of the state; the first bias is linear, the last has two layers.
    """

    def __init__(self, agents: int, state: int, size: int, generator: torch.Generator) -> None:
        """`agents`: their number; `state`: the length of its vector; `size`: units of the hidden layer."""
        super().__init__()

        def layer(inputs: int, outputs: int) -> nn.Linear:
            made = unset(nn.Linear, inputs, outputs)
            return uniform(made, generator)

        self.agents, self.size = agents, size
        self.first_weights, self.first_bias = layer(state, agents * size), layer(state, size)
        self.last_weights = layer(state, size)
        self.last_bias = nn.Sequential(layer(state, size), nn.ReLU(), layer(size, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Return the value [...] of agents' `values` [..., P] in `state` [..., S]."""
        weights = self.first_weights(state).abs().unflatten(-1, (self.agents, self.size))
        hidden = functional.elu((values.unsqueeze(-2) @ weights).squeeze(-2) + self.first_bias(state))
        mixed: Tensor = (hidden * self.last_weights(state).abs()).sum(-1) + self.last_bias(state).squeeze(-1)
        return mixed


class Sum(nn.Module):
    """The sum of the agents' values: VDN, Sunehag et al. 2018."""

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Return the value [...] of agents' `values` [..., P]."""
        return values.sum(-1)
