"""A stream over a cell that numbers nothing itself follows what indexers write into the cell's journal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet import journals as journals_module
from fleetlight.cells.fleet.journals import DetectedChange
from fleetlight.cells.model import Cell
from fleetlight.listing.watches import changelogs
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import MEMBER, ComputeFleet, compute_fleet
from tests.contract.streams import stream
from tests.support.fleets.documents import make_record, make_uuid


class NovaCell:
    """A cell of Nova in a fleet, as an indexer tells of it."""

    def __init__(self, fleet: ComputeFleet) -> None:
        self._journals = fleet.fleet.journals
        self.cell: Cell = fleet.fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere/nova.db", "")
        self._version = 0
        self.begin()

    def begin(self) -> None:
        """An indexer begins to follow it and cannot say what happened before."""
        self._journals.start_over(self.cell.uuid)
        self.follow(system_clock())

    def follow(self, at: int) -> None:
        self._journals.confirm(self.cell.uuid, at)

    def tell(self, number: int, *, is_gone: bool = False, **values: Any) -> str:
        self._version += 1
        record = make_record(number, **{"project_id": "demo", "user_id": "ada", **values})
        self._journals.append(self.cell.uuid, [DetectedChange(make_uuid(number), self._version, record, is_gone)])
        return make_uuid(number)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputeFleet]:
    monkeypatch.setattr("fleetlight.listing.watches.feed._JOURNAL_INTERVAL_S", 0.05)
    with compute_fleet(tmp_path) as made:
        yield made


@pytest.fixture
def nova(fleet: ComputeFleet) -> NovaCell:
    return NovaCell(fleet)


def test_changes_of_all_kinds_of_cells_are_told_and_the_stream_is_complete(fleet: ComputeFleet, nova: NovaCell) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, "name=web", MEMBER) as watch:
            assert (await watch.next()).data == {"complete": True}
            nova.tell(1, display_name="web-of-others", project_id="other")
            theirs = nova.tell(2, display_name="web-of-nova")
            event = await watch.next()
            assert (event.name, event.data["server"]["id"]) == ("changed", theirs)
            assert event.data["server"]["name"] == "web-of-nova"
            own = fleet.create("north", display_name="web-of-ours")
            fleet.number_changes()
            assert await watch.told() == ("changed", own)
            nova.tell(2, display_name="db")
            assert await watch.told() == ("removed", theirs)

    api.run(scenario())


def test_server_that_its_cell_does_not_have_any_more_is_removed(fleet: ComputeFleet, nova: NovaCell) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            assert await watch.told_of(nova.tell(1)) == "changed"
            assert await watch.told_of(nova.tell(1, is_gone=True)) == "removed"

    api.run(scenario())


def test_stream_goes_on_from_the_last_id_with_the_newest_state_of_each_server(
    fleet: ComputeFleet, nova: NovaCell
) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as first:
            await first.next()
            assert await first.told_of(nova.tell(1)) == "changed"
        nova.tell(2, display_name="one")
        missed = [nova.tell(3), nova.tell(2, display_name="two")]
        async with stream(api, last_id=first.last_id) as second:
            assert (await second.next()).name == "ready"
            told = [await second.next() for _ in missed]
            assert [event.data["server"]["id"] for event in told] == missed
            assert told[1].data["server"]["name"] == "two"

    api.run(scenario())


def test_journal_that_began_anew_or_does_not_go_back_that_far_is_told_as_a_reset(
    fleet: ComputeFleet, nova: NovaCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (journals_module, changelogs):
        monkeypatch.setattr(module, "KEPT", 2)
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
        for number in (1, 2, 3):
            nova.tell(number)
        async with stream(api, last_id=watch.last_id) as again:
            assert await again.names(2) == ["ready", "reset"]
            nova.begin()
            assert (await again.next()).name == "reset"
            assert await again.told_of(nova.tell(4)) == "changed"

    api.run(scenario())


def test_cell_that_no_indexer_follows_makes_the_stream_incomplete_and_nothing_is_missed(
    fleet: ComputeFleet, nova: NovaCell
) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            assert (await watch.next()).data == {"complete": True}
            nova.follow(system_clock() - 3600 * 1_000_000)
            assert (await watch.next()).name == "incomplete"
            uuid = nova.tell(1)
            nova.follow(system_clock())
            told = {event.name: event.data for event in [await watch.next() for _ in range(2)]}
            assert told.keys() == {"changed", "complete"}
            assert told["changed"]["server"]["id"] == uuid

    api.run(scenario())


def test_cell_that_was_never_followed_is_said_so_and_is_a_reset_when_it_is(fleet: ComputeFleet) -> None:
    api = fleet.api()
    fleet.fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere/nova.db", "")

    async def scenario() -> None:
        async with stream(api) as watch:
            assert (await watch.next()).data == {"complete": False}
            nova = NovaCell(fleet)
            assert set(await watch.names(2)) == {"complete", "reset"}
            assert await watch.told_of(nova.tell(1)) == "changed"

    api.run(scenario())
