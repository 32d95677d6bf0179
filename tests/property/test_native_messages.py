"""The short way of reading a native cell's message says what the general way says, or nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.manager.operations.simulation.simulated_instances import new_instance
from fleetlight.notifications.envelope import Notification, decode, encode
from fleetlight.notifications.errors import NotificationError
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.registry import parse_payload
from fleetlight.notifications.versioned import Wrapped
from fleetlight.resources.fields import Record
from tests.property.payload_strategies import JSON_VALUES, wrapped_payloads
from tests.support.examples import examples
from tests.support.memory.memory_cell import NOW, MemoryCell

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def _body(payload: Wrapped) -> bytes:
    sent = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    return encode(Notification("instance.update", payload, "fleetlight-cell:one", "INFO", sent, "an-id"))


def _read_generally(body: bytes) -> Record | None:
    try:
        return from_payload(parse_payload(decode(body).payload))
    except NotificationError:
        return None


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


@st.composite
def _damaged(draw: st.DrawFn) -> Wrapped:
    """A payload with one value replaced by another, or removed."""
    payload: Wrapped = draw(wrapped_payloads(FullInstancePayload))
    container, key = draw(st.sampled_from(list(_places(payload))))
    if draw(st.booleans()):
        container[key] = draw(JSON_VALUES | st.floats(allow_nan=False, allow_infinity=False) | st.just("2026-11-21"))
    else:
        del container[key]
    return payload


@given(st.integers(0, 2**32))
def test_what_a_cell_sends_is_read_the_short_way(seed: int) -> None:
    cell = MemoryCell()
    message = cell.create(**new_instance(Random(seed), "one", created_at=NOW))
    [row] = cell.rows.values()
    assert read_record(message.body) == row.record == _read_generally(message.body)


@settings(max_examples=examples(50), suppress_health_check=_SLOW)
@given(wrapped_payloads(FullInstancePayload))
def test_short_way_reads_what_the_general_way_reads_or_leaves_it(payload: Wrapped) -> None:
    body = _body(payload)
    record = read_record(body)
    assert record is None or record == _read_generally(body)


@settings(max_examples=examples(100), suppress_health_check=_SLOW)
@given(_damaged())
def test_short_way_never_reads_what_the_general_way_refuses(payload: Wrapped) -> None:
    body = _body(payload)
    record = read_record(body)
    assert record is None or record == _read_generally(body)
