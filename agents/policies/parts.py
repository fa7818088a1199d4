"""The distribution over a Dict or Tuple of actions: one for each leaf, independent of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agents.policies.distribution import Distribution
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError


class Parts(Distribution):
    """Outputs, actions, masks, statistics and divergences are dicts, leaf name -> that of the leaf.

    Log-probabilities and entropies are sums over the leaves. All actions are legal in leaves that a mask leaves out.
    """

    def __init__(self, tree: SpaceTree, parts: Mapping[str, Distribution]) -> None:
        super().__init__()
        self._tree = tree
        self._names = list(parts)
        self.parts = nn.ModuleList(parts.values())  # not a ModuleDict: a name may be anything here
        self.size = sum(part.size for part in parts.values())

    def named_parts(self) -> zip[tuple[str, Any]]:
        return zip(self._names, self.parts, strict=True)

    def sample(self, output: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        return {name: part.sample(output[name], generator) for name, part in self.named_parts()}

    def uniform(self, output: dict[str, Tensor], generator: torch.Generator) -> dict[str, Tensor]:
        return {name: part.uniform(output[name], generator) for name, part in self.named_parts()}

    def mode(self, output: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: part.mode(output[name]) for name, part in self.named_parts()}

    def log_prob(self, output: dict[str, Tensor], action: dict[str, Tensor]) -> Tensor:
        return torch.stack([part.log_prob(output[name], action[name]) for name, part in self.named_parts()]).sum(0)

    def log_prob_entropy(self, output: dict[str, Tensor], action: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        both = [part.log_prob_entropy(output[name], action[name]) for name, part in self.named_parts()]
        log_probs, entropies = zip(*both, strict=True)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def masked(self, output: dict[str, Tensor], action_mask: dict[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: part.masked(output[name], action_mask[name]) if name in action_mask else output[name]
            for name, part in self.named_parts()
        }

    def statistics(self, output: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: part.statistics(output[name]) for name, part in self.named_parts()}

    def kl(self, p: dict[str, Tensor], q: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: part.kl(p[name], q[name]) for name, part in self.named_parts()}

    def env_action(self, action: Mapping[str, Any]) -> Any:
        return self._tree.unflatten({name: part.env_action(action[name]) for name, part in self.named_parts()})

    def own_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return {name: part.own_action(action[name]) for name, part in self.named_parts()}

    def tensors(self, action_mask: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
        if unknown := [name for name in action_mask if name not in self._names]:
            raise ConfigurationError(f"action mask of {unknown[0]!r}: the action space has the parts {self._names}")
        return {name: torch.as_tensor(mask, device=device) for name, mask in action_mask.items()}

    def numpy(self, action: dict[str, Tensor]) -> dict[str, Any]:
        return {name: part.cpu().numpy() for name, part in action.items()}
