"""Calls of groups that wait for one forward pass: which are new, which came again, and which are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from warren import formats
from warren.errors import WireError

Call = Mapping[str, Any]  # "group" and "step" of it are read here
Answer = dict[str, Any]
T = TypeVar("T")


class KnownGroup(Protocol):
    """A known group; `answer` is that to its decision `step`."""

    step: int
    answer: Answer


def answer_all(
    calls: Sequence[Call],
    known: Mapping[str, KnownGroup],
    read: Callable[[Call], T],
    decide: Callable[[Mapping[str, T]], None],
) -> list[Answer | Exception]:
    """Return an answer per call: for one that comes again the same, for one that `read` refuses the WireError.

    `decide` is given what `read` made of the others, by group, if there are any; then `known` has their answers.
    """
    answers: list[Answer | Exception | None] = [None] * len(calls)
    asked: dict[str, T] = {}
    for index, call in enumerate(calls):
        group = known.get(call["group"])
        if group is not None and call["step"] == group.step:
            answers[index] = group.answer
        elif call["group"] not in asked:  # else it came twice, and is answered below
            try:
                if refusal := formats.refusal(f"group {call['group']}", call.get("written_by"), formats.MESSAGES):
                    raise WireError(refusal)
                asked[call["group"]] = read(call)
            except WireError as error:
                answers[index] = error
    if asked:
        decide(asked)
    return [
        known[call["group"]].answer if answer is None else answer for call, answer in zip(calls, answers, strict=True)
    ]
