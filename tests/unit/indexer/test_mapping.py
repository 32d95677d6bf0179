"""The Elasticsearch mapping says the same as the field definitions, and as the payload on the wire."""

import pytest

from indexer.mapping import index_settings, instance_mapping, progress_mapping
from query.fields import Kind
from query.instances import INSTANCE_FIELDS

PROPERTIES = instance_mapping()["properties"]


def test_every_field_has_a_mapping_and_nothing_else_has() -> None:
    own = {"cell_uuid", "uuid_high", "uuid_low", "view"}
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


def test_unknown_fields_are_refused() -> None:
    assert instance_mapping()["dynamic"] == "strict"
    assert progress_mapping("some-index")["dynamic"] == "strict"


def test_index_is_sorted_by_the_default_order_of_the_list() -> None:
    assert index_settings(shards=1, replicas=None)["sort"] == {
        "field": ("created_at", "uuid_high", "uuid_low"),
        "order": ("desc", "asc", "asc"),
        "missing": ("_last", "_last", "_last"),
    }


def test_copies_follow_the_cluster_unless_a_number_is_set() -> None:
    assert index_settings(shards=1, replicas=None)["auto_expand_replicas"] == "0-1"
    assert index_settings(shards=3, replicas=2)["number_of_replicas"] == 2
