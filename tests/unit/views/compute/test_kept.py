"""The text in which a native cell keeps what the index wants of an instance."""

from random import Random

import pytest

from indexer.backends.base import Document
from indexer.backends.elasticsearch.documents import to_bulks
from indexer.backends.sqlite.schema import row_of
from indexer.transform.documents import kept_document, to_document
from indexer.writing.rereading import RenderedRows
from operations.actions.new_instance import new_record
from operations.simulation.simulated_instances import new_instance
from resources.fields import Record
from resources.instance import INSTANCE_FIELDS
from tests.support.documents import make_record, make_uuid
from tests.support.telling_records import telling_records
from views.compute.kept import KeptInstance, KeptRecord, to_text
from views.compute.view import render_view

NOW = 1_800_000_000_000_000
STRANGE = make_record(
    display_name='\x01\x1f\x7f\u2028é😀\\/\t\r\n"],[1,{"a":1}',
    display_description="",
    vm_state="error",
    fault={"code": 500, "created_at": NOW, "message": "no\nroom", "details": "at line\n1"},
    tags=["\n", "b"],
    metadata={"\n": "\r\n"},
    ip_addresses=[{"address": "::1", "version": 6, "mac": "", "label": "\n", "type": "floating"}],
    block_devices=[{"volume_id": "v", "delete_on_termination": True}],
    image_ref="i",
    image_properties={"os": None, "min_disk": "1"},
    flavor={"vcpus": 1, "memory_mb": 1, "root_gb": 0, "ephemeral_gb": 0, "name": "a\nb", "extra_specs": {"a": "b"}},
)


def records() -> list[Record]:
    made = [new_record({**new_instance(Random(seed), "one", NOW), "uuid": make_uuid(seed)}, NOW) for seed in range(30)]
    return [*made, *telling_records(), make_record(), STRANGE]


@pytest.mark.parametrize("record", records())
def test_what_comes_out_of_a_text_is_what_a_rendered_row_is(record: Record) -> None:
    rendered = to_document("c0", 7, record)
    kept = kept_document(KeptInstance("c0", 7, str(record["uuid"]), to_text(record)))
    assert (kept.id, kept.version, kept.view) == (rendered.id, 7, rendered.view)
    assert kept.kept_record == rendered.kept_record
    assert row_of(kept) == row_of(rendered)
    assert lines_of(kept) == lines_of(rendered)


def lines_of(document: Document) -> bytes:
    [bulk] = to_bulks([document], {})
    return bulk.body


def test_text_that_somebody_has_changed_is_refused_by_its_instance() -> None:
    text = to_text(make_record())
    rendered = RenderedRows(
        [KeptInstance("c0", 1, "u1", text.removesuffix("\nnull")), KeptInstance("c0", 1, "u2", text)]
    )
    assert [document.id for document in rendered] == ["u2"]
    assert rendered.rejected["u1"].reason == "ValueError: the text that is kept of it has 6 lines instead of 7"


def test_kept_record_tells_every_field_and_is_decoded_when_asked_for_more_than_its_uuid() -> None:
    record = KeptRecord("u", b"no JSON")
    assert (record["uuid"], set(record), len(record)) == ("u", set(INSTANCE_FIELDS), len(INSTANCE_FIELDS))
    with pytest.raises(ValueError, match="malformed"):
        record["host"]


def test_view_is_in_the_text_piece_by_piece() -> None:
    _, *pieces = to_text(STRANGE).split("\n")
    assert tuple(piece.encode() for piece in pieces) == render_view(STRANGE)
