"""Batch: trajectories as tensors where the policy is, and the minibatches that an epoch cuts them into.

A policy without a memory learns from steps: all T * N of a batch are shuffled. One with a memory learns from unrolls:
the N slots are shuffled, and the T steps of each are unrolled. An unroll begins with the memory that the slot had when
it was sampled, or with what a burn-in made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from agents.algorithms.burn_in import Head, problems
from agents.algorithms.kept_arrays import joined, selected
from agents.native.kinds import Kinds, kinds_of
from agents.networks import Memory
from agents.operators.unrolls import Unroll
from agents.policies import Policy
from agents.policies.policy import Evaluation
from agents.trajectories import Trajectory
from agents.trajectories.cuts import joined_cuts
from agents.trees import flattened
from warren.trees import Tree, map_tree, take


@dataclass
class Minibatch:
    """Steps [B, ...], or unrolls [T, n, ...] with `memory` [n, ...] before the first step and `begins` bool [T, n]."""

    observation: Tree
    action: Tree
    action_mask: Tree | None
    columns: dict[str, Tensor]  # the algorithm's other tensors of each step
    memory: Memory
    begins: Tensor | None = None
    head: Head | None = None  # the steps between `memory` and the unrolls' first
    kept: Tensor | None = (
        None  # bool [T, n]: the valid steps; None: all are. If set, `columns` has the valid steps alone, [B, ...]
    )
    alike: Kinds | None = None  # groups of steps with equal observations; None: not looked for

    def evaluate(self, policy: Policy) -> Evaluation:
        """Evaluate the actions under `policy`, with gradients: [B], or [T, n] of unrolls whose steps are all valid."""
        if self.begins is None:
            return policy.evaluate(self.observation, self.action, self.action_mask)
        memory = self.memory if self.head is None else self.head.remembered(policy, self.memory)
        said, _ = policy.unroll(self.observation, memory, self.begins, self.action, self.action_mask)
        if (kept := self.kept) is None:
            return said
        return Evaluation(*(map_tree(lambda part: part[kept], part) for part in said))


class Batch:
    """All steps of `trajectories`: [B, ...] with B the sum of T * N, or [T, N, ...] for a policy with a memory.


    Steps that are not valid (Trajectory.valid) are left out of [B, ...]. They stay in [T, N, ...], since the memory
    goes through them; the method `valid` drops them. Losses, means, deviations and counts are of valid steps alone.

    With a burn-in T counts the steps after it. Raises ValueError for unrolls of different lengths T, for a burn-in that
    leaves no step, and for a burn-in of a policy without a memory.
    """

    def __init__(
        self, policy: Policy, trajectories: Sequence[Trajectory], unrolled: bool = False, burn_in: int = 0
    ) -> None:
        """`unrolled`: keep [T, N, ...] also where the policy has no memory, for returns of the weights that learn.

        `burn_in`: steps at the head of each unroll that only bring its memory up to date and are not learned from.
        """
        self.device = policy.device
        self.unrolled = unrolled or policy.has_memory
        self.burn_in = burn_in
        self.kept: Tensor | None = None  # bool [T, N] of unrolls, None where all steps are valid
        self._rows: np.ndarray | None = None  # bool [T * N], of a flat batch
        if any(t.valid is not None and not t.valid.all() for t in trajectories):
            self._find_valid([np.ones_like(t.terminated) if t.valid is None else t.valid for t in trajectories])
        self._trajectories = trajectories
        self.steps = sum(trajectory.num_steps for trajectory in trajectories)  # environment steps, a burn-in's included
        lengths = {len(trajectory.terminated) for trajectory in trajectories}
        if self.unrolled and len(lengths) != 1:
            raise ValueError(f"trajectories of different lengths T cannot be unrolled together: {sorted(lengths)}")
        if wrong := list(problems(burn_in, policy.has_memory, min(lengths))):
            raise ValueError(wrong[0])
        self.observation = policy.leaves(map_tree(self._join, *(t.observation for t in trajectories)))
        self.action = map_tree(lambda *parts: self.column(parts), *(t.action for t in trajectories))
        masks = [t.action_mask for t in trajectories if t.action_mask is not None]
        # Either all trajectories have a mask, or none has.
        self.action_mask = map_tree(lambda *parts: self.column(parts), *masks) if masks else None
        self.memory: Memory = {}
        self.begins: Tensor | None = None
        self.head: Head | None = None
        if self.unrolled:
            self.memory = {
                name: self._tensor(np.concatenate([t.memory[name] for t in trajectories]))
                for name in trajectories[0].memory
            }
            ended = np.concatenate([t.terminated | t.truncated for t in trajectories], axis=1)
            begins = self._tensor(np.concatenate([np.zeros_like(ended[:1]), ended[:-1]]))
            self.begins = begins[burn_in:]
            if burn_in:
                first = map_tree(
                    lambda *parts: np.concatenate([part[:burn_in] for part in parts], axis=1),
                    *(t.observation for t in trajectories),
                )
                self.head = Head(policy.leaves(first), begins[:burn_in])

    def by_step(self, columns: dict[str, Tensor]) -> tuple[Batch, dict[str, Tensor]]:
        """Return an unrolled batch and its columns as single steps, [B, ...]; for policies without a memory."""
        flat = copy(self)
        flat.unrolled, flat.begins, flat.kept = False, None, None

        def by_step(tree: Tree) -> Tree:
            return self.valid(tree, always=True)

        flat.observation, flat.action = by_step(self.observation), by_step(self.action)
        flat.action_mask = None if self.action_mask is None else by_step(self.action_mask)
        return flat, by_step(columns)

    def valid(self, tree: Tree, always: bool = False) -> Tree:
        """Return the valid steps [B, ...] of tensors shaped like the batch; if all are valid, the tensors themselves.

        `always`: flatten the tensors to [B, ...] also if all steps are valid.
        """
        if (kept := self.kept) is not None:
            return map_tree(lambda tensor: tensor[kept], tree)
        return map_tree(lambda tensor: tensor.flatten(0, 1), tree) if always else tree

    def _find_valid(self, valid: Sequence[np.ndarray]) -> None:
        if self.unrolled:
            self.kept = self._tensor(np.concatenate([part[self.burn_in :] for part in valid], axis=1))
        else:
            self._rows = np.concatenate([part.ravel() for part in valid])

    @cached_property
    def alike(self) -> Kinds | None:
        """Return the groups of a flat batch's steps with equal observations; None where few are equal."""
        return kinds_of(self.observation) if isinstance(self.observation, Tensor) and self.begins is None else None

    def column(self, arrays: Sequence[np.ndarray]) -> Tensor:
        """Join one array [T, N, ...] of each trajectory into a tensor shaped like the batch."""
        return self._tensor(self._join(*arrays))

    def unroll(self, policy: Policy) -> tuple[Unroll, Evaluation]:
        """Return (the unroll to compute returns from, the evaluation of the learning `policy`), with gradients.

        Values are those of `policy`, the bootstrap value included. Values at cuts are too, if the trajectories have
        the observations there; otherwise they are of the policy that acted.
        """
        assert self.begins is not None
        said, memory = policy.unroll(self.observation, self._begun(policy), self.begins, self.action, self.action_mask)
        return self.unroll_of(policy, said.value, memory), said

    def unroll_of(self, policy: Policy, value: Tensor, memory: Memory) -> Unroll:
        """Return the unroll with the policy's `value` of each step, [T, N] or [T, N, C], and its last `memory`."""
        trajectories = self._trajectories
        ended = np.concatenate([(t.terminated | t.truncated)[-1] for t in trajectories])
        last = map_tree(lambda *parts: np.concatenate(parts), *(t.last["observation"] for t in trajectories))
        with torch.no_grad():
            bootstrap = policy.network.value(policy.leaves(last), policy.begin(memory, ended))
        return Unroll(
            reward=self.column([t.reward for t in trajectories]),
            value=value,
            terminated=self.column([t.terminated for t in trajectories]),
            truncated=self.column([t.truncated for t in trajectories]),
            final_value=self._final_value(policy, value),
            bootstrap_value=bootstrap,
        )

    def _begun(self, policy: Policy) -> Memory:
        """Return the memory [N, ...] before the first step that is learned from."""
        return self.memory if self.head is None else self.head.remembered(policy, self.memory)

    @torch.no_grad()
    def _final_value(self, policy: Policy, value: Tensor) -> Tensor:
        """Return the values at truncations, shaped as `value`."""
        trajectories = self._trajectories
        cuts = [found for t in trajectories if (found := t.cuts) is not None]
        if not cuts:
            return self.column([t.cut["value"] for t in trajectories])
        at, kept = joined_cuts(cuts, [t.num_slots for t in trajectories])
        final, learned = torch.zeros_like(value), np.flatnonzero(at[:, 0] >= self.burn_in)
        if len(learned):
            step, slot = at[learned, 0] - self.burn_in, at[learned, 1]
            seen = policy.leaves(take(kept["observation"], learned))
            final[step, slot] = policy.network.value(seen, self._memory_after(policy, step, slot))
        return final

    def _memory_after(self, policy: Policy, step: np.ndarray, slot: np.ndarray) -> Memory:
        """Return the memory [K, ...] of slots `slot` after steps `step`, both int64 [K]; `step` ascends."""
        if not policy.has_memory:
            return {}
        assert self.begins is not None
        memory, done, found = self._begun(policy), 0, list[Memory]()
        for last in np.unique(step).tolist():
            here = slice(done, last + 1)
            memory = policy.remember(take(self.observation, here), memory, self.begins[here])
            found.append({name: part[slot[step == last]] for name, part in memory.items()})
            done = last + 1
        return {name: torch.cat([part[name] for part in found]) for name in memory}

    def __len__(self) -> int:
        """Return how many parts are shuffled: steps, or slots where they are unrolled."""
        return self.steps if self.begins is None else self.begins.shape[1]

    def at_a_time(self, size: int) -> int:
        """Return how many shuffled parts have `size` steps: steps, or whole unrolls (at least one)."""
        return size if self.begins is None else max(1, size // len(self.begins))

    def minibatches(self, cuts: Sequence[slice], order: Tensor, columns: dict[str, Tensor]) -> Iterator[Minibatch]:
        """Yield the batch in `order` int64 [len(self)], cut at `cuts`, together with `columns` (see `column`)."""
        axis = 0 if self.begins is None else 1
        order = order.to(self.device)

        def shuffled(tensor: Tensor) -> Tensor:  # once an epoch: then every minibatch is a view
            return selected(tensor, axis, order)

        def part(tensor: Tensor) -> Tensor:
            return tensor[:, here] if axis else tensor[here]

        whole = {"observation": self.observation, "action": self.action, **columns}
        if self.action_mask is not None:
            whole["action_mask"] = self.action_mask
        if self.begins is not None:
            whole["begins"] = self.begins
        if self.kept is not None:
            whole["kept"] = self.kept
        if self.head is not None:
            whole["head"] = {"observation": self.head.observation, "begins": self.head.begins}
        whole = map_tree(shuffled, whole)
        memory = {name: tensor[order] for name, tensor in self.memory.items()}
        for here in cuts:
            parts = map_tree(part, whole)
            head, kept = parts.pop("head", None), parts.pop("kept", None)
            yield Minibatch(
                parts.pop("observation"),
                parts.pop("action"),
                parts.pop("action_mask", None),
                begins=parts.pop("begins", None),
                memory={name: tensor[here] for name, tensor in memory.items()},
                head=None if head is None else Head(**head),
                kept=kept,
                columns=parts if kept is None else _at(parts, columns, kept),
            )

    def _join(self, *arrays: np.ndarray) -> np.ndarray:
        pinned = self.device.type == "cuda"
        if self.unrolled:
            return joined([array[self.burn_in :] for array in arrays] if self.burn_in else arrays, 1, pinned)
        flat = joined([flattened(array) for array in arrays], 0, pinned)
        return flat if self._rows is None else flat[self._rows]

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def _at(parts: Tree, columns: Iterable[str], kept: Tensor) -> dict[str, Tensor]:
    return {name: parts[name][kept] for name in columns}


def without_idle_slots(trajectories: Sequence[Trajectory], burn_in: int = 0) -> Sequence[Trajectory]:
    """Return the trajectories without slots that have no valid step after a burn-in: their minibatch would be empty."""
    if all(t.valid is None for t in trajectories):
        return trajectories
    kept = [t if t.valid is None else t.slots(np.flatnonzero(t.valid[burn_in:].any(0))) for t in trajectories]
    return [t for t in kept if t.num_slots]
