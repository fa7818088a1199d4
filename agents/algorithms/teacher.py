"""A teacher: a frozen policy that KL(teacher || student) in the loss keeps a student near to.

The direction is that of distillation (Rusu et al. 2016, eq. 3) and of AlphaStar (Vinyals et al. 2019, methods): the
student has to find likely whatever the teacher does. The divergence is computed for each part of an action by itself,
at the steps in which the student has acted, over the actions that were legal there.

    class MyAlgorithm(GradientAlgorithm[Config]):
        def update(self, trajectories):
            batch = Batch(self.policy, trajectories)
            lessons = self.lessons(batch)                       # once an update, without gradients
            ...
            loss = self.with_teacher(loss, terms, said.output, lessons)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from agents.algorithms.anchors import LESSON, said_by
from agents.algorithms.settings import AlgorithmConfig, Allowed, Scheduled
from agents.operators.losses import teacher_loss
from agents.operators.schedules import Linear
from agents.policies import Distribution, Policy
from agents.spaces import SpaceTree
from warren.errors import ConfigurationError, unknown_name


@dataclass(frozen=True)
class TeacherConfig(AlgorithmConfig):
    """Settings of algorithms that can have a teacher; without `teacher` the other settings have no effect."""

    teacher: str | None = None  # a run folder, a checkpoint, or in a league a model of its pool, PLAYER@VERSION
    teacher_coefficient: Scheduled = 1.0  # weight of KL(teacher || student) in the loss
    teacher_anneal_steps: int | None = None  # environment steps over which this falls linearly to 0; null: it stays
    teacher_heads: Mapping[str, float] | None = None  # factors of an action's parts, by name; null: 1 each

    def scheduled(self) -> tuple[str, ...]:
        return (*super().scheduled(), "teacher_coefficient")

    def allowed(self) -> Allowed:
        return super().allowed() | {
            "teacher": ("a name or null", self.teacher != ""),
            "teacher_coefficient": ("at least 0", self.all_of("teacher_coefficient", lambda x: x >= 0)),
            "teacher_anneal_steps": (
                "at least 1 or null",
                self.teacher_anneal_steps is None or self.teacher_anneal_steps >= 1,
            ),
            "teacher_heads": (
                "a table of numbers, at least 0 each",
                all(isinstance(factor, int | float) and factor >= 0 for factor in (self.teacher_heads or {}).values()),
            ),
        }

    def coefficient(self, steps: int, progress: float = 0.0) -> float:
        """Return the coefficient after `steps` environment steps, at `progress` in [0, 1] of the run."""
        coefficient = self.schedules["teacher_coefficient"].at(steps, progress)
        over = self.teacher_anneal_steps
        return coefficient if over is None else coefficient * Linear(1.0, 0.0, over)(steps)


def check_heads(name: str, config: TeacherConfig, student: Policy) -> None:
    """Raise ConfigurationError for factors of parts that the student's actions do not have."""
    parts = SpaceTree(student.action_space, "action")
    known = [] if parts.bare else list(parts.leaves)
    remedy = "" if known else f"an action of {student.action_space} has one part, whose factor is teacher_coefficient"
    wrong = [part for part in config.teacher_heads or {} if part not in known]
    if wrong:
        raise ConfigurationError(
            [unknown_name(f"part in teacher_heads of {name}", one, known, remedy) for one in wrong]
        )


def check_teacher(name: str, teacher: Policy, student: Policy, factors: Mapping[str, float] | None = None) -> None:
    """Raise ConfigurationError where `student` cannot learn from `teacher`, which is called `name` in messages.

    `factors` by an action's part: those without one, or with 0, are not learned; None: all are.
    """
    problems = [
        f"teacher {name}: its {kind} space is {theirs}, the student's {ours}; name one trained on the same game"
        for kind, theirs, ours in (
            ("observation", teacher.learning_space, student.learning_space),  # it may act by privileged observations
            ("action", teacher.action_space, student.action_space),
        )
        if theirs != ours
    ]
    if not problems:
        ours = _distributions(student)
        problems += [
            f"teacher {name}: its actions{f' {part!r}' if part else ''} are drawn from a {theirs.__name__}, the "
            f"student's from a {ours[part].__name__}; give both the same network.box_actions"
            for part, theirs in _distributions(teacher).items()
            if theirs is not ours[part] and (factors is None or factors.get(part))
        ]
    if teacher.has_memory:  # trajectories do not hold a teacher's memory
        problems.append(f"teacher {name} has a network with a memory; a teacher has to have one without (no `core`)")
    if problems:
        raise ConfigurationError(problems)


def _distributions(policy: Policy) -> dict[str, type[Distribution]]:
    """Return the class of the distribution over each part of an action, by its name: "" for an action of one part."""
    return {part: type(one) for part, one in policy.distribution.named_parts()}


def imitation(
    student: Policy, output: Any, columns: Mapping[str, Tensor], factors: Mapping[str, float] | None
) -> Tensor | None:
    """Return the sum over heads of factor * E[KL(teacher || student)], with gradients; None without lessons.

    `output` is the student's own at the steps of `columns`; `factors` by head, None: 1 each.
    """
    taught = said_by(LESSON, columns)
    if taught is None:
        return None
    divergence = student.kl(taught, student.statistics(output))
    return teacher_loss(divergence, dict.fromkeys(divergence, 1.0) if factors is None else factors)
