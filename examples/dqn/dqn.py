"""The agent: a Q-network, a replay buffer, and Q-learning with a target network (plain, double or dueling).

Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Wang et al. 2016 (dueling).
"""

import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

Experience = namedtuple("Experience", ["state", "reward", "action", "next_state", "mask"])


class DuelingHead(nn.Module):
    """Q = V + A - mean A."""

    def __init__(self, features, actions):
        super().__init__()
        self.value, self.advantage = nn.Linear(features, 1), nn.Linear(features, actions)

    def forward(self, x):
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(-1, keepdim=True)


class DQN_Agent:
    def __init__(self, state_dim, action_dim, lr=5e-4, gamma=0.99, batch_size=64, capacity=50_000, learn_start=500,
                 target_every=200, double=True, dueling=False, hidden=128):  # fmt: skip
        self.action_dim, self.gamma, self.batch_size = action_dim, gamma, batch_size
        self.learn_start, self.target_every, self.double = learn_start, target_every, double
        self.updates = 0
        self.model, self.target = (
            nn.Sequential(
                nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                DuelingHead(hidden, action_dim) if dueling else nn.Linear(hidden, action_dim),
            )
            for _ in range(2)
        )  # fmt: skip
        self.target.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.memory = deque(maxlen=capacity)

    def action(self, state, epsilon=0.0):
        """Return the action for one state, [state_dim] float32; any action with probability epsilon."""
        if random.random() < epsilon:
            return random.randrange(self.action_dim)
        with torch.no_grad():
            return int(self.model(torch.from_numpy(np.array(state, dtype=np.float32))).argmax())

    def store_experience(self, experience):
        self.memory.append(experience)

    def train(self):
        """Take one step on a batch of the memory; return the loss, or None while too little has been stored."""
        if len(self.memory) < self.learn_start:
            return None
        batch = Experience(*zip(*random.sample(self.memory, self.batch_size), strict=True))
        states, next_states = (torch.from_numpy(np.stack(s)) for s in (batch.state, batch.next_state))
        actions = torch.tensor(batch.action).unsqueeze(1)
        rewards, masks = (torch.tensor(x, dtype=torch.float32) for x in (batch.reward, batch.mask))
        with torch.no_grad():
            chosen = (self.model if self.double else self.target)(next_states).argmax(1, keepdim=True)
            target = rewards + self.gamma * masks * self.target(next_states).gather(1, chosen).squeeze(1)
        loss = nn.functional.smooth_l1_loss(self.model(states).gather(1, actions).squeeze(1), target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_every == 0:
            self.target.load_state_dict(self.model.state_dict())
        return loss.item()
