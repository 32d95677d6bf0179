"""Spans of requests for OpenTelemetry: the API's answer, the job, the way over outbox and bus, and indexing.

The trace's id is the UUID of the request id, and its first half is the id of the answer's span. So up to the relay a
change carries its trace without further data; from there the message has a header of W3C Trace Context. Only a process
that sends traces imports this module.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from threading import local
from uuid import UUID

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fleetlight.bus.bus import Delivery, Message
from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER, TRACE_HEADER
from fleetlight.notifications.envelope import request_id_of

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_ALL_BITS = (1 << 128) - 1
_REQUEST = "req-"
_NS_PER_US = 1000
# The most changes kept of a cell that are written and not searchable yet; the oldest are dropped.
_MOST_WRITTEN = 10_000
_propagator = TraceContextTextMapPropagator()
_new_span_id = RandomIdGenerator().generate_span_id

Attributes = Mapping[str, str | int | bool]


class GivenIds(IdGenerator):
    """Returns ids that were set before for the next span of a thread."""

    def __init__(self) -> None:
        self._next = local()

    def set_next(self, trace_id: int, span_id: int) -> None:
        self._next.ids = trace_id, span_id

    def generate_trace_id(self) -> int:
        trace_id: int = self._next.ids[0]
        return trace_id

    def generate_span_id(self) -> int:
        span_id: int = self._next.ids[1]
        return span_id


class Traces:
    """Makes the spans of a process, each after the end of what it covers; any thread may call. Times are microseconds.

    provider: with `ids`. Its sampler decides once for each trace without a parent, by the id, so all processes agree.
    """

    def __init__(self, provider: TracerProvider, ids: GivenIds) -> None:
        self._ids = ids
        self._sampler, provider.sampler = provider.sampler, ALWAYS_ON
        self._tracer = provider.get_tracer("fleetlight")
        self._written: dict[str, deque[tuple[Delivery, int, int]]] = {}

    def trace_of(self, request_id: str | None) -> int | None:
        """The id of a request's trace; None if it is not sampled, or the request id is not a random UUID.

        Samplers compare the low 64 bits, two of which are fixed in a UUID. The id is shifted for them, so that the low
        56 of these are random, as W3C Trace Context (level 2) requires.
        """
        trace_id = _uuid_of(request_id)
        if trace_id is None:
            return None
        decision = self._sampler.should_sample(None, trace_id << 8 & _ALL_BITS, "request").decision
        return trace_id if decision is Decision.RECORD_AND_SAMPLE else None

    def answered(
        self,
        trace_id: int,
        name: str,
        began_at: int,
        ended_at: int,
        attributes: Attributes,
        *,
        has_failed: bool,
        caller: str | None,
    ) -> None:
        """Record that a request was answered. caller: its header of W3C Trace Context, whose span is linked."""
        span = _span_of(caller)
        links = [Link(span)] if span is not None else []
        ids = SpanContext(trace_id, _answer_of(trace_id), is_remote=False)
        times = began_at, ended_at
        self._record(name, SpanKind.SERVER, ids, times, attributes, links=links, has_failed=has_failed)

    def job_ended(
        self,
        request_id: str | None,
        name: str,
        began_at: int,
        ended_at: int,
        attributes: Attributes,
        *,
        has_failed: bool,
    ) -> None:
        """Record the end of a job that a request had accepted at `began_at`."""
        trace_id = self.trace_of(request_id)
        if trace_id is not None:
            ids, times = SpanContext(trace_id, _new_span_id(), is_remote=False), (began_at, ended_at)
            parent = _answer_of(trace_id)
            self._record(name, SpanKind.INTERNAL, ids, times, attributes, parent_id=parent, has_failed=has_failed)

    def begun(self, message: Message) -> Message:
        """Add the header with its span to a message that is to be published."""
        trace_id = self.trace_of(request_id_of(message.body))
        if trace_id is None:
            return message
        header = f"00-{trace_id:032x}-{_new_span_id():016x}-01"
        return replace(message, headers={**message.headers, TRACE_HEADER: header})

    def published(self, messages: Sequence[Message], committed_at: Sequence[int], began_at: int, ended_at: int) -> None:
        """Record that the bus has confirmed a batch of messages, whose changes were committed at these times."""
        for message, committed in zip(messages, committed_at, strict=True):
            span = _span_of(message.headers.get(TRACE_HEADER))
            if span is not None:
                attributes = {
                    **_about(message),
                    "messaging.batch.message_count": len(messages),
                    "fleetlight.outbox_wait_ms": (began_at - committed) // 1000,
                }
                parent = _answer_of(span.trace_id)
                self._record("publish", SpanKind.PRODUCER, span, (committed, ended_at), attributes, parent_id=parent)

    def written(self, cell_uuid: str, deliveries: Iterable[Delivery], received_at: int, written_at: int) -> None:
        """Record that a cell's messages with the header are in the index, but not searchable yet."""
        self._waiting(cell_uuid).extend((each, received_at, written_at) for each in deliveries)

    def searchable(self, cell_uuid: str, watermark: int, at: int) -> None:
        """Record that searches find all changes of a cell up to `watermark`."""
        waiting = self._waiting(cell_uuid)
        while waiting and int(waiting[0][0].headers[SEQUENCE_HEADER]) <= watermark:
            delivery, received_at, written_at = waiting.popleft()
            span = _span_of(delivery.headers[TRACE_HEADER])
            if span is not None:
                ids = SpanContext(span.trace_id, _new_span_id(), is_remote=False)
                self._record(
                    "index",
                    SpanKind.CONSUMER,
                    ids,
                    (received_at, at),
                    _about(delivery),
                    parent_id=span.span_id,
                    events={"written": written_at},
                )

    def _waiting(self, cell_uuid: str) -> deque[tuple[Delivery, int, int]]:
        # setdefault is atomic, unlike a defaultdict: the writing and the refreshing thread may both come first.
        return self._written.setdefault(cell_uuid, deque(maxlen=_MOST_WRITTEN))

    def _record(
        self,
        name: str,
        kind: SpanKind,
        ids: SpanContext,
        times: tuple[int, int],
        attributes: Attributes,
        *,
        parent_id: int | None = None,
        links: Sequence[Link] = (),
        events: Mapping[str, int] | None = None,
        has_failed: bool = False,
    ) -> None:
        context, (began_at, ended_at) = Context(), times
        if parent_id is not None:
            parent = SpanContext(ids.trace_id, parent_id, is_remote=True, trace_flags=_SAMPLED)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        self._ids.set_next(ids.trace_id, ids.span_id)
        span = self._tracer.start_span(name, context, kind, attributes, links, began_at * _NS_PER_US)
        for event, at in (events or {}).items():
            span.add_event(event, timestamp=at * _NS_PER_US)
        if has_failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(began_at, ended_at) * _NS_PER_US)


def _uuid_of(request_id: str | None) -> int | None:
    if request_id is None or not request_id.startswith(_REQUEST):
        return None
    try:
        uuid = UUID(request_id.removeprefix(_REQUEST))
    except ValueError:
        return None
    return uuid.int if uuid.version == 4 else None


def _answer_of(trace_id: int) -> int:
    """The id of the answer's span."""
    return trace_id >> 64


def _span_of(header: object) -> SpanContext | None:
    """The span that a header of W3C Trace Context names; None if it is missing or invalid."""
    if not isinstance(header, str):
        return None
    span = get_current_span(_propagator.extract({TRACE_HEADER: header}, Context())).get_span_context()
    return span if span.is_valid else None


def _about(message: Message | Delivery) -> dict[str, str | int | bool]:
    names = {
        CELL_HEADER: "fleetlight.cell",
        SEQUENCE_HEADER: "fleetlight.sequence",
        RESOURCE_HEADER: "fleetlight.instance",
        REVISION_HEADER: "fleetlight.revision",
    }
    return {name: message.headers[header] for header, name in names.items() if header in message.headers}
