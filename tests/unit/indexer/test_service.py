"""The whole indexer on memory: followers in their threads, a bus and a cell that break, an index that goes away."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, NoReturn

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER, SEQUENCE_HEADER
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell, CellAdapter, ChangelogAdapter
from fleetlight.indexer.backends.base import REPAIRS, CellProgress
from fleetlight.indexer.errors import IndexRequestError
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_health import Activity
from fleetlight.indexer.stream.consumer import MessageSource
from fleetlight.indexer.stream.liveness import Probe, SignOfLife
from fleetlight.indexer.stream.probes import IndexerProbes
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.query.page import PageRequest
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_bus import MemoryBus
from tests.support.memory.memory_cell import CELL_UUID, LONG_AGO, OTHER_UUID, ROUTING_KEY, MemoryCell
from tests.support.memory.memory_index import versions
from tests.support.memory.stage import NativeStage, follower_parts
from tests.support.waiting import wait_until

SETTINGS = IndexerSettings(batch_max_messages=4, hole_timeout_s=0.02, retry_wait_max_s=0.02, sync_batch_size=3)


class Stage(NativeStage[MemoryCell]):
    """Two cells with a bus each, one index, and an indexer that can be started and stopped any number of times."""

    def __init__(self) -> None:
        super().__init__(MemoryCell())
        self.cells = {CELL_UUID: self.cell, OTHER_UUID: MemoryCell(OTHER_UUID, "two")}
        self.buses = {CELL_UUID: self.bus, OTHER_UUID: MemoryBus()}
        self.followed = [CELL_UUID]
        self.others: list[Cell] = []
        self.released: list[tuple[Cell, bool]] = []
        self.fleet_is_away = False
        self.mortal: Callable[[Any], Any] = lambda target: target
        self.service = self._new_service(SETTINGS)

    def saved(self, uuid: str = CELL_UUID) -> CellProgress | None:
        return self.index.saved.get(uuid)

    def is_followed_to_the_end(self, uuid: str = CELL_UUID) -> bool:
        progress = self.saved(uuid)
        return progress is not None and progress.is_complete and progress.watermark == self.cells[uuid].last_sequence

    @contextmanager
    def running(self, settings: IndexerSettings = SETTINGS) -> Iterator[IndexerService]:
        """A new indexer; it is stopped at the end, and a mistake it died of is raised."""
        self.registry = CollectorRegistry()
        self.leases.close()
        self.service = self._new_service(settings)
        failures: list[Exception] = []

        def run(stop: Event) -> None:
            try:
                self.service.run(stop)
            except (RuntimeError, IndexRequestError) as error:
                failures.append(error)

        with in_thread(run):
            yield self.service
        if failures:
            raise failures[0]

    def _new_service(self, settings: IndexerSettings) -> IndexerService:
        parts = follower_parts(
            self.mortal(self.index),
            settings,
            self._open_receiver,
            self.registry,
            leases=CellLeases(self.leases),
            is_of_relay=lambda _cell, _headers, _body: True,
            failures=self.failures,
        )
        return IndexerService(
            self._fleet_cells,
            parts,
            open_adapter=self._open_adapter,
            open_external=self._open_external,
            refresh_interval_s=0.01,
            cells_refresh_interval_s=0.02,
            release_bus=self._release_bus,
        )

    def _release_bus(self, cell: Cell, *, is_gone: bool) -> None:
        # Nobody follows it any more, and nobody can begin to.
        assert self.leases.holds(f"index-follow-{cell.uuid}")
        assert cell.uuid not in self.service.health
        self.released.append((cell, is_gone))

    def _open_external(self, cell: Cell) -> CellAdapter:
        raise CellUnreachableError(cell.name, "it is away")

    def _fleet_cells(self) -> Sequence[Cell]:
        if self.fleet_is_away:
            raise FleetUnreachableError("it is away")
        return [self.cells[uuid].cell for uuid in self.followed] + self.others

    def _open_adapter(self, cell: Cell) -> ChangelogAdapter:
        if self.cells[cell.uuid].is_away:
            raise CellUnreachableError(cell.name, "it is away")
        adapter: ChangelogAdapter = self.mortal(self.cells[cell.uuid])
        return adapter

    def _open_receiver(self, cell: Cell) -> MessageSource:
        receiver: MessageSource = self.mortal(self.buses[cell.uuid].receiver())
        return receiver


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_changes_that_arrive_become_searchable_and_then_the_progress_is_saved(stage: Stage) -> None:
    with stage.running():
        for _ in range(10):
            stage.bus.waiting.append(stage.cell.create())
        stage.bus.waiting.append(stage.cell.heartbeat(at=LONG_AGO))
        wait_until(stage.is_followed_to_the_end)
        assert {uuid: d.version for uuid, d in stage.index.searchable.items()} == stage.cell.versions()
        wait_until(lambda: stage.saved() == CellProgress(CELL_UUID, 10, LONG_AGO, is_complete=True))
    assert stage.bus.acknowledged == 11


def test_saved_watermark_never_promises_what_a_search_cannot_find(stage: Stage) -> None:
    """`searchable` changes only with a refresh; a watermark saved before it would be ahead of it."""
    with stage.running():
        for _ in range(200):
            stage.bus.waiting.append(stage.cell.create())
            saved = stage.index.saved.get(CELL_UUID)
            if saved is not None:
                promised = {change.instance_uuid for change in stage.cell.changes[: saved.watermark]}
                assert promised <= stage.index.searchable.keys()
        wait_until(stage.is_followed_to_the_end)


def test_indexer_goes_on_by_itself_with_an_index_that_was_replaced(stage: Stage) -> None:
    """Nothing that the followers know is true of it: they begin again, with what it says."""
    with capture_logs() as logs, stage.running() as service:
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        stage.index.replace()
        wait_until(lambda: stage.index.searchable.keys() == stage.cell.rows.keys())
        wait_until(stage.is_followed_to_the_end)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        wait_until(lambda: service.problem is None)
    assert versions(stage.index) == stage.cell.versions()
    assert [each["index"] for each in logs if each["event"] == "indexer.index_replaced"] == ["memory"]
    assert stage.sample("index_replaced_total") == 1


def test_progress_is_not_saved_in_an_index_that_was_replaced(stage: Stage) -> None:
    """A watermark that only the old one had would promise what the new one lacks."""
    with stage.running() as service:
        for _ in range(3):
            stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        stage.cell.is_away = True
        stage.index.replace()
        wait_until(lambda: not stage.index.is_replaced)
        wait_until(lambda: CELL_UUID in service.health and service.health[CELL_UUID].problem)
    assert CELL_UUID not in stage.index.saved


def test_sync_loses_no_notification_that_is_only_in_the_changelog(stage: Stage) -> None:
    elsewhere = MemoryCell(OTHER_UUID)
    notification = elsewhere.create(display_name="external")
    [external] = elsewhere.rows
    stage.cell.create_many(5)
    stage.cell.prune(2)
    stage.cell.pass_on(notification, external)
    stage.cell.create()
    stage.sync()
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        assert stage.index.searchable.keys() == {*stage.cell.rows, external}
    stage.index.replace()
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        assert stage.index.searchable.keys() == {*stage.cell.rows, external}


def test_indexer_that_stood_by_for_long_goes_on_from_what_the_other_one_saved(stage: Stage) -> None:
    stage.cell.create()
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        stage.cell.create_many(5)
        stage.sync()  # as the one that was active would leave it
        stage.cell.prune(5)
        pages_read = stage.cell.pages_read
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
    assert stage.cell.pages_read == pages_read
    assert versions(stage.index) == stage.cell.versions()


def test_indexer_that_stood_by_writes_nothing_again_that_has_left_the_index_since(stage: Stage) -> None:
    """Until it got to the deletion, lists would show what was there before, and for good if it ended there."""
    with stage.running(SETTINGS.model_copy(update={"sync_batch_size": 1})) as service:
        wait_until(stage.is_followed_to_the_end)
        forgotten = str(stage.cell.create().headers[RESOURCE_HEADER])
        stage.cell.delete(forgotten)
        stage.sync()  # as the one that was active
        stage.index.remove({forgotten: 2})  # as its purge
        stage.bus.is_away = True
        wait_until(lambda: service.health[CELL_UUID].problem is not None)
        stage.bus.is_away = False
        wait_until(lambda: service.health[CELL_UUID].problem is None)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
    assert forgotten not in stage.index.searchable


def test_whoever_speaks_of_an_instance_before_its_cell_does_hides_none_of_its_changes(stage: Stage) -> None:
    """An agent on the bus may be faster than the outbox, and the time of its message is higher than any revision."""
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        created = stage.cell.create()
        stage.bus.waiting.append(Message(created.body, created.routing_key, {}))
        wait_until(lambda: stage.bus.acknowledged)
        stage.bus.waiting += [created, stage.cell.update(str(created.headers[RESOURCE_HEADER]), host="b")]
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()


def test_empty_cell_is_complete_at_once(stage: Stage) -> None:
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert stage.saved() == CellProgress(CELL_UUID, 0, 0, is_complete=True)


def test_instance_that_could_not_be_indexed_is_not_forgotten_by_a_restart(stage: Stage) -> None:
    """The changelog reaches back to the beginning, but the watermark has passed what was refused."""
    stage.cell.create()
    [uuid] = stage.cell.rows
    stage.index.refused[uuid] = "the name is too long"
    with stage.running():
        wait_until(lambda: (saved := stage.saved()) is not None and saved.watermark == 1)
    stage.index.refused.clear()
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        assert uuid in stage.index.searchable


def test_cell_whose_changelog_reaches_back_to_the_beginning_is_caught_up_with(stage: Stage) -> None:
    stage.cell.create_many(10)
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    assert stage.cell.pages_read == 0


def test_cell_that_was_there_before_its_changelog_is_synced(stage: Stage) -> None:
    stage.cell.create_many(10)
    stage.cell.prune(8)
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    assert stage.cell.pages_read > 0


def test_indexer_that_was_away_longer_than_the_changelog_syncs_again(stage: Stage) -> None:
    stage.cell.create()
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    stage.cell.create_many(10)
    stage.cell.prune(5)
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()


def test_what_the_bus_lost_is_read_from_the_changelog_when_a_later_message_shows_the_hole(stage: Stage) -> None:
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        stage.cell.create()
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    assert stage.sample("holes_total", cell=CELL_UUID) == 1


def test_what_the_bus_lost_is_read_from_the_changelog_when_a_heartbeat_shows_the_hole(stage: Stage) -> None:
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        stage.cell.create()
        stage.bus.waiting.append(stage.cell.heartbeat(at=LONG_AGO))
        wait_until(lambda: stage.saved() == CellProgress(CELL_UUID, 1, LONG_AGO, is_complete=True))
    assert versions(stage.index) == stage.cell.versions()


def test_unreadable_change_of_the_changelog_is_a_dead_letter_and_its_instance_is_read_again(stage: Stage) -> None:
    stage.cell.create()
    stage.cell.damage(1)
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    [failure] = stage.failures.kept.values()
    assert (failure.headers["fleetlight-sequence"], failure.summary.reason) == (1, "malformed")


@pytest.mark.parametrize("what", ["bus", "cell", "index"])
def test_whatever_goes_away_is_waited_out_and_nothing_is_lost(stage: Stage, what: str) -> None:
    def take_away(is_away: bool) -> None:
        stage.bus.is_away = is_away and what == "bus"
        stage.cell.is_away = is_away and what == "cell"
        stage.index.failures = 1_000_000 if is_away and what == "index" else 0

    take_away(True)
    with capture_logs() as logs, stage.running() as service:
        wait_until(lambda: service.problem or any(health.problem for health in service.health.values()))
        take_away(False)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        wait_until(lambda: service.problem is None and service.health[CELL_UUID].problem is None)
        assert service.health[CELL_UUID].activity is Activity.FOLLOWING
        take_away(True)
        message = stage.cell.create()
        stage.bus.waiting.append(message)
        if what != "cell":
            wait_until(lambda: service.problem or service.health[CELL_UUID].problem)
        take_away(False)
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    # Whoever reads the log hears of both.
    events = [entry["event"] for entry in logs if entry["event"].startswith("indexer.index_")]
    assert events[:2] == (["indexer.index_unavailable", "indexer.index_available_again"] if what == "index" else [])


@pytest.mark.parametrize("lasts", [False, True])
def test_pause_of_a_rebuild_is_no_problem_unless_it_lasts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    monkeypatch.setattr("fleetlight.indexer.stream.cell_health._USUAL_PAUSE_S", 0.05 if lasts else 60.0)
    # What ends the pause of a rebuild that was killed is not what this is about.
    stage.index.allow_writes = lambda: None  # type: ignore[method-assign]

    def waits() -> float:
        return stage.sample("failures_total", cell=CELL_UUID, kind="IndexPausedError") or 0

    with capture_logs() as logs, stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        stage.index.is_blocked = True
        stage.bus.waiting.append(stage.cell.create())
        wait_until(lambda: waits() > 3)
        if lasts:
            wait_until(lambda: service.health[CELL_UUID].problem == "writing is paused")
        else:
            assert service.health[CELL_UUID].problem is None
        stage.index.is_blocked = False
        wait_until(stage.is_followed_to_the_end)
    assert ("indexer.cell_waiting" in [log["event"] for log in logs]) == lasts


def test_cell_that_is_away_holds_up_no_other(stage: Stage) -> None:
    stage.followed = [CELL_UUID, OTHER_UUID]
    stage.cell.is_away = True
    with stage.running() as service:
        stage.buses[OTHER_UUID].waiting.append(stage.cells[OTHER_UUID].create())
        wait_until(lambda: stage.is_followed_to_the_end(OTHER_UUID))
        wait_until(lambda: service.health[CELL_UUID].problem)
        assert service.health[OTHER_UUID].problem is None
        assert not stage.is_followed_to_the_end()


def test_new_cell_is_discovered_and_a_removed_one_is_left_alone(stage: Stage) -> None:
    stage.cell.create()
    with capture_logs() as logs, stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        # The change is in the changelog before anybody follows the cell: no message will tell of it later.
        stage.cells[OTHER_UUID].create()
        stage.followed = [OTHER_UUID]
        wait_until(lambda: stage.is_followed_to_the_end(OTHER_UUID))
        wait_until(lambda: list(service.health) == [OTHER_UUID])
    assert stage.is_followed_to_the_end(), "its progress stays"
    left = [entry["cell"] for entry in logs if entry["event"] == "indexer.cell_left"]
    assert left == [stage.cell.cell.name]


def test_cell_that_is_being_removed_is_not_followed(stage: Stage) -> None:
    stage.leases.taken[f"index-follow-{CELL_UUID}"] = "cell remove"
    stage.followed = [CELL_UUID, OTHER_UUID]
    stage.cell.create()
    with stage.running() as service:
        wait_until(lambda: stage.is_followed_to_the_end(OTHER_UUID))
        assert list(service.health) == [OTHER_UUID]
        stage.leases.taken.clear()
        wait_until(stage.is_followed_to_the_end)


def test_cell_that_is_gone_when_its_lease_is_had_is_not_followed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry was read, then the cell was removed, and then we got the lease."""
    stage.cell.create()
    acquire = stage.leases.acquire
    was_removed = Event()

    def removed_just_before(name: str, *, shared: bool = False) -> bool:
        stage.followed = []
        was_removed.set()
        return acquire(name, shared=shared)

    monkeypatch.setattr(stage.leases, "acquire", removed_just_before)
    with stage.running() as service:
        wait_until(was_removed.is_set)
        wait_until(lambda: not stage.leases.held)
        assert service.health == {}
    assert stage.index.documents == {}
    assert stage.index.saved == {}


