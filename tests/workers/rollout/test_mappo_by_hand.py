"""Tests that MAPPO's updates equal those of code that shares nothing with Warren: returns, networks, loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import envs
from agents import Trajectory, build_algorithm, build_policy
from envs import EnvSettings
from workers.rollout.vector_sampler import VectorSampler

GAMMA, LAMBDA, CLIP, ENTROPY, RATE, LONGEST = 0.95, 0.9, 0.2, 0.01, 3e-3, 0.5
SETTINGS = {
    "gamma": GAMMA, "gae_lambda": LAMBDA, "clip_range": CLIP, "entropy_coefficient": ENTROPY, "learning_rate": RATE,
    "max_grad_norm": LONGEST, "value_coefficient": 0.5, "epochs": 3, "minibatch_size": 10_000,
}  # fmt: skip
ACTOR, CRITIC = (f"network.{name}.trunks.shared.encoder.layers.layers.0" for name in ("actor", "critic"))


def log_probabilities(w: dict[str, Tensor], seen: Tensor, mask: Tensor) -> Tensor:
    hidden = torch.tanh(functional.linear(seen, w[f"{ACTOR}.weight"], w[f"{ACTOR}.bias"]))
    logits = functional.linear(hidden, w["network.actor.policy_head.weight"], w["network.actor.policy_head.bias"])
    return torch.log_softmax(logits.masked_fill(~mask, -1e8), -1)


def value(w: dict[str, Tensor], seen: Tensor, state: Tensor) -> Tensor:
    hidden = torch.tanh(functional.linear(torch.cat([seen, state], -1), w[f"{CRITIC}.weight"], w[f"{CRITIC}.bias"]))
    head = "network.critic.value_head"
    return functional.linear(hidden, w[f"{head}.weight"], w[f"{head}.bias"]).squeeze(-1)


def decisions(w: dict[str, Tensor], t: Trajectory) -> dict[str, Tensor]:
    """Return all valid decisions, slot by slot, with their advantages and targets."""
    assert t.valid is not None
    found: list[tuple[int, int, float, float]] = []
    last = value(w, *(torch.tensor(t.last["observation"][key]).double() for key in ("observation", "state")))
    for slot in range(t.num_slots):
        advantage, following = 0.0, last[slot].item()
        for step in reversed(range(len(t.valid))):
            if not t.valid[step, slot]:
                continue
            if t.terminated[step, slot]:
                advantage, following = 0.0, 0.0
            elif t.truncated[step, slot]:
                advantage, following = 0.0, float(t.cut["value"][step, slot])
            own = float(t.extras["value"][step, slot])
            error = float(t.reward[step, slot]) + GAMMA * following - own
            advantage, following = error + GAMMA * LAMBDA * advantage, own
            found.append((step, slot, advantage, advantage + own))
    rows, slots = (torch.tensor([one[i] for one in found]) for i in (0, 1))
    parts = {
        "seen": t.observation["observation"], "state": t.observation["state"], "action": t.action,
        "mask": t.action_mask, "acted": t.extras["log_prob"],
    }  # fmt: skip
    taken = {name: torch.tensor(part)[rows, slots] for name, part in parts.items()}
    more = {name: torch.tensor([one[i] for one in found]).double() for name, i in (("advantage", 2), ("target", 3))}
    return {name: part.double() if part.is_floating_point() else part for name, part in taken.items()} | more


def updated(w: dict[str, Tensor], t: Trajectory) -> dict[str, Tensor]:
    of = decisions(w, t)
    w = {name: part.clone().requires_grad_(True) for name, part in w.items()}
    adam = torch.optim.Adam(w.values(), RATE, eps=1e-5)
    for _ in range(3):
        log_p = log_probabilities(w, of["seen"], of["mask"])
        ratio = torch.exp(log_p.gather(-1, of["action"][:, None])[:, 0] - of["acted"])
        a = (of["advantage"] - of["advantage"].mean()) / (of["advantage"].std() + 1e-8)
        policy_loss = -torch.minimum(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        value_loss = (value(w, of["seen"], of["state"]) - of["target"]).square().mean()
        adam.zero_grad()
        (policy_loss - ENTROPY * entropy + 0.5 * value_loss).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(w.values(), LONGEST)
        adam.step()
    return {name: part.detach() for name, part in w.items()}


def test_updates_of_mappo_equal_those_of_an_independent_implementation(one_thread: None) -> None:
    settings = EnvSettings("examples/agents/lamps.py:Lamps", state=True, team_reward="mean")
    vector = envs.make_vector(settings, 4, 7)
    network: dict[str, Any] = {"hidden_sizes": [16], "privileged": ["state"]}
    policy = build_policy(network, vector.single_observation_space, vector.single_action_space, 1)
    sampler = VectorSampler(vector, policy, 2)
    sampler.collect(15)
    trajectory = sampler.collect(30)
    assert trajectory.valid is not None and not trajectory.valid.all()
    assert (trajectory.truncated & trajectory.valid).any() and trajectory.terminated[trajectory.valid].any()
    before = {name: part.double().clone() for name, part in policy.state_dict().items()}
    wanted = updated(before, trajectory)
    build_algorithm("ppo", SETTINGS, policy, 0).update([trajectory])
    moved = 0
    for name, part in policy.state_dict().items():
        torch.testing.assert_close(part.double(), wanted[name], rtol=1e-3, atol=2e-5, msg=name)
        moved += int((part.double() - before[name]).abs().max() > 1e-3)
    assert moved == 8  # both layers of actor and critic
