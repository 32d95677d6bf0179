"""Contract: nova-notifications, sections 9 to 12."""

from typing import Any

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.transform.documents import ExternalChange, merge, to_document
from fleetlight.views.compute.view import render_view
from tests.support.fleets.documents import make_record, make_uuid

CELL = "c0"
UUID = make_uuid(1)
T = 1_790_000_000_000_000


def change(seconds: int, event_type: str = "instance.update", **carried: Any) -> ExternalChange:
    return ExternalChange(UUID, T + seconds, event_type, {"uuid": UUID, **carried})


def merged(*changes: ExternalChange, existing: Document | None = None) -> Document:
    document = merge(CELL, existing, changes)
    assert document is not None
    return document


def test_document_of_a_row_carries_its_revision_and_its_rendered_view() -> None:
    record = make_record(1)
    assert to_document(CELL, 7, record) == Document(CELL, 7, record, render_view(record))


def test_first_notification_makes_a_complete_record_of_what_it_carries() -> None:
    document = merged(change(0, display_name="web", vm_state="building"))
    assert document.version == T
    assert document.record["display_name"] == "web"
    assert document.record["tags"] == []
    assert document.record["deleted"] is False
    assert document.record["fault"] is None
    assert document.view == render_view(document.record)


def test_what_a_notification_does_not_carry_is_kept() -> None:
    created = merged(change(0, "instance.create.end", tags=["blue"], block_devices=[{"volume_id": "v"}]))
    moved = merged(change(1, "instance.live_migration_post_dest.end", host="b"), existing=created)
    assert moved.record["tags"] == ["blue"]
    assert moved.record["block_devices"] == [{"volume_id": "v"}]
    assert moved.record["host"] == "b"


def test_late_notification_changes_nothing() -> None:
    existing = merged(change(5, host="b"))
    assert merge(CELL, existing, [change(3, host="a")]) is None


def test_repeated_notification_changes_nothing() -> None:
    existing = merged(change(5, host="b"))
    assert merge(CELL, existing, [change(5, host="b")]) is None


def test_notifications_of_one_batch_apply_in_the_order_of_their_times() -> None:
    document = merged(change(2, host="b"), change(1, host="a", node="n"))
    assert (document.record["host"], document.record["node"], document.version) == ("b", "n", T + 2)


def test_late_update_does_not_revive_deleted_instance() -> None:
    deleted = merged(change(0, "instance.delete.end", vm_state="deleted"))
    assert deleted.record["deleted"] is True
    assert merge(CELL, deleted, [change(9, "instance.snapshot.end", vm_state="active")]) is None


def test_update_in_the_same_batch_does_not_revive_deleted_instance() -> None:
    document = merged(change(9, vm_state="active"), change(0, "instance.delete.end", vm_state="deleted"))
    assert document.record["deleted"] is True
    assert document.record["vm_state"] == "deleted"


def test_deletion_that_looks_older_than_the_document_still_wins() -> None:
    existing = merged(change(9, vm_state="active"))
    deleted = merged(change(3, "instance.delete.end", vm_state="deleted"), existing=existing)
    assert deleted.record["deleted"] is True
    assert deleted.version > existing.version


def test_deletion_without_a_time_gets_that_of_the_notification() -> None:
    assert merged(change(4, "instance.delete.end", deleted_at=None)).record["deleted_at"] == T + 4
    assert merged(change(4, "instance.delete.end", deleted_at=17)).record["deleted_at"] == 17


def test_soft_deleted_instance_is_not_deleted() -> None:
    document = merged(change(0, "instance.soft_delete.end", vm_state="soft-delete", deleted_at=17))
    assert document.record["deleted"] is False


def test_notification_never_replaces_what_the_cell_counts_itself() -> None:
    native = to_document(CELL, 3, make_record(1))
    assert merge(CELL, native, [change(0, host="elsewhere")]) is None
    assert merge(CELL, native, [change(0, "instance.delete.end")]) is None


S = 1_000_000


def test_older_row_in_a_later_notification_is_not_believed_but_for_what_has_no_time() -> None:
    existing = merged(change(5, host="b", tags=["old"], updated_at=T + 4 * S))
    late = merged(change(9, host="a", tags=["new"], updated_at=T + 2 * S), existing=existing)
    assert (late.record["host"], late.record["tags"]) == ("b", ["new"])
    assert late.record["updated_at"] == T + 4 * S


def test_newer_row_in_a_notification_of_a_clock_that_is_behind_is_believed() -> None:
    existing = merged(change(9, host="a", tags=["new"], updated_at=T + 2 * S))
    behind = merged(change(3, host="b", tags=["old"], updated_at=T + 4 * S), existing=existing)
    assert (behind.record["host"], behind.record["tags"]) == ("b", ["new"])
    assert behind.version > existing.version


def test_rows_without_a_time_of_change_are_the_oldest() -> None:
    existing = merged(change(5, host="b", updated_at=T))
    assert merge(CELL, existing, [change(3, host="a", updated_at=None)]) is None
    assert merged(change(9, host="a", updated_at=None, tags=["t"]), existing=existing).record["host"] == "b"


def test_part_of_a_second_that_notifications_do_not_carry_makes_no_row_older() -> None:
    existing = merged(change(5, host="a", updated_at=T + 700_000))
    assert merged(change(6, host="b", updated_at=T), existing=existing).record["host"] == "b"


def test_end_at_the_source_of_a_move_in_the_same_second_says_nothing_of_where_the_server_is() -> None:
    arrived = merged(change(1, "instance.live_migration_post_dest.end", host="b", task_state=None, updated_at=T))
    left = change(2, "instance.live_migration_post.end", host="a", task_state="migrating", progress=100, updated_at=T)
    after = merged(left, existing=arrived)
    assert (after.record["host"], after.record["task_state"], after.record["progress"]) == ("b", None, 100)
    resized = merged(change(1, "instance.resize_finish.start", flavor_id="2", updated_at=T))
    source = change(2, "instance.resize.end", flavor_id="1", updated_at=T)
    assert merged(source, existing=resized).record["flavor_id"] == "2"
