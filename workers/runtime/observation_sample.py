"""A sample of consecutive observations of a policy, in one file of a run folder; policies are compared on it.

The learner writes observations that it learned from; `recorded.safetensors` holds "observation" [T, N, ...] (for a Dict
or Tuple "observation/NAME" for each leaf), "begins" bool [T, N], and "memory/NAME" [N, ...] of the policy's memory. If
the game says which actions are legal, it also holds "action_mask" bool [T, N, A].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from agents.policies import Policy
from agents.spaces import SpaceTree
from agents.trajectories import Trajectory
from agents.trees import problems, spec_of
from warren.errors import CheckpointError
from warren.files import write_whole
from warren.trees import Tree, leaves, map_tree
from workers.runtime.trained import Trained

FILE = "recorded.safetensors"
BYTES = 4 << 20  # bytes of observations, in a file that the learner writes


@dataclass(frozen=True)
class ObservationSample:
    """T steps of N slots, as a Trajectory has them."""

    observation: Tree  # [T, N, ...]
    begins: np.ndarray  # bool [T, N]: where an episode begins, and the memory begins anew
    memory: dict[str, np.ndarray] = field(default_factory=dict)  # [N, ...] before step 0
    action_mask: np.ndarray | None = None  # bool [T, N, A]: legal actions; None if the game does not say

    @property
    def observations(self) -> int:
        """Number of observations, T * N."""
        return self.begins.size

    @classmethod
    def of(cls, trajectory: Trajectory, most: int = BYTES) -> ObservationSample:
        """Return copies of as many slots as fit into `most` bytes, one at least."""
        size = sum(leaf.nbytes for _, leaf in leaves(trajectory.observation)) / trajectory.num_slots
        slots = slice(max(1, int(most / size)))
        over = (trajectory.terminated | trajectory.truncated)[:, slots]
        begins = np.concatenate([np.zeros_like(over[:1]), over[:-1]])
        observation = map_tree(lambda leaf: leaf[:, slots].copy(), trajectory.observation)
        mask: Any = trajectory.action_mask
        memory = {name: part[slots].copy() for name, part in trajectory.memory.items()}
        return cls(observation, begins, memory, mask[:, slots].copy() if isinstance(mask, np.ndarray) else None)

    @classmethod
    def played(cls, trained: Trained, steps: int, seed: int = 0) -> ObservationSample:
        """Play `steps` of the environment that `trained` was trained on, by its own actions, drawn as in training."""
        env = trained.make()
        observations, begins, over = [], [], True
        trained.begin()
        try:
            for step in range(steps):
                if over:
                    observation, info = env.reset(seed=seed + step)
                    trained.begin()
                observations.append(map_tree(np.asarray, observation))
                begins.append(over)
                action = trained.act(observation, trained.legal(info), greedy=False)
                observation, _, terminated, truncated, info = env.step(action)
                over = bool(terminated or truncated)
        finally:
            env.close()
        tree = map_tree(lambda spec, *parts: np.stack(parts)[:, None].astype(spec.dtype, copy=False),
                        spec_of(env.observation_space), *observations)  # fmt: skip
        return cls(tree, np.array(begins)[:, None], _no_memory(trained.policy, 1))

    @classmethod
    def of_two(cls, trained: Trained, decisions: int, seed: int = 0) -> ObservationSample:
        """Play the two-player game that `trained` was trained on, by its own actions in both seats, for `decisions`.

        Each seat is a slot, so that it has its own memory; both are cut to the length of the shorter.
        """
        games = trained.games(seed=seed)
        seen: list[list[Any]] = [[], []]
        masks: list[list[np.ndarray]] = [[], []]
        begins: list[list[bool]] = [[], []]
        memories: list[Any] = [None, None]
        fresh = [True, True]
        try:
            turn = games.reset()
            for _ in range(decisions):
                seat = int(turn.to_move[0])
                seen[seat].append(turn.observation[0])
                masks[seat].append(turn.action_mask[0])
                begins[seat].append(fresh[seat])
                before = None if fresh[seat] else memories[seat]
                action, memories[seat] = trained.policy.act(turn.observation, before, "sample", turn.action_mask)
                fresh[seat] = False
                turn = games.step(trained.policy.env_action(action))
                games.pop_finished()
                if turn.done[0]:
                    fresh = [True, True]
        finally:
            games.close()
        seats = [seat for seat in (0, 1) if seen[seat]]  # in a game of one move the second seat never decides
        steps = min(len(seen[seat]) for seat in seats)
        arrays = [np.stack([np.stack(held[seat][:steps]) for seat in seats], axis=1) for held in (seen, begins, masks)]
        return cls(arrays[0], arrays[1], _no_memory(trained.policy, len(seats)), arrays[2])

    def slots(self, chosen: list[int], action_mask: np.ndarray | None, steps: int | None = None) -> ObservationSample:
        """Return the first `steps` of the `chosen` slots, with those of `action_mask` bool [T, N, A], or no masks."""
        return ObservationSample(
            map_tree(lambda leaf: leaf[:steps, chosen], self.observation),
            self.begins[:steps, chosen],
            {name: part[chosen] for name, part in self.memory.items()},
            None if action_mask is None else action_mask[:steps, chosen],
        )

    def write(self, file: Path, policy: Policy) -> None:
        """Write `file`, whole or not at all. Raises OSError."""
        write_whole(file, self.to_bytes(policy))

    def to_bytes(self, policy: Policy) -> bytes:
        """Return the content of the file."""
        parts = SpaceTree(policy.observation_space, "observation").flatten(self.observation)
        named = {"observation": parts} if not isinstance(parts, dict) else _under("observation/", parts)
        held = {**named, "begins": self.begins, **_under("memory/", self.memory)}
        if self.action_mask is not None:
            held["action_mask"] = self.action_mask
        data: bytes = safetensors.numpy.save({name: np.ascontiguousarray(part) for name, part in held.items()})
        return data

    @classmethod
    def read(cls, file: Path, policy: Policy) -> ObservationSample:
        """Read a sample that `write` has written to `file`.

        Raises CheckpointError for a file that is missing, damaged, or of other spaces.
        """
        try:
            held = safetensors.numpy.load_file(file)
            begins = held["begins"]
            tree = SpaceTree(policy.observation_space, "observation")
            if tree.bare:
                observation = held["observation"]
            else:
                observation = tree.unflatten({name: held[f"observation/{name}"] for name in tree.leaves})
            memory = {name: held[f"memory/{name}"] for name in policy.network.memory}
            mask = held.get("action_mask")
        except (OSError, SafetensorError, KeyError, IndexError) as error:
            raise CheckpointError(f"{file}: holds no recorded observations of this policy ({error!r})") from None
        wrong = problems(spec_of(policy.observation_space), observation, begins.shape, "observation")
        shapes = {name: part.shape[1:] for name, part in memory.items()}
        if shapes != policy.network.memory:
            wrong.append(f"memory is {shapes}, and the policy's {policy.network.memory}")
        if wrong or begins.ndim != 2 or not begins.size:
            raise CheckpointError(f"{file}: {'; '.join(wrong) or 'holds no steps of slots'}")
        if mask is not None and mask.shape[:2] != begins.shape:
            raise CheckpointError(f"{file}: action_mask is {list(mask.shape)}, and begins {list(begins.shape)}")
        return cls(observation, begins, memory, mask)


def _no_memory(policy: Policy, slots: int) -> dict[str, np.ndarray]:
    return {name: part.numpy() for name, part in policy.initial_memory(slots).items()}


def _under(prefix: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": part for name, part in parts.items()}