def test_cell_that_was_left_keeps_its_lease_until_nothing_more_is_written(stage: Stage) -> None:
    lease = f"index-follow-{CELL_UUID}"
    unleased: list[int] = []

    def look() -> None:
        if lease not in stage.leases.held:
            unleased.append(1)

    stage.index.before_write = look
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        for _ in range(100):
            stage.bus.waiting.append(stage.cell.create())
        stage.followed = []
        wait_until(lambda: lease not in stage.leases.held)
        saved = stage.saved()
        written = len(stage.index.documents)
        stage.bus.waiting.append(stage.cell.create())
        stage.followed = [OTHER_UUID]
        wait_until(lambda: stage.is_followed_to_the_end(OTHER_UUID))
        assert (stage.saved(), len(stage.index.documents)) == (saved, written)
    assert unleased == []


def test_cell_that_hangs_when_it_is_left_holds_up_no_other(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be disabled because it hangs."""
    stage.followed = [CELL_UUID, OTHER_UUID]
    other = stage.cells[OTHER_UUID]
    hangs, goes_on = Event(), Event()

    def hang() -> int:
        hangs.set()
        goes_on.wait(60)
        return 0

    with stage.running() as service:
        wait_until(lambda: stage.is_followed_to_the_end() and stage.is_followed_to_the_end(OTHER_UUID))
        with monkeypatch.context() as patched:
            patched.setattr(stage.cell, "published_sequence", hang)
            stage.bus.is_away = True
            wait_until(lambda: service.health[CELL_UUID].problem)
            stage.bus.is_away = False
            wait_until(hangs.is_set)
        stage.followed = [OTHER_UUID]
        try:
            for _ in range(3):
                stage.buses[OTHER_UUID].waiting.append(other.create())
                wait_until(lambda: stage.is_followed_to_the_end(OTHER_UUID), 10)
            assert f"index-follow-{CELL_UUID}" in stage.leases.held, "it may still write"
            stage.followed = [CELL_UUID, OTHER_UUID]
        finally:
            goes_on.set()
        stage.cell.create()
        wait_until(stage.is_followed_to_the_end)


def test_lost_leases_start_the_followers_anew_from_what_the_index_says_then(stage: Stage) -> None:
    stage.cell.create_many(3)
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        # Nobody could be kept from this, once the lease was lost.
        stage.index.remove_cell(CELL_UUID)
        stage.leases.close()
        wait_until(lambda: versions(stage.index) == stage.cell.versions())
        wait_until(stage.is_followed_to_the_end)


@pytest.mark.parametrize("is_gone", [False, True])
def test_queue_of_a_cell_of_nova_is_released_by_a_follower_that_nobody_has_waited_for(
    stage: Stage, is_gone: bool
) -> None:
    """Its lease was lost, so that it may have reconnected after whoever disabled or removed the cell."""
    nova = Cell(OTHER_UUID, "nova", CellKind.NOVA_DB, "sqlite:////nova.db", "amqp://bus//?exchange=nova")
    stage.others = [nova]
    with stage.running() as service:
        wait_until(lambda: OTHER_UUID in service.health)
        stage.fleet_is_away = True
        wait_until(lambda: service.problem)
        stage.leases.close()
        stage.leases.taken[f"index-follow-{OTHER_UUID}"] = "fleetlight cell disable"
        stage.others = [] if is_gone else [replace(nova, disabled=True)]
        stage.fleet_is_away = False
        wait_until(lambda: OTHER_UUID not in service.health)
        assert stage.released == []
        stage.leases.taken.clear()
        wait_until(lambda: stage.released)
        wait_until(stage.is_followed_to_the_end)
    assert stage.released == [(nova, is_gone)]


def test_queue_of_a_cell_that_is_followed_again_is_not_released(stage: Stage) -> None:
    nova = Cell(OTHER_UUID, "nova", CellKind.NOVA_DB, "sqlite:////nova.db", "amqp://bus//?exchange=nova")
    stage.others = [nova]
    with stage.running() as service:
        wait_until(lambda: OTHER_UUID in service.health)
        stage.leases.taken[f"index-follow-{OTHER_UUID}"] = "another indexer"
        stage.others = [replace(nova, disabled=True)]
        wait_until(lambda: OTHER_UUID not in service.health)
        stage.others = [nova]
        stage.leases.taken.clear()
        wait_until(lambda: OTHER_UUID in service.health)
        wait_until(stage.is_followed_to_the_end)
    assert stage.released == []


def test_followers_go_on_without_leases_while_the_fleet_is_away(stage: Stage) -> None:
    with stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        stage.fleet_is_away = True
        wait_until(lambda: service.problem)
        stage.leases.close()
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        stage.fleet_is_away = False
        wait_until(lambda: stage.leases.held)


def test_sync_waits_until_nobody_else_works_on_the_cell(stage: Stage) -> None:
    stage.cell.create_many(10)
    stage.cell.prune(8)
    stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "index sync (process 7 on here)"
    with stage.running() as service:
        wait_until(lambda: CELL_UUID in service.health)
        wait_until(lambda: "index sync (process 7 on here)" in (service.health[CELL_UUID].problem or ""))
        assert stage.index.documents == {}
        stage.leases.taken.clear()
        wait_until(stage.is_followed_to_the_end)
        wait_until(lambda: stage.leases.held == {f"index-follow-{CELL_UUID}"})
    assert stage.leases.held == set()


def test_sync_that_another_indexer_has_done_meanwhile_is_not_done_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would begin by saying that the cell is not complete any more."""

    def sync_again(_: PageRequest) -> NoReturn:
        raise FaultError

    stage.cell.create_many(10)
    stage.cell.prune(8)
    stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "fleetlight indexer (process 7 on there)"
    with stage.running() as service:
        wait_until(lambda: CELL_UUID in service.health and service.health[CELL_UUID].problem)
        stage.sync()
        monkeypatch.setattr(stage.cell, "scan", sync_again)
        stage.leases.taken.clear()
        wait_until(lambda: service.health[CELL_UUID].activity is Activity.FOLLOWING)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()


def test_fleet_that_is_away_stops_no_cell(stage: Stage) -> None:
    with capture_logs() as logs, stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        stage.fleet_is_away = True
        wait_until(lambda: service.problem)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        stage.fleet_is_away = False
        wait_until(lambda: service.problem is None)
    about_the_fleet = [entry["event"] for entry in logs if "fleet" in entry["event"]]
    assert about_the_fleet == ["indexer.fleet_unreachable", "indexer.fleet_reachable_again"]


def test_stopping_finishes_and_saves_what_was_received(stage: Stage) -> None:
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
        for _ in range(50):
            stage.bus.waiting.append(stage.cell.create())
        wait_until(lambda: stage.index.documents)
    saved = stage.saved()
    assert saved is not None
    assert saved.watermark == stage.bus.acknowledged
    assert saved.watermark + len(stage.bus.waiting) == 50


class FaultError(RuntimeError):
    """The process was killed here."""


class Fault:
    """Kills the indexer at the n-th call of `point`, before or after it does its work; afterwards nothing works."""

    def __init__(self, point: str, occurrence: int, moment: str) -> None:
        self._point = (moment, point)
        self._left = occurrence
        self.has_happened = Event()

    def reach(self, moment: str, point: str) -> None:
        if (moment, point) == self._point:
            self._left -= 1
            if self._left <= 0:
                self.has_happened.set()
        if self.has_happened.is_set():
            raise FaultError(f"{moment} {point}")


class Mortal:
    """Something that a killed process can no longer use. Its broker sees a closed connection, though."""

    def __init__(self, target: object, fault: Fault) -> None:
        self._target = target
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or name == "close":
            return value

        def call(*arguments: object, **options: object) -> object:
            self._fault.reach("before", name)
            result = value(*arguments, **options)
            self._fault.reach("after", name)
            return result

        return call


@pytest.mark.parametrize("point", ["write", "make_searchable", "save_progress", "ack", "changes_after", "scan"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("occurrence", [1, 2, 3])
def test_crash_anywhere_leaves_index_and_cell_equal_after_a_restart(
    stage: Stage, point: str, moment: str, occurrence: int
) -> None:
    stage.cell.create_many(12)
    stage.cell.prune(2)
    fault = Fault(point, occurrence, moment)
    stage.mortal = lambda target: Mortal(target, fault)

    def crashed_under_load() -> bool:
        message = stage.cell.update(next(iter(stage.cell.rows)), host="b")
        if stage.cell.last_sequence % 3:  # the others get lost
            stage.bus.waiting.append(message)
        return fault.has_happened.is_set()

    with pytest.raises(FaultError), stage.running():
        wait_until(crashed_under_load)
    stage.mortal = lambda target: target
    with stage.running():
        wait_until(stage.is_followed_to_the_end)
    assert versions(stage.index) == stage.cell.versions()
    assert {uuid: document.version for uuid, document in stage.index.searchable.items()} == stage.cell.versions()


def test_mistake_of_what_runs_beside_the_followers_stops_the_indexer(stage: Stage) -> None:
    auditing: Future[None] = Future()
    auditing.set_exception(RuntimeError("a mistake"))
    with pytest.raises(RuntimeError, match="a mistake"):
        stage.service.run(Event(), [auditing])


def test_mistake_of_the_program_stops_the_indexer_instead_of_hiding(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistake(_sequence: int, _limit: int) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(stage.cell, "changes_after", mistake)
    stage.cell.create()
    with pytest.raises(RuntimeError, match="a mistake"), stage.running():
        wait_until(lambda: stage.service.health == {})


def test_metrics_show_watermark_and_lag(stage: Stage) -> None:
    def metric(name: str) -> float | None:
        return stage.sample(name, cell=CELL_UUID)

    with stage.running():
        for _ in range(5):
            stage.bus.waiting.append(stage.cell.create())
        stage.bus.waiting.append(stage.cell.heartbeat(at=LONG_AGO))
        wait_until(lambda: metric("watermark") == 5)
        wait_until(lambda: metric("fresh_as_of_seconds") == LONG_AGO / 1e6)
        assert metric("lag_changes") == 0
        wait_until(lambda: metric("complete") == 1)


def test_metrics_of_a_cell_are_there_after_a_restart_before_anything_happens(stage: Stage) -> None:
    with stage.running():
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)

    def metric(name: str, **labels: str) -> float | None:
        return stage.sample(name, cell=CELL_UUID, **labels)

    with stage.running():
        wait_until(lambda: metric("watermark") == 1)
        assert metric("complete") == 1
        assert metric("holes_total") == metric("documents_total", outcome="rejected") == 0


def test_cell_is_called_complete_only_while_lists_may_rely_on_it(stage: Stage) -> None:
    """What another process found wrong, or took back, counts as what the follower itself knows."""

    def is_complete() -> bool:
        return stage.sample("complete", cell=CELL_UUID) == 1

    with stage.running():
        stage.bus.waiting.append(stage.cell.create())
        wait_until(is_complete)
        stage.index.save_state(REPAIRS, {CELL_UUID: True})
        wait_until(lambda: not is_complete())
        stage.index.save_state(REPAIRS, {CELL_UUID: None})
        wait_until(is_complete)
        stage.index.failures = 1_000_000
        wait_until(lambda: not is_complete())
        stage.index.failures = 0
        wait_until(is_complete)


def test_index_that_is_away_is_counted_without_any_change_that_it_would_have_to_take(stage: Stage) -> None:
    with stage.running():
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end)
        stage.index.failures = 1_000_000
        wait_until(lambda: (stage.sample("failures_total", cell=CELL_UUID, kind="IndexUnavailableError") or 0) > 1)
        stage.index.failures = 0


def test_failures_are_shown_by_the_metrics_until_they_are_solved_also_after_a_restart(stage: Stage) -> None:
    def shown() -> float | None:
        return stage.sample("dead_letters", cell=CELL_UUID)

    with stage.running():
        wait_until(lambda: shown() == 0)
        stage.bus.waiting.append(Message(b"{", ROUTING_KEY, {}))
        wait_until(lambda: shown() == 1)
    with stage.running():
        wait_until(lambda: shown() == 1)
        stage.failures.kept.clear()
        wait_until(lambda: shown() == 0)


def test_dead_letter_on_a_bus_that_ends_with_the_process_comes_again_from_the_changelog(stage: Stage) -> None:
    """The fleet database cannot be written, say because the disk is full, until after a restart."""
    stage.bus.is_durable = False
    message = stage.cell.create()
    stage.cell.changes[0] = replace(stage.cell.changes[0], message=b"{")
    stage.failures.is_away = True
    with stage.running() as service:
        stage.bus.waiting.append(replace(message, body=b"{"))
        wait_until(lambda: CELL_UUID in service.health and service.health[CELL_UUID].problem)
    assert (saved := stage.saved()) is None or saved.watermark == 0
    stage.bus.waiting.clear()
    stage.failures.is_away = False
    with stage.running():
        wait_until(lambda: stage.failures.found, 60)


def test_row_that_the_index_refused_is_tried_again_by_itself(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.indexer.writing.rereading._REJECTED_RETRY_S", 0.01)
    message = stage.cell.create()
    [uuid] = stage.cell.rows
    stage.index.refused[uuid] = "the name is too long"
    with stage.running():
        stage.bus.waiting.append(message)
        wait_until(lambda: (saved := stage.saved()) is not None and saved.watermark == 1 and not saved.is_complete)
        stage.index.refused.clear()
        wait_until(stage.is_followed_to_the_end)
        wait_until(lambda: uuid in stage.index.searchable)


def test_work_that_does_not_get_done_is_noticed(stage: Stage) -> None:
    may_go_on = Event()
    with stage.running(SETTINGS.model_copy(update={"liveness_timeout_s": 0.5})) as service:
        wait_until(stage.is_followed_to_the_end)
        stage.index.before_write = lambda: may_go_on.wait(60)
        stage.bus.waiting.append(stage.cell.create())
        wait_until(lambda: "one" in service.stuck, 60)
        with watched(service) as probes:
            assert probes.healthz().body["cells"] == ["one"]
        may_go_on.set()
        wait_until(stage.is_followed_to_the_end, 60)
        wait_until(lambda: service.stuck == [], 60)


@pytest.mark.parametrize("what", ["index", "bus", "cell", "lease"])
def test_waiting_for_what_is_away_is_alive(stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A heartbeat signs as often as something is tried again."""
    signs: Counter[SignOfLife] = Counter()
    monkeypatch.setattr(SignOfLife, "give", lambda sign: signs.update([sign]))
    stage.cell.create_many(10)
    stage.cell.prune(5)
    stage.bus.is_away = what == "bus"
    stage.cell.is_away = what == "cell"
    if what == "lease":
        stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "index sync"
    with stage.running() as service:
        wait_until(lambda: CELL_UUID in service.health)
        stage.index.failures = 1_000_000 if what == "index" else 0
        before = signs.copy()
        # That of the indexer itself, and that of the cell.
        wait_until(lambda: len([sign for sign in signs if signs[sign] > before[sign] + 3]) == 2, 60)
        stage.index.failures = 0


def test_refusal_that_repeats_is_no_progress(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person must look: nothing comes back by itself."""

    def refuse(_documents: object) -> None:
        raise IndexRequestError("the mapping is another one")

    with stage.running(SETTINGS.model_copy(update={"liveness_timeout_s": 0.5})) as service:
        wait_until(stage.is_followed_to_the_end)
        with monkeypatch.context() as patched:
            patched.setattr(stage.index, "write", refuse)
            stage.bus.waiting.append(stage.cell.create())
            wait_until(lambda: "one" in service.stuck, 60)
        wait_until(stage.is_followed_to_the_end, 60)


def test_indexer_is_ready_while_the_index_takes_what_comes(stage: Stage) -> None:
    stage.index.failures = 1_000_000
    with stage.running() as service, watched(service) as probes:
        wait_until(lambda: service.problem)
        assert not probes.readyz().is_well
        assert probes.healthz().is_well
        stage.index.failures = 0
        wait_until(lambda: probes.readyz() == Probe(True, READY), 60)
        stage.bus.is_away = True
        wait_until(lambda: probes.readyz().body["status"] == "degraded", 60)
        assert probes.readyz().is_well
        stage.bus.is_away = False
        wait_until(lambda: probes.readyz() == Probe(True, READY), 60)


READY = {"status": "ready", "index": "ok", "cells": {"one": "following"}}


@contextmanager
def watched(service: IndexerService) -> Iterator[IndexerProbes]:
    probes = IndexerProbes()
    with probes.watching(service):
        yield probes
    assert probes.healthz().is_well, "one that has ended is not one that hangs"
    assert not probes.readyz().is_well


def test_index_that_is_suspected_is_degraded_and_ready(stage: Stage) -> None:
    probes = IndexerProbes()
    with stage.running() as service, probes.watching(service, lambda: True):
        wait_until(lambda: probes.readyz() == Probe(True, READY | {"status": "degraded", "index": "suspected"}), 60)


@pytest.mark.parametrize("absurd", [10**18, 1000])
def test_number_that_the_cell_has_not_given_out_leaves_no_hole_for_ever(stage: Stage, absurd: int) -> None:
    """An external producer may send any header, and a heartbeat may be forged."""
    elsewhere = MemoryCell(OTHER_UUID)
    message = elsewhere.create()
    [external] = elsewhere.rows
    with stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        stage.bus.waiting.append(Message(message.body, ROUTING_KEY, {SEQUENCE_HEADER: absurd}))
        stage.bus.waiting.append(stage.cell.create())
        wait_until(lambda: external in stage.index.searchable, 60)
        follower = service._running[CELL_UUID].follower
        wait_until(lambda: follower.highest_known == stage.cell.last_sequence, 60)
        stage.bus.waiting.append(stage.cell.create())
        stage.bus.waiting.append(stage.cell.heartbeat(at=LONG_AGO))
        wait_until(lambda: stage.saved() == CellProgress(CELL_UUID, 2, LONG_AGO, is_complete=True), 60)


def test_indexer_that_starts_does_not_save_its_beginnings_over_the_progress_of_another(stage: Stage) -> None:
    """Nothing was saved when it looked, and the other one saves while it is still busy."""
    stage.cell.create()
    others = CellProgress(CELL_UUID, 1, LONG_AGO, is_complete=True)
    read_while_busy = Event()
    stage.cell.is_away = True
    with stage.running() as service:
        wait_until(lambda: CELL_UUID in service.health and service.health[CELL_UUID].problem)
        stage.index.save_progress([others])
        searchable = stage.index.make_searchable

        def refreshed() -> None:
            read_while_busy.set()
            searchable()

        stage.index.make_searchable = refreshed  # type: ignore[method-assign]
        wait_until(read_while_busy.is_set)
        read_while_busy.clear()
        wait_until(read_while_busy.is_set)
        assert stage.saved() == others
        stage.cell.is_away = False
        wait_until(lambda: service.health[CELL_UUID].problem is None)
        wait_until(lambda: versions(stage.index) == stage.cell.versions())
    assert stage.saved() == others, "what it knows is less"


def test_indexer_that_takes_over_goes_on_from_what_the_other_one_has_saved(stage: Stage) -> None:
    """The other one has acknowledged what this one has never seen: no hole that has to be waited out."""
    patient = SETTINGS.model_copy(update={"hole_timeout_s": 3600})
    with stage.running(patient):
        wait_until(stage.is_followed_to_the_end)
        stage.cell.create_many(5)
        stage.sync()  # as the other one
        stage.bus.waiting.append(stage.cell.create())
        wait_until(stage.is_followed_to_the_end, 60)


def test_indexer_that_has_synced_does_not_save_less_than_the_one_that_is_active_now(stage: Stage) -> None:
    stage.cell.create_many(5)
    stage.cell.prune(5)
    refreshed = Event()
    searchable = stage.index.make_searchable

    def note() -> None:
        refreshed.set()
        searchable()

    with stage.running() as service:
        wait_until(stage.is_followed_to_the_end)
        coming = [stage.cell.create() for _ in range(5)]
        stage.index.save_progress([CellProgress(CELL_UUID, 10, LONG_AGO, is_complete=True)])  # as the active one
        stage.index.make_searchable = note  # type: ignore[method-assign]
        seen: set[int] = set()
        save_progress = stage.index.save_progress

        def see(progress: Sequence[CellProgress], over: Mapping[str, CellProgress] | None = None) -> Set[str]:
            changed = save_progress(progress, over)
            seen.add(stage.index.saved[CELL_UUID].watermark)
            return changed

        stage.index.save_progress = see  # type: ignore[method-assign]
        stage.bus.waiting.append(coming[0])
        follower = service._running[CELL_UUID].follower
        wait_until(lambda: follower.progress.watermark == 6)
        for _ in range(3):
            refreshed.clear()
            wait_until(refreshed.is_set)
        assert seen <= {10}
