"""Anchors: frozen policies that a loss keeps the learning policy near to, by their distributions at a batch's steps.

An anchor's distributions are computed once per update, without gradients, and kept as columns of the batch, named by
the anchor and the action's part. Three are in use: a teacher (teacher.py), a magnet (magnet.py), and the policy as it
was at the update's beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from agents.algorithms.batches import Batch, Minibatch
from agents.policies import Policy
from warren.trees import map_tree

LESSON, MAGNET, LAST = "teacher's ", "magnet's ", "last "  # a head's name follows: names of a minibatch's columns
PREFIXES = {"teacher": LESSON, "magnet": MAGNET, "proximal": LAST}  # by what their coefficients are called


def distributions(anchor: Policy, batch: Batch | Minibatch, prefix: str) -> dict[str, Tensor]:
    """Return the anchor's distribution at each step of `batch`, columns [B, K] or [T, N, K] by `prefix` and head.

    An anchor with a memory starts from the memories at the beginning of the batch's unrolls, which other weights made.
    """
    with torch.no_grad():
        if batch.begins is None and anchor.computes_plainly:  # the value is not asked for
            observation, alike = batch.observation, batch.alike
            if alike is None or not isinstance(observation, Tensor):
                output, _ = anchor.network.act(observation, {})
            else:  # equal observations are computed once
                output, _ = anchor.network.act(observation[alike.first], {})
                output = map_tree(lambda part: part[alike.kind], output)
            statistics = anchor.statistics(anchor.legal(output, batch.action_mask))
        elif batch.begins is None:
            said = anchor.evaluate(batch.observation, batch.action, batch.action_mask)
            statistics = anchor.statistics(said.output)
        else:
            memory = batch.memory if anchor.has_memory else {}
            if memory and batch.head is not None:
                memory = batch.head.remembered(anchor, memory)
            said = anchor.unroll(batch.observation, memory, batch.begins, batch.action, batch.action_mask)[0]
            statistics = anchor.statistics(said.output)
    heads = statistics if isinstance(statistics, dict) else {"": statistics}
    return {prefix + name: head for name, head in heads.items()}


def said_by(prefix: str, columns: Mapping[str, Tensor]) -> Any:
    """Return the statistics that `distributions` put into `columns` under `prefix`, for `Policy.kl`, or None."""
    heads = {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
    return (heads[""] if set(heads) == {""} else heads) if heads else None


def divergence(policy: Policy, output: Any, prefix: str, columns: Mapping[str, Tensor]) -> Tensor | None:
    """Return E[KL(policy || anchor)], the sum over heads, with gradients; None where `columns` have no such anchor.

    `output`: the policy's `Evaluation.output` at the steps of `columns`.
    """
    anchor = said_by(prefix, columns)
    if anchor is None:
        return None
    heads = policy.kl(policy.statistics(output), anchor)
    return torch.stack([head.mean() for head in heads.values()]).sum()
