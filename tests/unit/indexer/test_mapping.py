"""The Elasticsearch mapping says the same as the field definitions, and as the payload on the wire."""

from datetime import datetime
from typing import Any, Literal, cast, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from fleetlight.indexer.backends.elasticsearch.mapping import index_settings, instance_mapping, progress_mapping, sizes
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS

ABOUT_THE_EVENT = {"request_id", "action_initiator_project", "action_initiator_user"}
INSIDE_OF_THE_FLAVOR = {"flavor_id", "memory_mb", "vcpus", "disk_usage"}
# A word on the wire, as Nova has it, and a value in a record (fleetlight.cells.payloads.instance_payload).
STORED_OTHERWISE = {"power_state": "long", "auto_disk_config": "boolean"}
PROPERTIES = instance_mapping()["properties"]


def test_every_field_has_a_mapping_and_nothing_else_has() -> None:
    own = {"cell_uuid", "uuid_high", "uuid_low", "version", "digest_high", "digest_low", "view"}
    own |= {"extra", "extra_terms", "extra_fields", "display_name_nice", "node_nice"}
    assert set(PROPERTIES) == set(INSTANCE_FIELDS) | own


@pytest.mark.parametrize(
    ("kind", "mapping"),
    [
        (Kind.TEXT, {"type": "keyword"}),
        (Kind.BOOL, {"type": "boolean"}),
        (Kind.NUMBER, {"type": "long"}),
        (Kind.TIMESTAMP, {"type": "long", "meta": {"unit": "micros"}}),
    ],
)
def test_kind_decides_the_type(kind: Kind, mapping: dict[str, object]) -> None:
    fields = [field.name for field in INSTANCE_FIELDS.values() if field.kind is kind]
    assert fields
    assert all(PROPERTIES[name] == mapping for name in fields)


def test_lists_are_keywords_and_other_values_are_only_kept() -> None:
    assert PROPERTIES["tags"] == {"type": "keyword"}
    assert PROPERTIES["metadata"] == PROPERTIES["user_data"] == {"type": "object", "enabled": False}


def wire_type(field: FieldInfo) -> type:
    """The type of a payload field, without None, limits and the words that it is restricted to."""
    annotation: Any = field.annotation
    while get_args(annotation):
        if get_origin(annotation) is Literal:
            return type(get_args(annotation)[0])
        if get_origin(annotation) in (list, dict):
            break
        annotation = get_args(annotation)[0]
    return cast(type, get_origin(annotation) or annotation)


def test_payload_on_the_wire_and_mapping_have_the_same_fields() -> None:
    assert set(FullInstancePayload.model_fields) - ABOUT_THE_EVENT == set(INSTANCE_FIELDS) - INSIDE_OF_THE_FLAVOR


def test_payload_on_the_wire_and_mapping_agree_on_types() -> None:
    mapped = {str: "keyword", bool: "boolean", int: "long", datetime: "long", list: "keyword"}
    for name, field in FullInstancePayload.model_fields.items():
        if name in ABOUT_THE_EVENT or PROPERTIES[name].get("enabled") is False:
            continue
        expected = STORED_OTHERWISE.get(name) or mapped[wire_type(field)]
        assert PROPERTIES[name]["type"] == expected, name


def test_unknown_fields_are_refused() -> None:
    assert instance_mapping()["dynamic"] == "strict"
    assert progress_mapping("some-index")["dynamic"] == "strict"


def test_index_is_sorted_by_the_default_order_of_the_list() -> None:
    assert index_settings()["sort"] == {
        "field": ("created_at", "uuid_high", "uuid_low"),
        "order": ("desc", "asc", "asc"),
        "missing": ("_last", "_last", "_last"),
    }


def test_copies_follow_the_cluster_unless_a_number_is_set() -> None:
    assert sizes(shards=1, replicas=None)["auto_expand_replicas"] == "0-1"
    assert sizes(shards=3, replicas=2)["number_of_replicas"] == 2
