"""Calls of groups that share a forward pass, sorted into new, repeated and wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from warren import formats
from warren.errors import WireError

Call = Mapping[str, Any]  # this module reads its "group", "step" and "written_by"
Answer = dict[str, Any]
T = TypeVar("T")


class KnownGroup(Protocol):
    """A known group; `answer` is the answer to its decision `step`."""

    step: int
    answer: Answer


def answer_all(
    calls: Sequence[Call],
    known: Mapping[str, KnownGroup],
    read: Callable[[Call], T],
    decide: Callable[[Mapping[str, T]], None],
) -> list[Answer | Exception]:
    """Return an answer per call: the same again for a repeated call, the WireError for one that is refused.

    `decide` is given the results of `read` for all other calls, by group, if there are any; it puts their answers into
    `known`.
    """
    answers: list[Answer | Exception | None] = [None] * len(calls)
    asked: dict[str, T] = {}
    for index, call in enumerate(calls):
        group = known.get(call["group"])
        if group is not None and call["step"] == group.step:
            answers[index] = group.answer
        elif call["group"] not in asked:  # otherwise it came twice, and is answered below
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
