"""Which segment an update failed on, so that those beside it are learned from all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from agents.segments import Segment

Update = Callable[[Sequence[Segment]], Any]


def faulty(segments: Sequence[Segment], new_update: Callable[[], Update]) -> dict[int, Exception]:
    """Index -> what is wrong with it, of the segments that an update of all has failed on.

    `new_update` gives the update of a learner like the one that failed, with weights that nobody uses. A segment is at
    fault that fails alone; where each alone is learned from, those are that differ in shape from most. Empty where all
    fail alone, or none stands out: then the failure is not one segment's.
    """
    if len(segments) == 1:
        return {}
    found: dict[int, Exception] = {}
    for index, segment in enumerate(segments):
        try:
            new_update()([segment])
        except Exception as error:
            found[index] = error
    if not found:
        kinds = [_kind(segment) for segment in segments]
        usual, many = Counter(kinds).most_common(1)[0]
        if 2 * many > len(segments):
            found = {
                index: ValueError(f"it has {kind}, the others {usual}")
                for index, kind in enumerate(kinds)
                if kind != usual
            }
    return found if len(found) < len(segments) else {}


def _kind(segment: Segment) -> str:
    """Names, types and shapes of the fields, those of time and of the number of environments left out."""
    arrays = {name: value for name, value in segment.to_dict().items() if hasattr(value, "dtype")}
    return ", ".join(f"{name} {value.dtype} {list(value.shape[2:])}" for name, value in sorted(arrays.items()))
