"""QMIX: Rashid et al. 2018 (arXiv 1803.11485), with double Q-learning; all agents share one network. VDN too.

The values of QMIX grow without end in some games: `return_coefficient` draws them to the returns that were seen (RES,
Pan et al. 2021, arXiv 2103.11883).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from agents.algorithms.contract import Update
from agents.algorithms.dqn.algorithm import ValueLearning, taken
from agents.algorithms.dqn.losses import huber
from agents.algorithms.off_policy import follow, target_of
from agents.algorithms.qmix.config import SUM, QMIXConfig
from agents.algorithms.qmix.joint import JointSteps, joint_steps, returns_to_ends
from agents.algorithms.qmix.mixer import Mixer, Sum
from agents.algorithms.registry import ALGORITHMS
from agents.configuration import parse
from agents.policies import Policy
from agents.trajectories import Trajectory, concatenate
from warren.errors import ConfigurationError
from warren.trees import map_tree

STATE, AGENT = "state", "agent"  # leaves of the observation


class QMIX(ValueLearning[QMIXConfig]):
    """One step on a batch of sequences of burn_in + learned + 1 steps, all agents of a game together."""

    fixed: ClassVar[tuple[str, ...]] = (*ValueLearning.fixed, "burn_in", "learned", "mixing", "mixing_size")
    takes_memory = True

    def __init__(self, policy: Policy, config: QMIXConfig, seed: int) -> None:
        """Raise ConfigurationError for a policy that does not act by values, and for observations without the state."""
        self.agents, self._state_size = sizes(policy)
        super().__init__(policy, config, seed)
        self.needs = replace(self.needs, groups=True, burn_in=config.burn_in)

    def learning(self) -> nn.Module:
        config = self.config
        sized = self.agents, self._state_size, config.mixing_size
        mixer = Sum() if config.mixing == SUM else Mixer(*sized, self.generator)
        self.mixer = mixer.to(self.policy.device)
        self.mixer_target = target_of(self.mixer)
        self.modules |= {"mixer": self.mixer, "mixer_target": self.mixer_target}
        return nn.ModuleDict({"policy": self.policy, "mixer": self.mixer})

    @property
    def length(self) -> int:
        return self.config.burn_in + self.config.learned + 1

    def update(self, batch: Sequence[Trajectory]) -> Update:
        """Make one step; the priority of each agent's sequence is the mean absolute error of its game's."""
        rate, config, drawn = self.set_learning_rates(), self.config, concatenate(list(batch))
        joint = joint_steps(self.policy, drawn, self.agents, config.burn_in, config.reward_offset)
        seen = self.policy.leaves(drawn.observation)
        values = self.unrolled(self.policy, drawn, config.burn_in)
        action = self._tensor(drawn.action[config.burn_in :])
        chosen = taken(values, action)[:-1].view(joint.alive[:-1].shape) * self._tensor(joint.alive[:-1])
        state = self._state(seen, joint)
        mixed = self.mixer(chosen, state[:-1])
        target, known = self._targets(drawn, joint, values.detach(), state)
        given = getattr(batch, "weights", None)
        weights = known if given is None else known * self._tensor(given).view(-1, self.agents)[:, 0]
        count = known.sum().clamp(min=1)
        loss = (weights * huber(mixed - target, config.huber)).sum() / count
        if pull := config.schedules["return_coefficient"].at(self.steps, self.progress):
            returns, ends = (self._tensor(part) for part in returns_to_ends(joint, config.gamma))
            loss = loss + pull * (weights * ends * huber(mixed - returns, config.huber)).sum() / count
        inputs = {"value": mixed, "target": target}
        norm = self.descend("policy", loss, {"value_loss": loss}, inputs, known.numel())
        self.moved()
        self.take_in(drawn)
        error = known * (mixed.detach() - target).abs()
        terms = [loss.detach(), norm, (known * mixed.detach()).sum() / count, error.sum() / count]
        metrics = dict(zip(("value_loss", "grad_norm", "value", "error"), torch.stack(terms).tolist(), strict=True))
        metrics |= {"learning_rate": rate, "epsilon": config.epsilon_at(self.steps, self.progress)}
        of_games = error.sum(0) / known.sum(0).clamp(min=1)
        return Update(metrics, of_games.repeat_interleave(self.agents).cpu().numpy())

    def moved(self) -> None:
        """Count an update, and move both targets."""
        super().moved()
        config = self.config
        if config.target_rate < 1 or self.updates % config.target_every == 0:
            follow(self.mixer_target, self.mixer, config.target_rate)

    @torch.no_grad()
    def _targets(self, drawn: Trajectory, joint: JointSteps, values: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return (targets [L, B], float32 [L, B]: 1 where they are known).

        With a memory, targets are not known where a game was cut off: the value of what came after is not known.
        """
        first, games = self.config.burn_in, joint.alive[1:].shape
        legal = None if drawn.action_mask is None else self._tensor(drawn.action_mask[first + 1 :])
        best = self.best(values[1:], self.unrolled(self.target, drawn, first)[1:], legal).view(games)
        best, following = best * self._tensor(joint.alive[1:]), state[1:].clone()
        known = joint.decided & ~joint.cut if self.policy.has_memory else joint.decided
        if joint.cut.any() and not self.policy.has_memory:
            self._bootstrap_at_cuts(drawn, joint, best, following)
        goes_on = self._tensor((~joint.over).astype(np.float32))
        target = self._tensor(joint.reward) + self.config.gamma * goes_on * self.mixer_target(best, following)
        return target, self._tensor(known.astype(np.float32))

    def _bootstrap_at_cuts(self, drawn: Trajectory, joint: JointSteps, best: Tensor, following: Tensor) -> None:
        """Put the values and states seen where games were cut off into `best` [L, B, P] and `following` [L, B, S]."""
        if drawn.cut_at is None:
            raise ValueError("games were cut off, and the trajectory has no cut_observation; name it in Needs.fields")
        step, slot = drawn.cut_at[:, 0] - self.config.burn_in, drawn.cut_at[:, 1]
        inside = (step >= 0) & (step < len(joint.cut))
        rows = np.flatnonzero(inside & joint.cut[np.where(inside, step, 0), slot // self.agents])
        step, game, agent = step[rows], slot[rows] // self.agents, slot[rows] % self.agents
        seen = self.policy.leaves(map_tree(lambda leaf: leaf[rows], drawn.cut_observation))
        masks = drawn.cut_action_mask
        legal = None if masks is None else self._tensor(masks[rows])
        values, target = (self.values(policy.outputs(seen)) for policy in (self.policy, self.target))
        best[self._tensor(joint.cut)] = 0.0  # 0 for agents that had ended
        best[step, game, agent] = self.best(values, target, legal).squeeze(-1)
        following[step, game] = self._state_of(seen)

    def _state(self, seen: Any, joint: JointSteps) -> Tensor:
        """Return the games' states float32 [L + 1, B, S], as seen by an agent that is still in the game."""
        all_seen = self._state_of(seen)[self.config.burn_in :]
        state = all_seen.view(len(all_seen), -1, self.agents, all_seen.shape[-1])
        one = self._tensor(joint.alive.argmax(-1))[..., None, None].expand(*joint.alive.shape[:2], 1, state.shape[-1])
        chosen: Tensor = state.gather(2, one).squeeze(2)
        return chosen

    def _state_of(self, seen: Any) -> Tensor:
        state: Tensor = self.policy.normalized(seen)[STATE]  # type: ignore[index]
        return state

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, device=self.policy.device)


def sizes(policy: Policy) -> tuple[int, int]:
    """Return how many agents a game has, and how many numbers its state. Raises ConfigurationError without them."""
    space = policy.learning_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    agent, state = parts.get(AGENT), parts.get(STATE)
    if not isinstance(agent, spaces.Discrete) or not isinstance(state, spaces.Box) or len(state.shape) != 1:
        raise ConfigurationError(
            "algorithm: 'qmix' mixes the values of agents that learn together, and these observations have no keys "
            f"{AGENT!r} and {STATE!r}; set env.agent_id=true, env.state=true and +network.privileged=[state]"
        )
    if STATE in getattr(policy.observation_space, "spaces", {}):
        raise ConfigurationError(
            "algorithm: 'qmix' gives the state to the mixing network alone; set +network.privileged=[state]"
        )
    return int(agent.n), state.shape[0]


@ALGORITHMS.register("qmix")
def build(config: Mapping[str, Any], policy: Policy, seed: int) -> QMIX:
    return QMIX(policy, parse(QMIXConfig, "qmix", config), seed)
