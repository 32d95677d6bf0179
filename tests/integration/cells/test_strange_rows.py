"""Whatever is written to a cell: a scan, which fills the index, says what a page of a list says."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.writing.rereading import RenderedRows
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.registry import parse_payload
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.payload_strategies import JSON_VALUES, wrapped_payloads
from tests.support.examples import examples
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.oracles.shown_items import shown_items

pytestmark = pytest.mark.no_rerun

_STRANGE_TEXTS = ("\u2028\u2029\x01\x1f\x7f", "]", '"]', '["', "\\", "\\u0000", "\ufeff", "😀\ue000\uffff", "null", "")
_STRANGE_NUMBERS = (1e308, 5e-324, -0.0, 0.1, 1e16, 1e22, 1e23, 1.0, 2**53 + 1, 2**63 - 1, -(2**63))
_numbers = count(1)


def without_nul(value: Any) -> Any:
    """The same without what no database can hold."""
    match value:
        case str():
            return value.replace("\0", "")
        case dict():
            return {without_nul(name): without_nul(item) for name, item in value.items()}
        case list():
            return [without_nul(item) for item in value]
        case _:
            return value


@st.composite
def strange_records(draw: st.DrawFn) -> dict[str, Any]:
    """Values for an instance: whatever the contract of its announcement lets through."""
    record = from_payload(parse_payload(draw(wrapped_payloads(FullInstancePayload))))
    texts = st.sampled_from(_STRANGE_TEXTS) | st.text(st.characters(codec="utf-8"), max_size=4)
    values = JSON_VALUES | st.sampled_from(_STRANGE_NUMBERS) | texts
    objects = st.dictionaries(texts, values | st.lists(values, max_size=2), max_size=3)
    record |= draw(
        st.fixed_dictionaries(
            {
                "display_name": st.none() | texts,
                "pinned_availability_zone": st.none() | texts,
                "metadata": st.dictionaries(texts, texts, max_size=2),
                "scheduler_hints": st.none() | objects,
                "image_properties": st.none() | objects,
                "tags": st.lists(texts, max_size=2),
                "user_data": st.none() | texts | st.just("IyEv" * 16_384),
            }
        )
    )
    return {name: without_nul(value) for name, value in record.items() if name != "uuid"}


@pytest.fixture
def adapter(cell: Cell) -> Iterator[NativeAdapter]:
    with closing(NativeAdapter(cell)) as adapter:
        yield adapter


@settings(max_examples=examples(15), suppress_health_check=[*HealthCheck])
@given(created=strange_records(), changed=strange_records())
def test_scan_says_what_a_page_says(
    operations: InstanceOperations, adapter: NativeAdapter, created: dict[str, Any], changed: dict[str, Any]
) -> None:
    uuid = operations.create({**created, "deleted": False, "uuid": make_uuid(next(_numbers))}).uuid
    assert_scanned_is_what_is_read(adapter, uuid)
    operations.update(uuid, changed)
    assert_scanned_is_what_is_read(adapter, uuid)


def assert_scanned_is_what_is_read(adapter: NativeAdapter, uuid: str) -> None:
    request = PageRequest(Eq("uuid", uuid), SortOrder.of(INSTANCE_FIELDS, ()), 2)
    [scanned], [row] = adapter.scan(request), adapter.read_page(request)
    assert scanned.revision == row.revision
    assert scanned.record == row.record
    assert shown_items(document_of(scanned).view) == shown_items(document_of(row).view)


def document_of(row: InstanceRow) -> Document:
    rows = RenderedRows([row])
    [document] = rows
    return document
