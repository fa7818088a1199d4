"""Spans of OpenTelemetry around calls, at their callers and in their workers, in one trace with the calls that follow.

    middleware=[tasks.tracing:Tracing]            # a setting of training and of runs from a file
    Serving(..., middleware=[Tracing()])          # in code of your own; Solver(middleware=[Tracing()])

The context travels in the header `traceparent` of a call (W3C trace context). OpenTelemetry's own variables decide
where spans go, and how many: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_TRACES_SAMPLER.
"""

from __future__ import annotations

import os
from typing import Any

from opentelemetry import context, trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tasks.middleware import Call, Middleware, current_call
from warren.errors import ConfigurationError, UnknownName
from warren.user_code import install

EXPORTERS = ("otlp", "console", "none")
SPAN = "opentelemetry"  # key of the span in a call's state

_propagator = TraceContextTextMapPropagator()


class Tracing(Middleware):
    """A span for each call that this process sends, and for each that it runs. `provider`: of the spans.

    By default it is the process's own, or made from OpenTelemetry's variables. Raises ConfigurationError for an
    exporter that does not exist.
    """

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider or _provider()
        self._tracer = self._provider.get_tracer("warren")

    def before_send(self, call: Call) -> None:
        """Begin the caller's span, as part of the call that is being served here, and send its context along."""
        serving = current_call()
        around = serving.state.get(SPAN) if serving is not None else None
        parent = context.get_current() if around is None else trace.set_span_in_context(around)
        if "traceparent" in call.headers:  # the caller's own trace
            parent = _propagator.extract(call.headers)
        span = self._tracer.start_span(f"{call.service} send", parent, SpanKind.CLIENT, _attributes(call))
        call.state[SPAN] = span
        _propagator.inject(call.headers, trace.set_span_in_context(span))

    def after_reply(self, call: Call, *, error: BaseException | None = None) -> None:
        """End the caller's span."""
        _end(call, error)

    def before_run(self, call: Call) -> None:
        """Begin the worker's span."""
        parent = _propagator.extract(call.headers)
        span = self._tracer.start_span(f"{call.service} run", parent, SpanKind.SERVER, _attributes(call))
        call.state[SPAN] = span

    def after_run(self, call: Call, *, result: Any = None, error: BaseException | None = None) -> None:
        """End the worker's span."""
        _end(call, error)

    def after_drop(self, call: Call, reason: str) -> None:
        """Record a span of a call that nobody needs any more."""
        self.before_run(call)
        call.state[SPAN].set_attribute("warren.dropped", reason)
        _end(call, None)

    def after_worker_shutdown(self, worker: str) -> None:
        """Export the spans that wait."""
        self._provider.force_flush()


def _attributes(call: Call) -> dict[str, Any]:
    role, _, method = call.service.partition(".")
    of_call = {"messaging.message.id": call.id, "rpc.system": "warren", "rpc.service": role, "rpc.method": method}
    return {**of_call, "warren.tried": call.tried}


def _end(call: Call, error: BaseException | None) -> None:
    span: Span | None = call.state.pop(SPAN, None)
    if span is None:
        return
    if error is not None:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"[:200]))
    span.end()


def _provider() -> Any:
    """Return the provider of this process: the one that is set, else one made from OpenTelemetry's variables."""
    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found
    run = os.environ.get("WARREN_RUN", "warren")
    name = os.environ.get("OTEL_SERVICE_NAME") or run
    made = TracerProvider(resource=Resource.create({SERVICE_NAME: name, "warren.run": run}))
    if (exporter := _exporter(os.environ.get("OTEL_TRACES_EXPORTER") or "otlp")) is not None:
        made.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(made)
    return made


def _exporter(name: str) -> SpanExporter | None:
    if name not in EXPORTERS:
        raise UnknownName("OTEL_TRACES_EXPORTER", name, EXPORTERS)
    if name == "none":
        return None
    if name == "console":
        return ConsoleSpanExporter()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        said = (
            f"OTEL_TRACES_EXPORTER: {error.name} is not installed; {install('opentelemetry')}, or use console or none"
        )
        raise ConfigurationError(said) from None
    return OTLPSpanExporter()
