"""Your own network: a perceptron with residual layers. network.name=examples/networks/residual.py:build"""

import torch
from torch import nn

from agents.networks import Network


class Residual(Network):
    def __init__(self, inputs, heads, width, depth):
        super().__init__()
        self.heads = heads
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.policy, self.worth = nn.Linear(width, heads.policy), nn.Linear(width, heads.values)

    def step(self, observation, memory):
        x = self.first(observation.flatten(1))
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return self.heads.outputs(self.policy(x), self.worth(x)), memory


def build(settings, observation_space, heads, generator):
    torch.manual_seed(generator.initial_seed())  # layers draw their first weights from the global generator
    inputs = int(torch.tensor(observation_space.shape).prod())
    return Residual(inputs, heads, settings.get("width", 64), settings.get("depth", 2))
