"""The Sampler of a served run's actor: decides for groups of environments that are stepped elsewhere.

A call is the question of one group, a table:

    group         str: its name
    step          int: 0, 1, 2, ...: number of the group's decision; a repeated call is answered as before
    observation   tree [N, ...]
    action_mask   tree of bool [N, A], of environments that say which actions are legal; else None
    outcome       the outcome of decision step - 1, None if step is 0:
        reward, terminated, truncated     float32, bool, bool [N]
        cut       None, or of episodes that ran out of time: slots int64 [K], the last observations [K, ...], and their
                  masks bool [K, A], None if there are no masks
        episodes  float32 [K, 2 + C], those that finished
    written_by    the release of the env runner, and the format of its messages (warren/formats.py)
    memory        name -> float32 [N, ...], the policy's after decision step - 1; None if this actor is to know it

The answer: "action" [N, ...] as the action space has it; "memory" if it travels; "leave" if the group is to ask for an
actor again, so that actors which came later get their share. The value of "leave" is the service to ask, "" for
actor.join; with it the memory always travels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.networks import Memory
from agents.policies import Policy
from agents.policies.explorers import at_rest, joined
from agents.trajectories import Trajectory, concatenate
from agents.trees import ArraySpec, problems
from warren.errors import WireError
from warren.trees import Tree, leaves, map_tree, take
from workers.rollout.sampler import SamplerClosed, load_into
from workers.rollout.served.group_calls import Answer, Call, answer_all
from workers.rollout.served.group_trajectory import GroupTrajectory
from workers.runtime.timing import Timing

JOIN = "actor.join"  # the service that tells a group whom to ask: any actor of the run answers
IDLE = 600.0  # s without a call after which a group is forgotten: its env runner has gone
STAY = 10.0  # s after which a group is told to leave once its trajectory is complete
FLAGS = ArraySpec((), "bool")
NO_MASKS = (
    "it lacks the masks of where episodes were cut off, which env runners of older releases do not send; run all "
    "processes by one release of Warren"
)


@dataclass(slots=True)
class Group:
    """A known group. `answer`: the answer to decision `step`."""

    trajectory: GroupTrajectory
    memory: Memory
    drift: Tensor | None  # begins anew with another actor
    step: int
    answer: Answer
    came_at: float  # monotonic, like `used_at`
    used_at: float


@dataclass(slots=True)
class _Question:
    """A call to be decided on. `known`: its group, if the call follows the one answered last, else None."""

    call: Call
    slots: int
    known: Group | None
    memory: Memory
    drift: Tensor | None
    cut: tuple[np.ndarray, dict[str, Tree]] | None  # slots that were cut off, and the arrays kept of that moment


class ServedSampler:
    """A Sampler whose environments are elsewhere: `act` answers their calls, `collect` takes the trajectories.

    One thread calls `act`; others may call `load`, `collect` and `close`.
    """

    def __init__(
        self,
        policy: Policy,
        length: int,
        slots: int,
        seed: int,
        returns: int = 0,
        travelling: bool = False,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        fields: Collection[str] | None = None,
        legal_actions: bool = False,
    ) -> None:
        """`collect` takes `length` decisions of at least `slots` environments.

        `returns`: number of channels of the reward. `travelling`: answers carry the policy's memory, and calls bring it
        back. `fields`: those that the algorithm asks for, as in its Needs. `legal_actions`: calls carry their masks.
        """
        self.policy, self.version = policy, -1
        self._length, self._slots, self._travelling = length, slots, travelling
        self._spec = policy.spec(legal_actions, returns, fields)
        self._columns = 2 + returns
        self._generator = torch.Generator().manual_seed(seed)
        self._timing, self._clock = timing or Timing(), clock
        self._groups: dict[str, Group] = {}
        self._complete: list[Trajectory] = []
        self._weights = threading.Lock()
        self._changed = threading.Condition()  # notified of complete trajectories, a new version, closing
        self._closed = False

    # The Sampler's contract.

    def load(self, weights: Mapping[str, Tensor], version: int, behaviour: Mapping[str, float] | None = None) -> None:
        """See Sampler.load. Ignore weights older than those loaded: two threads may bring them."""
        with self._weights:
            if version <= self.version:
                return
            load_into(self.policy, weights, version, behaviour)
            self.version = version
        with self._changed:
            self._changed.notify_all()

    def collect(self, budget: int) -> Trajectory:
        """See Sampler.collect. Wait until enough groups have made enough decisions. Raises SamplerClosed."""
        assert budget == self._length
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting() >= self._slots)
            if self._closed:
                raise SamplerClosed
            taken: list[Trajectory] = []
            while sum(one.num_slots for one in taken) < self._slots:
                taken.append(self._complete.pop(0))
            self._changed.notify_all()
        return concatenate(taken)

    def close(self) -> None:
        """Answer no more calls, and wake the threads that wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _waiting(self) -> int:
        return sum(one.num_slots for one in self._complete)

    # Answering.

    @property
    def groups(self) -> int:
        """Number of known groups."""
        return len(self._groups)

    def act(self, calls: Sequence[Call]) -> list[Answer | Exception]:
        """Return an answer per call, by one forward pass for all; a wrong call gets a WireError.

        Waits while there are no weights, and while nobody takes the complete trajectories: there are more of them than
        groups, and more than 2. Raises SamplerClosed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (self.version >= 0 and len(self._complete) <= max(len(self._groups), 2))
            )
            if self._closed:
                raise SamplerClosed("this actor ends")
        began = time.perf_counter()
        answers = answer_all(calls, self._groups, self._question, lambda asked: self._decide(list(asked.values())))
        self._timing.add("policy: decide", time.perf_counter() - began)
        return answers

    def _question(self, call: Call) -> _Question:
        """Return the question that a call asks, changing nothing. Raises WireError if it does not fit the spaces."""
        slots, known = self._checked(call), self._groups.get(call["group"])
        outcome = call["outcome"]
        if known is not None and (call["step"] != known.step + 1 or outcome is None or known.trajectory.slots != slots):
            known = None  # another actor decided in between: a new trajectory begins
        given = call["memory"]
        if given is not None:
            memory = {name: torch.tensor(part, device=self.policy.device) for name, part in given.items()}
        else:
            memory = self.policy.initial_memory(slots) if known is None else known.memory
        cut = None
        if known is not None and outcome["cut"] is not None and self._spec.keeps_cuts:
            rows, last, legal = _cut(outcome)
            cut = rows, {"observation": last, "action_mask": legal}
            if self._spec.cut:
                with self._weights:
                    cut[1]["value"] = self.policy.value(last, {name: part[rows] for name, part in memory.items()})
        drift = None if known is None else known.drift
        if outcome is not None:
            begins = outcome["terminated"] | outcome["truncated"]
            memory, drift = self.policy.begin(memory, begins), at_rest(drift, begins)
        return _Question(call, slots, known, memory, drift, cut)

    def _checked(self, call: Call) -> int:
        """Check a call; return its number of environments. Raises WireError."""
        observation, outcome, spec = call["observation"], call["outcome"], self._spec
        slots = len(next(leaf for _, leaf in leaves(observation)))
        wrong = problems(spec.observation, observation, (slots,), "observation")
        if spec.action_mask is not None:
            wrong += problems(spec.action_mask, call["action_mask"], (slots,), "action_mask")
        if outcome is not None:
            wrong += problems(spec.reward, outcome["reward"], (slots,), "reward")
            for name in ("terminated", "truncated"):
                wrong += problems(FLAGS, outcome[name], (slots,), name)
            if outcome["cut"] is not None:
                rows, last, legal = _cut(outcome)
                wrong += problems(spec.observation, last, (len(rows),), "cut")
                if spec.action_mask is not None and legal is None:
                    wrong.append(NO_MASKS)
                elif spec.action_mask is not None:
                    wrong += problems(spec.action_mask, legal, (len(rows),), "cut action_mask")
            if outcome["episodes"].shape[1:] != (self._columns,):
                wrong.append(f"episodes must be [K, {self._columns}], is {list(outcome['episodes'].shape)}")
        if call["memory"] is not None:
            wrong += problems(spec.memory, dict(call["memory"]), (slots,), "memory")
        if wrong:
            raise WireError(f"group {call['group']}: {'; '.join(wrong)}")
        return slots

    def _decide(self, asked: Sequence[_Question]) -> None:
        """Decide by one forward pass; then update all groups at once."""
        observation = _joined([one.call["observation"] for one in asked])
        mask = None if self._spec.action_mask is None else _joined([one.call["action_mask"] for one in asked])
        memory = {name: torch.cat([one.memory[name] for one in asked]) for name in asked[0].memory}
        with self._weights:
            version = self.version
            values = self._spec.values_steps
            self.policy.drift = joined([one.drift for one in asked], [one.slots for one in asked])
            acted = self.policy.step(observation, memory, "sample", mask, generator=self._generator, value=values)
            drift = self.policy.drift
        actions = self.policy.env_action(acted.action)
        completed: list[Trajectory] = []
        first, now = 0, self._clock()
        for one in asked:
            rows = slice(first, first + one.slots)
            first += one.slots
            extras, after = take(acted.extras, rows), take(acted.memory, rows)
            trajectory = self._followed(one, extras.get("value"), completed)
            call, legal = one.call, None if mask is None else take(mask, rows)
            trajectory.decide(call["observation"], take(acted.action, rows), extras, version, legal)
            answer: Answer = {"action": take(actions, rows)}
            came_at = now if one.known is None else one.known.came_at
            if trajectory.decided == 1 and now - came_at > STAY:
                answer["leave"], came_at = "", now  # it may be dealt to this actor again
            if self._travelling or "leave" in answer:
                answer["memory"] = _numbers(after)
            self._groups[one.call["group"]] = Group(
                trajectory, after, None if drift is None else drift[rows], one.call["step"], answer, came_at, now
            )
        if completed:
            with self._changed:
                self._complete += completed
                self._changed.notify_all()

    def _followed(self, one: _Question, value: np.ndarray | None, completed: list[Trajectory]) -> GroupTrajectory:
        """Return the trajectory of the decision; append the one before to `completed` if it is complete now."""
        if one.known is not None:
            trajectory, outcome = one.known.trajectory, one.call["outcome"]
            trajectory.follow(
                outcome["reward"], outcome["terminated"], outcome["truncated"], one.cut, outcome["episodes"]
            )
            if not trajectory.full:
                return trajectory
            completed.append(trajectory.complete(one.call["observation"], value, one.call.get("action_mask")))
        return GroupTrajectory(self._spec, self._length, one.slots, _numbers(one.memory))

    def forget_idle(self) -> int:
        """Drop the groups that have not called for IDLE s; return how many. For the thread of `act`."""
        before = self._clock() - IDLE
        idle = [name for name, group in self._groups.items() if group.used_at < before]
        for name in idle:
            del self._groups[name]
        return len(idle)


def _cut(outcome: Mapping[str, Any]) -> tuple[np.ndarray, Tree, Tree | None]:
    """Return the slots that were cut off, their last observation and their mask; messages of format 1 have no mask."""
    rows, last, *legal = outcome["cut"]
    return rows, last, legal[0] if legal else None


def _joined(trees: Sequence[Tree]) -> Tree:
    return trees[0] if len(trees) == 1 else map_tree(lambda *parts: np.concatenate(parts), *trees)


def _numbers(memory: Memory) -> dict[str, np.ndarray]:
    return {name: part.cpu().numpy() for name, part in memory.items()}
