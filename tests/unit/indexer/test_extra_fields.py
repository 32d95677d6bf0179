"""A producer of a newer minor version needs no newer indexer: what it adds is kept, and can be searched for."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.extra_fields import NO_KIND, SCHEMA_VIOLATION, Extra, described, merged, search_terms
from fleetlight.indexer.transform.batches import Batch
from fleetlight.indexer.transform.documents import ExternalChange, NativeChange
from fleetlight.indexer.transform.messages import interpret
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.registry import json_schema
from tests.support.fleets.documents import make_uuid
from tests.support.memory.memory_cell import CELL_UUID, NOW
from tests.support.played.newer_messages import newer_message

SCHEMAS = {"rack": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "weight": {"type": "number"}}
FIELDS = {"rack": "r7", "weight": 5, "colour": "red"}


def test_newer_field_with_a_schema_in_the_message_is_found_and_one_without_is_kept(tmp_path: Path) -> None:
    change = interpret(newer_message(FIELDS, SCHEMAS), 3)
    assert isinstance(change, NativeChange)
    batch = Batch(CELL_UUID, now=NOW)
    batch.add(change)
    writer = open_writer(IndexSettings(path=tmp_path / "index.db"))
    writer.prepare()
    assert writer.write(batch.documents(writer.read)).applied == 1
    [document] = writer.read([make_uuid(1)]).values()
    assert document.extra is not None
    assert document.extra.values == FIELDS
    assert writer.find_extra(search_terms("rack", "r7"), 10) == [make_uuid(1)]
    assert writer.find_extra(search_terms("weight", "5.0"), 10) == [make_uuid(1)]
    assert writer.find_extra(search_terms("colour", "red"), 10) == []
    assert writer.count_extra_fields() == {"rack:text": 1, "weight:number": 1, "colour:-": 1}
    writer.close()


def test_schema_of_the_registry_describes_what_came_without_one(tmp_path: Path) -> None:
    schema = json_schema(FullInstancePayload)
    schema["properties"]["nova_object.data"]["properties"]["rack"] = {"type": "string"}
    path = tmp_path / "fleetlight" / "InstancePayload-1.9.json"
    change = interpret(newer_message({"rack": "r7"}), 3)
    assert isinstance(change, NativeChange)
    assert change.extra is not None
    assert described(change.extra, tmp_path).terms == []
    path.parent.mkdir()
    path.write_text(json.dumps(schema))
    assert described(change.extra, tmp_path).terms == ["rack=r7"]
    path.write_text("[]")
    assert described(change.extra, tmp_path).terms == []


def test_notification_without_a_revision_adds_to_what_is_known() -> None:
    change = interpret(newer_message({"rack": "r7"}, SCHEMAS), None)
    assert isinstance(change, ExternalChange)
    old = Extra("fleetlight/InstancePayload-1.8", {"weight": 5, "rack": "r6"}, {"weight": "number", "rack": "text"})
    both = merged(old, change.extra)
    assert both == Extra(
        "fleetlight/InstancePayload-1.9", {"weight": 5, "rack": "r7"}, {"weight": "number", "rack": "text"}
    )
    assert merged(old, None) is old
    assert merged(None, old) is old


def test_message_of_a_known_version_has_nothing_extra() -> None:
    change = interpret(newer_message({}, version=FullInstancePayload.VERSION), 3)
    assert isinstance(change, NativeChange)
    assert change.extra is None


@pytest.mark.parametrize(
    ("schema", "value", "terms"),
    [
        ({"type": "string"}, "a b=c", ["x=a b=c"]),
        ({"type": "string"}, 7, None),
        ({"type": "string"}, "a" * 9000, None),
        ({"type": "integer"}, 7, ["x=7"]),
        ({"type": "integer"}, True, None),
        ({"type": "integer"}, 7.5, None),
        ({"type": "number"}, 7.5, ["x=7.5"]),
        ({"type": "number"}, 10**400, None),
        ({"type": "boolean"}, False, ["x=false"]),
        ({"type": ["string", "null"]}, None, []),
        ({"type": "array", "items": {"type": "string"}}, ["a", "b"], ["x=a", "x=b"]),
        ({"type": "array", "items": {"type": "string"}}, ["a", 1], None),
        ({"type": "object"}, {"a": 1}, None),
        ({"type": "integer"}, "7", None),
        ("no schema", "a", None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "a", None),
    ],
)
def test_value_is_indexed_only_as_its_schema_says(schema: Any, value: Any, terms: list[str] | None) -> None:
    change = interpret(newer_message({"x": value}, {"x": schema}), 3)
    assert isinstance(change, NativeChange)
    assert change.extra is not None
    assert change.extra.values == {"x": value}
    assert change.extra.terms == (terms or [])
    kind = change.extra.fields[0].removeprefix("x:")
    assert (kind == NO_KIND or kind.startswith(SCHEMA_VIOLATION)) is (terms is None)
    assert bool(change.extra.schema_violations) is kind.startswith(SCHEMA_VIOLATION)
