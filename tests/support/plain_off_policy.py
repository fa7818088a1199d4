"""Reference off-policy updates, one transition at a time in float64, for comparison with Warren's.

They use none of Warren's algorithms: perceptrons are lists of (weight, bias), Adam is its formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from agents import Trajectory

Layers = list[tuple[Tensor, Tensor]]


def layers_of(state: Mapping[str, Tensor], prefix: str) -> Layers:
    """Return float64 copies, with gradients, of a perceptron's layers: tensors `prefix`.0.weight and so on."""
    found: Layers = []
    while f"{prefix}.{len(found)}.weight" in state:
        weight, bias = (state[f"{prefix}.{len(found)}.{kind}"].detach().double() for kind in ("weight", "bias"))
        found.append((weight.clone().requires_grad_(), bias.clone().requires_grad_()))
    assert found, (prefix, list(state))
    return found


def perceptron(layers: Layers, x: Tensor, activation: Callable[[Tensor], Tensor] = torch.tanh) -> Tensor:
    """Return the output for one observation [K]."""
    for weight, bias in layers[:-1]:
        x = activation(weight @ x + bias)
    weight, bias = layers[-1]
    return weight @ x + bias


def transition(played: Trajectory, slot: int, gamma: float) -> tuple[Tensor, object, float, float, Tensor]:
    """Return (observation, action, reward, discount, observation to bootstrap from) of one slot's sequence."""
    reward, discount, following = 0.0, 1.0, played.last["observation"][slot]
    for step in range(len(played.reward)):
        reward += discount * float(played.reward[step, slot])
        discount *= gamma
        if played.terminated[step, slot]:
            discount = 0.0
            break
        if played.truncated[step, slot]:
            assert played.cut_at is not None and played.cut_observation is not None
            row = played.cut_at.tolist().index([step, slot])
            following = played.cut_observation[row]
            break
    first = torch.tensor(played.observation[0, slot], dtype=torch.float64)
    return first, played.action[0, slot], reward, discount, torch.tensor(following, dtype=torch.float64)


