"""Reference QMIX: one game at a time in float64, for a network with one hidden layer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from agents import Trajectory
from support.plain_off_policy import Adam

TRUNK, HEAD = "network.actor.trunks.shared.encoder.layers.layers.0", "network.actor.policy_head"


class PlainQMIX:
    """Rashid et al. 2018 with one-step targets and double Q-learning."""

    def __init__(self, values: Mapping[str, Tensor], mixer: Mapping[str, Tensor], agents: int, *, gamma: float,
                 rate: float, norm: float, delta: float, offset: float = 0.0) -> None:  # fmt: skip
        """Copy the networks; `mixer`: the mixer's weights; without any, values are summed."""
        named = {f"{part}.{kind}": values[f"{part}.{kind}"] for part in (TRUNK, HEAD) for kind in ("weight", "bias")}
        self.weights = {
            name: part.detach().double().clone().requires_grad_() for name, part in (named | dict(mixer)).items()
        }
        self.target = {name: part.detach().clone() for name, part in self.weights.items()}
        self.adam = Adam(list(self.weights.values()), rate, 1e-8, norm)
        self.agents, self.gamma, self.delta, self.offset = agents, gamma, delta, offset

    def q(self, weights: Mapping[str, Tensor], own: np.ndarray, agent: int) -> Tensor:
        """Return Q of each action, from the agent's one-hot number and its observation."""
        number = torch.nn.functional.one_hot(torch.tensor(agent), self.agents).double()
        seen = torch.cat([number, torch.tensor(own, dtype=torch.float64)])
        hidden = torch.tanh(weights[f"{TRUNK}.weight"] @ seen + weights[f"{TRUNK}.bias"])
        return weights[f"{HEAD}.weight"] @ hidden + weights[f"{HEAD}.bias"]

    def mixed(self, weights: Mapping[str, Tensor], values: list[Tensor], state: np.ndarray) -> Tensor:
        """Return the game's value, by a layer of ELUs and a linear layer whose weights come from the state."""
        if "first_weights.weight" not in weights:
            return sum(values, torch.zeros((), dtype=torch.float64))
        s = torch.tensor(state, dtype=torch.float64)

        def given(name: str, x: Tensor = s) -> Tensor:
            return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

        first, bias, last = given("first_weights").abs(), given("first_bias"), given("last_weights").abs()
        total = given("last_bias.2", given("last_bias.0").relu())[0]
        for unit in range(len(bias)):
            inner = bias[unit] + sum(v * first[i * len(bias) + unit] for i, v in enumerate(values))
            total = total + last[unit] * (inner if inner > 0 else inner.exp() - 1)
        return total

    def best(self, own: np.ndarray, agent: int, legal: np.ndarray) -> Tensor:
        """Return the target's value of the legal action that the learning weights rate best."""
        scores = self.q(self.weights, own, agent).detach().numpy()
        action = max(np.flatnonzero(legal), key=lambda one: scores[one])
        return self.q(self.target, own, agent)[int(action)]

    def off_returns(self, played: Trajectory) -> list[list[float]]:
        """Return, by game, its value less its return at each step from which the sequence reaches the game's end."""
        seen, found, count = played.observation, [], played.num_slots // self.agents
        assert played.valid is not None
        for game in range(count):
            slots, differences = range(game * self.agents, (game + 1) * self.agents), []
            to_come: float | None = None
            for step in reversed(range(len(played.reward) - 1)):
                here = [slot for slot in slots if played.valid[step, slot]]
                ends = all(played.terminated[step, slot] or played.truncated[step, slot] for slot in here)
                reward = float(np.mean([played.reward[step, slot] for slot in here])) + self.offset
                if ends:
                    to_come = reward
                elif to_come is None:
                    continue
                else:
                    to_come = reward + self.gamma * to_come
                values = [torch.zeros((), dtype=torch.float64) for _ in slots]
                for slot in here:
                    agent = slot - slots[0]
                    own = seen["observation"][step, slot]
                    values[agent] = self.q(self.weights, own, agent)[int(played.action[step, slot])]
                differences.append(self.mixed(self.weights, values, seen["state"][step, here[0]]).item() - to_come)
            found.append(differences)
        return found

    def update(self, played: Trajectory) -> list[float]:
        """Make one step on sequences of two steps; return the absolute errors of the games."""
        seen, agents, zero = played.observation, self.agents, torch.zeros((), dtype=torch.float64)
        assert played.valid is not None and played.cut_at is not None and isinstance(played.action_mask, np.ndarray)
        losses, errors = [], []
        for game in range(played.num_slots // agents):
            slots = range(game * agents, (game + 1) * agents)
            here = [slot for slot in slots if played.valid[0, slot]]
            values = [
                self.q(self.weights, seen["observation"][0, slot], i)[int(played.action[0, slot])]
                if slot in here
                else zero
                for i, slot in enumerate(slots)
            ]
            total = self.mixed(self.weights, values, seen["state"][0, here[0]])
            reward = float(np.mean([played.reward[0, slot] for slot in here])) + self.offset
            target = torch.tensor(reward, dtype=torch.float64)
            cuts = {slot: row for row, (step, slot) in enumerate(played.cut_at.tolist()) if step == 0 and slot in here}
            if not all(played.terminated[0, slot] or played.truncated[0, slot] for slot in here):
                left = [slot for slot in slots if played.valid[1, slot]]
                following = [
                    self.best(seen["observation"][1, slot], i, played.action_mask[1, slot]) if slot in left else zero
                    for i, slot in enumerate(slots)
                ]
                target = target + self.gamma * self.mixed(self.target, following, seen["state"][1, left[0]])
            elif cuts:
                at, masks = played.cut_observation, played.cut_action_mask
                assert isinstance(at, dict) and isinstance(masks, np.ndarray)
                following = [
                    self.best(at["observation"][cuts[slot]], i, masks[cuts[slot]]) if slot in cuts else zero
                    for i, slot in enumerate(slots)
                ]
                target = target + self.gamma * self.mixed(
                    self.target, following, at["state"][next(iter(cuts.values()))]
                )
            error = total - target.detach()
            size = abs(error.item())
            losses.append(0.5 * error**2 if size <= self.delta else self.delta * (error.abs() - 0.5 * self.delta))
            errors.append(size)
        self.adam.step(torch.stack(losses).mean())
        return errors
