"""Whatever a sender of any version may send comes out as it went in."""

from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from fleetlight.notifications.registry import parse_payload
from fleetlight.notifications.versioned import VERSION_KEY
from tests.property.payload_strategies import PAYLOADS, wrapped_payloads
from tests.support.examples import examples


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.sampled_from(list(PAYLOADS.values())).flatmap(wrapped_payloads))
def test_any_version_of_any_payload_is_equal_after_a_round_trip(wrapped: dict[str, Any]) -> None:
    payload = parse_payload(wrapped)
    assert payload.wrap() == wrapped
    assert payload.sent_version == wrapped[VERSION_KEY]


@given(st.datetimes(timezones=st.just(UTC)))
def test_any_time_survives_the_wire(moment: datetime) -> None:
    heartbeat = PAYLOADS["fleetlight", "CellHeartbeatPayload"]
    sent = heartbeat(cell_uuid="7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69", sequence=1, at=moment)
    assert heartbeat.unwrap(sent.wrap()) == sent