class Adam:
    """Kingma and Ba 2015, algorithm 1, with the gradient's norm clipped to `norm`."""

    def __init__(self, parameters: Sequence[Tensor], rate: float, epsilon: float, norm: float = math.inf) -> None:
        self.parameters, self.rate, self.epsilon, self.norm, self.t = list(parameters), rate, epsilon, norm, 0
        self.m = [torch.zeros_like(one) for one in self.parameters]
        self.v = [torch.zeros_like(one) for one in self.parameters]

    def step(self, loss: Tensor) -> float:
        """Make one step; return the gradient's norm."""
        gradients = torch.autograd.grad(loss, self.parameters)
        norm = math.sqrt(sum(float(one.square().sum()) for one in gradients))
        self.t += 1
        for place, (one, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            cut = gradient * min(1.0, self.norm / (norm + 1e-6))
            self.m[place] = 0.9 * self.m[place] + 0.1 * cut
            self.v[place] = 0.999 * self.v[place] + 0.001 * cut**2
            mean, square = self.m[place] / (1 - 0.9**self.t), self.v[place] / (1 - 0.999**self.t)
            with torch.no_grad():
                one -= self.rate * mean / (square.sqrt() + self.epsilon)
        return norm


def flat(*networks: Layers) -> Iterator[Tensor]:
    """Yield all weights and biases."""
    for layers in networks:
        for weight, bias in layers:
            yield weight
            yield bias


def copied(layers: Layers) -> Layers:
    """Return a copy without gradients."""
    return [(weight.detach().clone(), bias.detach().clone()) for weight, bias in layers]


def towards(target: Layers, layers: Layers, rate: float) -> None:
    """Move `target` by Polyak's average."""
    for one, now in zip(flat(target), flat(layers), strict=True):
        with torch.no_grad():
            one.copy_((1 - rate) * one + rate * now)


def quantile_loss(values: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """Return equation 10 of Dabney et al. 2018, by its two sums."""
    total = torch.zeros((), dtype=torch.float64)
    for i, value in enumerate(values):
        tau = (2 * i + 1) / (2 * len(values))
        for target in targets:
            u = target - value
            huber = 0.5 * u**2 if abs(u.item()) <= kappa else kappa * (u.abs() - 0.5 * kappa)
            total = total + abs(tau - (1.0 if u.item() < 0 else 0.0)) * huber / kappa / len(targets)
    return total


class PlainDQN:
    """Mnih et al. 2015 with its additions; `advantage` and `value` are the network's two perceptrons."""

    def __init__(self, state: Mapping[str, Tensor], *, actions: int, quantiles: int, double: bool, dueling: bool,
                 gamma: float, rate: float, epsilon: float, norm: float, huber: float) -> None:  # fmt: skip
        self.actions, self.quantiles, self.double, self.dueling = actions, quantiles, double, dueling
        self.gamma, self.huber = gamma, huber
        self.networks = [layers_of(state, "network.policy_trunk.layers")]
        if dueling:
            self.networks.append(layers_of(state, "network.value_trunk.layers"))
        self.targets = [copied(layers) for layers in self.networks]
        self.adam = Adam(list(flat(*self.networks)), rate, epsilon, norm)

    def q(self, networks: list[Layers], observation: Tensor) -> Tensor:
        """Return the quantiles of Q of each action, [A, K]."""
        advantage = perceptron(networks[0], observation)
        if self.dueling:
            advantage = perceptron(networks[1], observation) + advantage - advantage.sum() / len(advantage)
        return advantage.reshape(self.actions, self.quantiles)

    def update(self, played: Trajectory, weights: np.ndarray | None) -> tuple[list[float], float]:
        """Make one step; return (absolute error of each slot, norm of the gradient)."""
        loss, errors = torch.zeros((), dtype=torch.float64), []
        slots = played.num_slots
        for slot in range(slots):
            observation, action, reward, discount, following = transition(played, slot, self.gamma)
            theirs = self.q(self.targets, following)
            chooser = self.q(self.networks, following) if self.double else theirs
            means = [one.mean().item() for one in chooser]
            best = means.index(max(means))
            target = (reward + discount * theirs[best]).detach()
            value = self.q(self.networks, observation)[int(action)]  # type: ignore[call-overload]
            if self.quantiles == 1:
                u = (value - target)[0]
                own = 0.5 * u**2 if abs(u.item()) <= self.huber else self.huber * (u.abs() - 0.5 * self.huber)
            else:
                own = quantile_loss(value, target, self.huber)
            loss = loss + (1.0 if weights is None else float(weights[slot])) * own / slots
            errors.append(abs((target.mean() - value.mean()).item()))
        return errors, self.adam.step(loss)


def log_density(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return (tanh(mean + std noise), its log-density): appendix C of Haarnoja et al. 2018, for one action."""
    log_std = log_std.clamp(-20, 2)
    u = mean + log_std.exp() * noise
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return u.tanh(), (gaussian - torch.log(1 - u.tanh() ** 2)).sum()


class PlainCritics:
    """Networks of relu layers, with targets."""

    def __init__(self, state: Mapping[str, Tensor], count: int, rate: float, epsilon: float) -> None:
        self.networks = [layers_of(state, f"networks.{index}.policy_trunk.layers") for index in range(count)]
        self.targets = [copied(layers) for layers in self.networks]
        self.adam = Adam(list(flat(*self.networks)), rate, epsilon)

    def values(self, networks: list[Layers], *seen: Tensor) -> list[Tensor]:
        """Return each network's output for an observation, or for an observation and an action."""
        return [perceptron(layers, torch.cat(seen), torch.relu) for layers in networks]

    def least(self, networks: list[Layers], *seen: Tensor) -> Tensor:
        """Return the least of the networks' outputs."""
        return torch.stack(self.values(networks, *seen)).min(0).values


class PlainSAC:
    """Haarnoja et al. 2018, algorithm 1; with `actions` Christodoulou 2019."""

    def __init__(self, policy: Mapping[str, Tensor], critics: Mapping[str, Tensor], *, gamma: float, rate: float,
                 epsilon: float, tau: float, temperature: float, target_entropy: float,
                 actions: int = 0) -> None:  # fmt: skip
        self.policy = layers_of(policy, "network.policy_trunk.layers")
        self.critics = PlainCritics(critics, 2, rate, epsilon)
        self.log_alpha = torch.tensor([math.log(temperature)], dtype=torch.float64, requires_grad=True)
        self.of_policy = Adam(list(flat(self.policy)), rate, epsilon)
        self.of_alpha = Adam([self.log_alpha], rate, epsilon)
        self.gamma, self.tau, self.target_entropy, self.actions = gamma, tau, target_entropy, actions

    def soft(self, networks: list[Layers], observation: Tensor, noise: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """Return (soft value, entropy or minus a log-density)."""
        output = perceptron(self.policy, observation)
        if self.actions:
            p = output.exp() / output.exp().sum()
            least = self.critics.least(networks, observation)
            return (p * (least - alpha * p.log())).sum(), -(p * p.log()).sum()
        half = len(output) // 2
        action, log_pi = log_density(output[:half], output[half:], noise)
        return self.critics.least(networks, observation, action)[0] - alpha * log_pi, -log_pi

    def update(self, played: Trajectory, weights: np.ndarray, noises: tuple[Tensor, Tensor]) -> list[float]:
        """Make one step with these draws for next and present actions; return the mean absolute errors."""
        alpha, slots = math.exp(self.log_alpha.item()), played.num_slots
        loss, errors = torch.zeros((), dtype=torch.float64), []
        for slot in range(slots):
            seen, action, reward, discount, following = transition(played, slot, self.gamma)
            target = reward + discount * self.soft(self.critics.targets, following, noises[0][slot], alpha)[0].detach()
            if self.actions:
                values = [one[int(action)] for one in self.critics.values(self.critics.networks, seen)]  # type: ignore[call-overload]
            else:
                taken = torch.tensor(action, dtype=torch.float64).tanh()
                values = [one[0] for one in self.critics.values(self.critics.networks, seen, taken)]
            loss = loss + sum(float(weights[slot]) * 0.5 * (value - target) ** 2 for value in values) / slots
            errors.append(sum(abs((value - target).item()) for value in values) / 2)
        self.critics.adam.step(loss)
        both = [
            self.soft(self.critics.networks, transition(played, slot, 1.0)[0], noises[1][slot], alpha)
            for slot in range(slots)
        ]
        self.of_policy.step(-torch.stack([value for value, _ in both]).mean())
        entropies = torch.stack([entropy for _, entropy in both]).detach()
        self.of_alpha.step((self.log_alpha.exp() * (entropies - self.target_entropy)).mean())
        for target_layers, layers in zip(self.critics.targets, self.critics.networks, strict=True):
            towards(target_layers, layers, self.tau)
        return errors


class PlainTD3:
    """Fujimoto et al. 2018, algorithm 1; DDPG with one critic, `every` of 1 and no noise."""

    def __init__(self, policy: Mapping[str, Tensor], critics: Mapping[str, Tensor], *, count: int, gamma: float,
                 rate: float, epsilon: float, tau: float, every: int, clip: float) -> None:  # fmt: skip
        self.policy = layers_of(policy, "network.policy_trunk.layers")
        self.target = copied(self.policy)
        self.critics = PlainCritics(critics, count, rate, epsilon)
        self.of_policy = Adam(list(flat(self.policy)), rate, epsilon)
        self.gamma, self.tau, self.every, self.clip, self.updates = gamma, tau, every, clip, 0

    def update(self, played: Trajectory, noise: Tensor) -> list[float]:
        """Make one step with this noise on the target policy's actions [N, A]; return the mean absolute errors."""
        loss, errors, slots = torch.zeros((), dtype=torch.float64), [], played.num_slots
        for slot in range(slots):
            seen, action, reward, discount, following = transition(played, slot, self.gamma)
            chosen = perceptron(self.target, following).tanh() + noise[slot].clamp(-self.clip, self.clip)
            value = self.critics.least(self.critics.targets, following, chosen.clamp(-1, 1))[0]
            target = (reward + discount * value).detach()
            taken = torch.tensor(action, dtype=torch.float64)
            values = [one[0] for one in self.critics.values(self.critics.networks, seen, taken)]
            loss = loss + sum(0.5 * (one - target) ** 2 for one in values) / slots
            errors.append(sum(abs((one - target).item()) for one in values) / len(values))
        self.critics.adam.step(loss)
        self.updates += 1
        if self.updates % self.every == 0:
            gain = torch.zeros((), dtype=torch.float64)
            for slot in range(slots):
                seen = transition(played, slot, 1.0)[0]
                act = perceptron(self.policy, seen).tanh()
                gain = gain + perceptron(self.critics.networks[0], torch.cat([seen, act]), torch.relu)[0] / slots
            self.of_policy.step(-gain)
            pairs = [(self.target, self.policy), *zip(self.critics.targets, self.critics.networks, strict=True)]
            for target_layers, layers in pairs:
                towards(target_layers, layers, self.tau)
        return errors


class PlainR2D2:
    """Kapturowski et al. 2019 for a network of one tanh layer, a GRU or LSTM and a linear layer, step by step."""

    def __init__(self, state: Mapping[str, Tensor], *, gamma: float, rate: float, epsilon: float, norm: float,
                 burn_in: int, learned: int, steps: int, share: float, double: bool = True) -> None:  # fmt: skip
        trunk, core = "network.trunks.policy.encoder.layers.layers.0", "network.trunks.policy.core.layer"
        names = [f"{trunk}.weight", f"{trunk}.bias"]
        names += [f"{core}.{kind}_{way}_l0" for kind in ("weight", "bias") for way in ("ih", "hh")]
        names += ["network.policy_head.weight", "network.policy_head.bias"]
        self.weights = [state[name].detach().double().clone().requires_grad_() for name in names]
        self.target = [one.detach().clone() for one in self.weights]
        self.adam = Adam(self.weights, rate, epsilon, norm)
        self.gamma, self.burn_in, self.learned, self.steps, self.share = gamma, burn_in, learned, steps, share
        self.double = double

    @staticmethod
    def step(weights: Sequence[Tensor], observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return (Q of each action, the state after): the equations of torch's GRU or, with two states, its LSTM."""
        w1, b1, w_in, w_hidden, b_in, b_hidden, w2, b2 = weights
        x = torch.tanh(w1 @ observation + b1)
        if len(hidden) == 2 * w_hidden.shape[1]:
            out, cell = hidden.chunk(2)
            gates = (w_in @ x + b_in + w_hidden @ out + b_hidden).chunk(4)
            taken, kept_share, shown = (torch.sigmoid(gates[at]) for at in (0, 1, 3))
            cell = kept_share * cell + taken * torch.tanh(gates[2])
            out = shown * torch.tanh(cell)
            return w2 @ out + b2, torch.cat([out, cell])
        given, kept = (w_in @ x + b_in).chunk(3), (w_hidden @ hidden + b_hidden).chunk(3)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        new = torch.tanh(given[2] + reset * kept[2])
        hidden = (1 - update) * new + update * hidden
        return w2 @ hidden + b2, hidden

    def values(self, weights: Sequence[Tensor], played: Trajectory, slot: int) -> list[Tensor]:
        """Return Q at each step of one sequence; no gradient comes from the burn-in."""
        parts = [torch.tensor(part[slot], dtype=torch.float64) for part in played.memory.values()]
        hidden = torch.cat(parts)
        found = []
        for step in range(len(played.reward)):
            if step and (played.terminated[step - 1, slot] or played.truncated[step - 1, slot]):
                hidden = torch.zeros_like(hidden)
            if step == self.burn_in:
                hidden = hidden.detach()
            seen = torch.tensor(played.observation[step, slot], dtype=torch.float64)
            q, hidden = self.step(weights, seen, hidden)
            found.append(q)
        return found

    def update(self, played: Trajectory, weights: np.ndarray) -> list[float]:
        """Make one step; return the priorities."""
        loss, priorities, slots = torch.zeros((), dtype=torch.float64), [], played.num_slots
        for slot in range(slots):
            online, target = (self.values(one, played, slot) for one in (self.weights, self.target))
            errors = []
            for step in range(self.burn_in, self.burn_in + self.learned):
                reward, ended = 0.0, ""
                for k in range(self.steps):
                    reward += self.gamma**k * float(played.reward[step + k, slot])
                    ended = "over" if played.terminated[step + k, slot] else ""
                    ended = ended or ("cut" if played.truncated[step + k, slot] else "")
                    if ended:
                        break
                if ended == "cut":
                    continue
                following = step + self.steps
                chosen = (online if self.double else target)[following].argmax()
                q = target[following][chosen].item()
                inner = (math.sqrt(1 + 4 * 1e-3 * (abs(q) + 1 + 1e-3)) - 1) / (2 * 1e-3)
                worth = math.copysign(inner**2 - 1, q)
                aim = reward + (0.0 if ended else self.gamma**self.steps * worth)
                aim = math.copysign(math.sqrt(abs(aim) + 1) - 1, aim) + 1e-3 * aim
                u = online[step][int(played.action[step, slot])] - aim
                own = 0.5 * u**2 if abs(u.item()) <= 1 else u.abs() - 0.5
                loss = loss + float(weights[slot]) * own / (slots * self.learned)
                errors.append(abs(u.item()))
            mean = sum(errors) / max(1, len(errors))
            priorities.append(self.share * max(errors, default=0.0) + (1 - self.share) * mean)
        self.adam.step(loss)
        return priorities
