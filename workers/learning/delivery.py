"""The outcomes of calls of the learn task: which of their payloads an update uses, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agents.trajectories import Trajectory, TrajectorySpec
from warren import formats
from warren.errors import WireError
from workers.learning.data_source import Arrival, UpdateData
from workers.runtime.segment_ledger import LEARNED, STORED


class Delivery:
    """The payloads of `calls`; each call gives one payload or a list of them.

    `became`: what was done with each payload, as arguments of Settlement.add. `refuse` is called with each payload that
    cannot be used, and its error.
    """

    def __init__(self, calls: Sequence[Any], refuse: Callable[[Any, Exception], None]) -> None:
        self._calls, self._refuse = calls, refuse
        self._errors: dict[int, Exception] = {}  # index of a call -> what is wrong with the last bad payload in it
        self._used: set[int] = set()  # indices of calls of which something was not refused
        self.became: list[tuple[Any, ...]] = []

    def read(self, spec: TrajectorySpec, take: Callable[[Arrival], str | None]) -> None:
        """Pass each trajectory to `take`, which keeps it and returns None, or drops all of it and returns the reason.

        A payload that does not match `spec`, or lacks what `take` needs, is refused.
        """
        for index, payload in self._payloads():
            try:
                data = payload["trajectory"]
                if refusal := formats.refusal("segment", payload.get("written_by"), formats.MESSAGES):
                    raise WireError(refusal)
                arrived = Arrival(index, payload, Trajectory.from_dict(data, spec))
                kind = take(arrived)
            except (WireError, KeyError, TypeError) as error:
                self._refused(index, payload, error)
                continue
            if kind is not None:
                self.drop([arrived], kind)

    def drop(self, all_arrived: Iterable[Arrival], kind: str) -> None:
        """Count arrivals as used without an update; `kind` is the reason."""
        for arrived in all_arrived:
            self.became.append((kind, arrived.payload))
            self._used.add(arrived.call)

    def stored(self, all_arrived: Iterable[Arrival]) -> None:
        """Record that arrivals are in a replay, from which any number of updates may draw them."""
        self.drop(all_arrived, STORED)

    def learned(self, data: UpdateData, refused: Mapping[int, Exception]) -> None:
        """Record an update on `data`, except those `refused`: index in it -> error."""
        for index, arrived in enumerate(data.arrived):
            if index in refused:
                self._refused(arrived.call, arrived.payload, refused[index])
            else:
                self._used.add(arrived.call)
                self.became.append((LEARNED, arrived.payload, arrived.trajectory.num_steps))

    def outcomes(self) -> list[Exception | None]:
        """Return for each call None, or its error if nothing of it could be used."""
        return [None if index in self._used else self._errors.get(index) for index in range(len(self._calls))]

    def _payloads(self) -> Iterator[tuple[int, Any]]:
        """Yield (index of the call, payload)."""
        for index, call in enumerate(self._calls):
            for payload in call if isinstance(call, list) else [call]:
                yield index, payload

    def _refused(self, call: int, payload: Any, error: Exception) -> None:
        self._refuse(payload, error)
        self._errors[call] = error
        self.became.append(("refused", payload))
