"""Tests of traces: one trace has a caller, a service and its own calls, with errors; it is imported only if used."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.waiting import until

from tasks.service import Worker, service
from tasks.solver import Solver
from tasks.testing import serving
from tasks.tracing import Tracing
from warren.errors import RemoteFailure, UnknownName
from workers.leagues.client import LeagueClient


class Front(Worker):
    solver: Solver

    @service
    async def ask(self, number: int) -> int:
        answer: int = await self.solver.acall("back.double", number)
        return answer


class Back(Worker):
    @service(batch=4)
    def double(self, numbers: list[int]) -> list[int]:
        return [2 * number for number in numbers]

    @service
    def fail(self) -> None:
        raise ValueError("no such card")


class League(Worker):
    """A stand-in for the league: only the path of a request matters."""

    @service
    def learning(self) -> list[str]:
        return ["main"]


class Traced:
    """A tracer provider that keeps its spans."""

    def __init__(self) -> None:
        self.provider, self._kept = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracing = Tracing(self.provider)

    def spans(self, count: int) -> dict[str, Any]:
        """Wait until there are `count` spans; return them by name."""
        until(lambda: len(self._kept.get_finished_spans()) >= count)
        return {span.name: span for span in self._kept.get_finished_spans()}


def test_one_trace_leads_from_a_caller_through_a_service_to_the_call_that_it_makes() -> None:
    traced, front = Traced(), Front()
    with serving(front, Back(), middleware=[traced.tracing]) as run:
        front.solver = run.solver
        assert run.solver.call("front.ask", 4) == 8
        spans = traced.spans(4)
    way = ["front.ask send", "front.ask run", "back.double send", "back.double run"]
    assert len({spans[name].context.trace_id for name in way}) == 1
    for parent, child in itertools.pairwise(way):
        assert spans[child].parent.span_id == spans[parent].context.span_id
    assert spans["front.ask send"].parent is None and spans["back.double run"].kind is SpanKind.SERVER
    assert spans["back.double run"].attributes["rpc.method"] == "double"


def test_an_actors_request_and_the_leagues_answer_are_one_trace() -> None:
    traced = Traced()
    with serving(League(), middleware=[traced.tracing]) as run:
        client = LeagueClient.__new__(LeagueClient)
        client.holder, client._stopping, client._patience = "actor-0", SimpleNamespace(wait=bool), 60.0  # type: ignore[assignment]
        client._solver = run.solver
        assert client.learning() == ["main"]
        spans = traced.spans(2)
    sent, ran = spans["league.learning send"], spans["league.learning run"]
    assert ran.parent.span_id == sent.context.span_id and ran.context.trace_id == sent.context.trace_id


def test_traces_hold_errors_and_continue_callers_own() -> None:
    traced, theirs = Traced(), f"00-{'ab' * 16}-{'cd' * 8}-01"
    with serving(Back(), middleware=[traced.tracing]) as run:
        with pytest.raises(RemoteFailure):
            run.solver.options(headers={"traceparent": theirs}).call("back.fail")
        spans = traced.spans(2)
    assert {span.context.trace_id for span in spans.values()} == {int("ab" * 16, 16)}
    assert {span.status.status_code for span in spans.values()} == {StatusCode.ERROR}
    assert "no such card" in spans["back.fail run"].status.description


def test_concurrent_calls_of_a_loop_have_traces_of_their_own() -> None:
    traced = Traced()

    async def ask(solver: Solver) -> list[int]:
        return list(await asyncio.gather(*(solver.acall("back.double", number) for number in range(8))))

    with serving(Back(), middleware=[traced.tracing]) as run:
        assert asyncio.run(ask(run.solver)) == [0, 2, 4, 6, 8, 10, 12, 14]
        until(lambda: len(traced._kept.get_finished_spans()) == 16)
    assert len({span.context.trace_id for span in traced._kept.get_finished_spans()}) == 8


def test_an_unknown_exporter_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "jaegr")
    with pytest.raises(UnknownName, match="OTEL_TRACES_EXPORTER 'jaegr'"):
        Tracing()


def test_callers_and_workers_import_no_tracing() -> None:
    asked = "import sys, tasks.solver, tasks.worker.server; print('tasks.tracing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
