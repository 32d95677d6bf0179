"""A cell of Nova: its notifications are hints, its rows the truth (contracts/nova-notifications, sections 9 to 12)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.bus.bus import Message
from fleetlight.indexer.backends.base import CellProgress, is_time
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_health import Activity
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.leases import CellLeases
from tests.support.fleets.documents import make_record, make_uuid
from tests.support.memory.memory_cell import ROUTING_KEY
from tests.support.memory.stage import Stage, follower_parts, following
from tests.support.played.nova_cell import NOVA_CELL, SECOND, MemoryNovaCell
from tests.support.waiting import wait_until

SETTINGS = IndexerSettings(retry_wait_max_s=0.02, sync_batch_size=2, comparison_interval_s=3600)
NovaT = TypeVar("NovaT", bound=MemoryNovaCell)

_RUNNING = (Activity.FOLLOWING, Activity.STANDING_BY)


class FollowedStage(Stage[NovaT]):
    """A cell of Nova whose follower runs as long as `running` says."""

    def __init__(self, cell: NovaT) -> None:
        super().__init__(cell)
        self.follower: ExternalFollower | None = None
        self.released = Mock()

    @contextmanager
    def running(
        self, settings: IndexerSettings = SETTINGS, saved: CellProgress | None = None
    ) -> Iterator[ExternalFollower]:
        """A follower that has compared the cell once, unless that is away. saved: what the last one had reached."""
        self.registry = CollectorRegistry()
        parts = follower_parts(
            self.index,
            settings,
            lambda _: self.bus.receiver(),
            self.registry,
            leases=CellLeases(self.leases),
            owners=self.owners,
            failures=self.failures,
            journals=self.journals,
            clock=lambda: self.cell.now,
            release_bus=self.released,
        )
        with following(self.cell.cell, parts, lambda _: self.cell, saved) as follower:
            self.follower = follower
            wait_until(lambda: follower.health.activity in _RUNNING or follower.health.problem)
            yield follower

    def send(self, *messages: Message) -> None:
        """Return when the follower has dealt with them."""
        acknowledged = self.bus.acknowledged + len(messages)
        self.bus.waiting.extend(messages)
        wait_until(lambda: self.bus.acknowledged == acknowledged)

    def shown(self, uuid: str) -> dict[str, Any]:
        return dict(self.index.documents[uuid].record)

    def has_what_the_cell_has(self) -> bool:
        assert {uuid: self.shown(uuid) for uuid in self.index.documents} == self.cell.rows
        return True


Followed = FollowedStage[MemoryNovaCell]


@pytest.fixture
def stage() -> Followed:
    return Followed(MemoryNovaCell())


def test_cell_is_read_whole_at_first_and_is_complete_as_of_then(stage: Followed) -> None:
    for number in range(1, 6):
        stage.cell.create(number)
    before = stage.cell.now
    with stage.running() as follower:
        stage.has_what_the_cell_has()
        progress = follower.progress
    assert progress == CellProgress(NOVA_CELL.uuid, 0, before, is_complete=True)
    assert all(is_time(document.version) for document in stage.index.documents.values())


def test_journal_goes_on_behind_a_follower_that_was_killed_while_it_could_not_read_an_instance(
    stage: Followed,
) -> None:
    uuid = stage.cell.create()
    with stage.running() as follower:
        wait_until(lambda: stage.journals.position(NOVA_CELL.uuid))
        saved = replace(follower.progress, is_complete=False)
    before = stage.journals.position(NOVA_CELL.uuid)
    stage.cell.save_beside(uuid, display_name="new")
    with stage.running(saved=saved):
        wait_until(lambda: stage.shown(uuid)["display_name"] == "new")
        wait_until(lambda: stage.follower and stage.follower.progress.is_complete)
    after = stage.journals.position(NOVA_CELL.uuid)
    assert before is not None
    assert after is not None
    assert (after.epoch, after.sequence) == (before.epoch, before.sequence + 1)


def test_what_no_notification_carries_is_read_from_the_cell_once_per_batch(stage: Followed) -> None:
    uuids = [stage.cell.create(number) for number in range(1, 4)]
    with stage.running():
        messages = []
        for uuid in uuids:
            stage.cell.save(uuid, display_name="new", access_ip_v4="10.1.1.1", user_data="aGk=", config_drive="True")
            seen = stage.cell.snapshot(uuid)
            messages += [stage.cell.notify(seen, "instance.update"), stage.cell.notify(seen, "instance.reboot.end")]
        readings, gets = len(stage.cell.readings), len(stage.index.reads)
        stage.send(*messages)
        stage.has_what_the_cell_has()
        assert stage.shown(uuids[0])["access_ip_v4"] == "10.1.1.1"
        batches = len(stage.index.reads) - gets
        assert len(stage.cell.readings) - readings == batches <= len(messages)


def test_late_end_at_the_source_of_a_migration_does_not_move_the_server_back(stage: Followed) -> None:
    uuid = stage.cell.create(host="source", task_state="migrating")
    with stage.running():
        at_the_source = stage.cell.snapshot(uuid)
        stage.cell.save(uuid, host="destination", node="destination", task_state=None)
        arrived = stage.cell.notify(stage.cell.snapshot(uuid), "instance.live_migration_post_dest.end")
        stage.send(arrived, stage.cell.notify(at_the_source, "instance.live_migration_post.end"), arrived)
        assert (stage.shown(uuid)["host"], stage.shown(uuid)["task_state"]) == ("destination", None)
        stage.has_what_the_cell_has()


def test_whatever_comes_after_the_deletion_does_not_bring_the_server_back(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running():
        seen = stage.cell.snapshot(uuid)
        stage.cell.destroy(uuid)
        gone = stage.cell.notify(stage.cell.snapshot(uuid), "instance.delete.end")
        stage.send(gone, stage.cell.notify(seen, "instance.snapshot.end", snapshot_image_id=make_uuid(7)))
        assert stage.shown(uuid)["deleted"]
        # Nova archives its deleted rows some day; what the index knows of them stays.
        del stage.cell.rows[uuid]
        stage.send(gone, stage.cell.notify(seen, "instance.update"))
        assert stage.shown(uuid)["deleted"]


def test_deletion_that_failed_after_all_deletes_nothing(stage: Followed) -> None:
    uuid = stage.cell.create(task_state="deleting")
    with stage.running():
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.delete.end"))
        assert not stage.shown(uuid)["deleted"]


def test_tags_change_without_a_new_time_of_the_row(stage: Followed) -> None:
    uuid = stage.cell.create(tags=["old"])
    with stage.running():
        stage.cell.save_beside(uuid, tags=["blue", "new"])
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update"))
        assert stage.shown(uuid)["tags"] == ["blue", "new"]


def test_first_host_of_a_build_that_failed_does_not_end_it(stage: Followed) -> None:
    uuid = stage.cell.create(host="a", vm_state="building")
    with stage.running():
        failed = stage.cell.notify(stage.cell.snapshot(uuid), "instance.create.error")
        stage.cell.save(uuid, host="b")
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.create.start"), failed)
        assert (stage.shown(uuid)["host"], stage.shown(uuid)["vm_state"]) == ("b", "building")


def test_repeated_messages_write_nothing(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running():
        stage.cell.save(uuid, host="b")
        message = stage.cell.notify(stage.cell.snapshot(uuid), "instance.update")
        stage.send(message)
        version = stage.index.documents[uuid].version
        stage.send(message, message)
        assert stage.index.documents[uuid].version == version


def test_server_of_another_cell_on_the_same_bus_is_left_alone(stage: Followed) -> None:
    other = MemoryNovaCell()
    uuid = other.create(9)
    with stage.running():
        stage.send(other.notify(other.snapshot(uuid), "instance.update"))
        assert uuid not in stage.index.documents
        assert stage.messages("elsewhere") == 1
        theirs = to_document("another-cell", other.now, make_record(9))
        stage.index.write([theirs])
        stage.send(other.notify(other.snapshot(uuid), "instance.delete.end"))
        assert stage.index.documents[uuid] == theirs


def test_hidden_copy_of_a_move_between_cells_does_not_take_the_place_of_the_other(stage: Followed) -> None:
    uuid = stage.cell.create(hidden=True)
    theirs = to_document("another-cell", stage.cell.now, make_record(1))
    stage.index.write([theirs])
    with stage.running():
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.resize_prep.end", new_flavor=None))
        assert stage.index.documents[uuid] == theirs
        stage.cell.save(uuid, hidden=False)
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.resize_finish.end"))
        assert stage.index.documents[uuid] == theirs, "nobody has confirmed the move"
        stage.cell.mapped.add(uuid)
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.resize_confirm.end"))
        assert stage.index.documents[uuid].cell_uuid == NOVA_CELL.uuid


def test_hidden_row_is_not_indexed_and_neither_is_what_is_announced_of_it(stage: Followed) -> None:
    uuid, shown = stage.cell.create(hidden=True), stage.cell.create(2)
    with stage.running() as follower:
        assert stage.index.documents.keys() == {shown}
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.resize_prep.end", new_flavor=None))
        assert stage.index.documents.keys() == {shown}
        assert follower.progress.is_complete
        stage.cell.save(uuid, hidden=False)
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update"))
        assert stage.index.documents.keys() == {uuid, shown}


def test_end_that_is_announced_of_a_hidden_row_does_not_end_the_server(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running():
        stage.cell.save(uuid, hidden=True)
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.delete.end"))
        assert not stage.shown(uuid)["deleted"]


def test_other_notifications_are_counted_and_nothing_else(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running():
        seen = stage.cell.snapshot(uuid)
        unversioned = b'{"event_type": "compute.instance.update", "payload": {"instance_id": "x"}, "priority": "INFO",'
        unversioned += b'"publisher_id": "compute.a", "timestamp": "2026-11-21 10:00:00", "message_id": "1"}'
        service = stage.cell.notify(seen, "service.update", version="9.0")
        stage.send(Message(unversioned, ROUTING_KEY, {}), service)
        for payload in (b'["a", {"b": 1}]', b'"text"', b"null", b"7", b"true"):
            other = unversioned.replace(b'{"instance_id": "x"}', payload)
            stage.send(Message(other, ROUTING_KEY, {}))
        assert stage.messages("other") == 7
        assert not stage.failures.kept


def test_failed_build_that_only_the_conductor_speaks_of_is_read(stage: Followed) -> None:
    uuid = stage.cell.create(vm_state="building", host=None)
    with stage.running():
        stage.cell.save(uuid, vm_state="error")
        seen = stage.cell.snapshot(uuid)
        stage.send(stage.cell.notify(seen, "compute_task.build_instances.error", instance_uuid=uuid))
        assert stage.shown(uuid)["vm_state"] == "error"


def test_newer_minor_is_read_with_what_it_brought(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running():
        message = stage.cell.notify(stage.cell.snapshot(uuid), "instance.power_on.end", version="1.99", rack="r7")
        stage.send(message)
        extra = stage.index.documents[uuid].extra
        assert extra is not None
        assert extra.values == {"rack": "r7"}
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update"))
        assert stage.index.documents[uuid].extra == extra


def test_newer_major_is_a_dead_letter_and_its_server_is_read(stage: Followed) -> None:
    uuid = stage.cell.create()
    with stage.running() as follower:
        stage.cell.save(uuid, display_name="after")
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.power_on.end", version="7.0"))
        wait_until(lambda: stage.shown(uuid)["display_name"] == "after")
        [(_, reason, detail)] = stage.failures.found
        assert reason == "unsupported_version"
        assert "InstanceActionPayload 7.0" in detail
        wait_until(lambda: stage.failures.reread == [uuid])
        wait_until(lambda: follower.progress.is_complete)


def test_dead_letter_of_a_server_of_another_cell_is_left_to_that_one(stage: Followed) -> None:
    """Both get all that is sent to their broker."""
    other = MemoryNovaCell()
    message = other.notify(other.snapshot(other.create(9)), "instance.power_on.end", version="7.0")
    with stage.running():
        stage.send(message)
        assert stage.messages("elsewhere") == 1
        assert not stage.failures.kept
        stage.cell.is_away = True
        stage.send(message)
        assert [reason for _, reason, _ in stage.failures.found] == ["unsupported_version"], "whose it is is not known"


def test_while_the_cell_cannot_be_read_notifications_are_believed_and_checked_later(stage: Followed) -> None:
    uuid = stage.cell.create(user_data="aGk=", host="a")
    with stage.running() as follower:
        stage.cell.is_away = True
        stage.cell.save(uuid, host="b", access_ip_v4="10.1.1.1")
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update"))
        assert (stage.shown(uuid)["host"], stage.shown(uuid)["user_data"]) == ("b", "aGk=")
        assert stage.shown(uuid)["access_ip_v4"] is None
        wait_until(lambda: not follower.progress.is_complete)
        stage.cell.is_away = False
        wait_until(stage.has_what_the_cell_has)
        wait_until(lambda: follower.progress.is_complete)


def test_changes_that_nobody_announced_are_found_by_the_next_comparison(stage: Followed) -> None:
    changed, purged, archived = (stage.cell.create(number) for number in range(1, 4))
    stage.cell.destroy(archived)
    with stage.running(SETTINGS.model_copy(update={"comparison_interval_s": 0.05})) as follower:
        first = follower.progress.fresh_as_of
        stage.cell.save_beside(changed, security_groups=["web"])
        del stage.cell.rows[purged]
        del stage.cell.rows[archived]
        wait_until(lambda: stage.shown(changed)["security_groups"] == ["web"] and purged not in stage.index.documents)
        assert archived in stage.index.documents, "a deleted server is shown for index.deleted_retention"
        wait_until(lambda: follower.progress.fresh_as_of > first)


def test_without_a_bus_comparisons_go_on(stage: Followed) -> None:
    stage.bus.is_away = True
    uuid = stage.cell.create()
    with stage.running(SETTINGS.model_copy(update={"comparison_interval_s": 0.05})) as follower:
        wait_until(lambda: uuid in stage.index.documents)
        stage.cell.save(uuid, host="b")
        wait_until(lambda: stage.shown(uuid)["host"] == "b")
        assert "away" in str(follower.health.problem)
        wait_until(lambda: follower.progress.is_complete)
        compared = follower.progress.fresh_as_of
        stage.cell.now += SECOND
        wait_until(lambda: follower.progress.fresh_as_of > compared)
        stage.bus.is_away = False
        wait_until(lambda: follower.health.problem is None)


def test_cell_that_is_away_at_the_start_is_read_when_it_is_back(stage: Followed) -> None:
    stage.cell.is_away = True
    uuid = stage.cell.create()
    with stage.running() as follower:
        assert not follower.progress.is_complete
        stage.cell.is_away = False
        wait_until(lambda: uuid in stage.index.documents and follower.progress.is_complete)


def test_cell_that_somebody_else_compares_is_compared_later(stage: Followed) -> None:
    stage.leases.taken[f"index-bulk-{NOVA_CELL.uuid}"] = "fleetlight index sync"
    uuid = stage.cell.create()
    with stage.running(SETTINGS.model_copy(update={"comparison_interval_s": 0.05})) as follower:
        assert not follower.progress.is_complete
        stage.leases.taken.clear()
        wait_until(lambda: uuid in stage.index.documents and follower.progress.is_complete)


def test_clock_of_a_host_that_is_ahead_does_not_hide_what_comes_later(stage: Followed) -> None:
    uuid = stage.cell.create(host="a")
    with stage.running():
        stage.cell.save(uuid, host="b")
        far_ahead = stage.cell.now + 3600 * SECOND
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update", at=far_ahead))
        stage.cell.save(uuid, host="c")
        stage.send(stage.cell.notify(stage.cell.snapshot(uuid), "instance.update"))
        assert stage.shown(uuid)["host"] == "c"
