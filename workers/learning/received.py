"""Calls of the learn task on their way through an update: what is used of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agents.trajectories import Trajectory, TrajectorySpec
from warren.errors import WireError
from workers.learning.data_source import Arrived, UpdateData
from workers.runtime.segment_ledger import LEARNED


class Received:
    """The payloads of `calls`; each call gives one payload or a list of them.

    `became` says of each payload what was made of it, as Settlement.add takes it. `refuse` is called with each that
    cannot be used, and what is wrong with it.
    """

    def __init__(self, calls: Sequence[Any], refuse: Callable[[Any, Exception], None]) -> None:
        self._calls, self._refuse = calls, refuse
        self._errors: dict[int, Exception] = {}  # index of a call -> what is wrong with the last bad payload in it
        self._used: set[int] = set()  # indices of calls of which something was not refused
        self.became: list[tuple[Any, ...]] = []

    def read(self, spec: TrajectorySpec, take: Callable[[Arrived], str | None]) -> None:
        """Hand each trajectory to `take`, which keeps it and gives None, or says as what all of it is dropped.

        What is not as `spec` says, or lacks what `take` needs, is refused.
        """
        for index, payload in self._payloads():
            try:
                arrived = Arrived(index, payload, Trajectory.from_dict(payload["trajectory"], spec))
                kind = take(arrived)
            except (WireError, KeyError, TypeError) as error:
                self._refused(index, payload, error)
                continue
            if kind is not None:
                self.drop([arrived], kind)

    def drop(self, all_arrived: Iterable[Arrived], kind: str) -> None:
        """Nothing of them is learned from; their calls are used."""
        for arrived in all_arrived:
            self.became.append((kind, arrived.payload))
            self._used.add(arrived.call)

    def learned(self, batch: UpdateData, refused: Mapping[int, Exception]) -> None:
        """An update was made on `batch` but for those `refused`, by their place in it."""
        for place, arrived in enumerate(batch.arrived):
            if place in refused:
                self._refused(arrived.call, arrived.payload, refused[place])
            else:
                self._used.add(arrived.call)
                self.became.append((LEARNED, arrived.payload, arrived.trajectory.num_steps))

    def outcomes(self) -> list[Exception | None]:
        """Of each call: None, or its error where nothing of it could be used."""
        return [None if index in self._used else self._errors.get(index) for index in range(len(self._calls))]

    def _payloads(self) -> Iterator[tuple[int, Any]]:
        """(index of the call, payload)."""
        for index, call in enumerate(self._calls):
            for payload in call if isinstance(call, list) else [call]:
                yield index, payload

    def _refused(self, call: int, payload: Any, error: Exception) -> None:
        self._refuse(payload, error)
        self._errors[call] = error
        self.became.append(("refused", payload))
