"""What rows of Nova's databases may be like, and Nova's own objects never make."""

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, insert, update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.nova_db.build_requests import NovaBuildRequests
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.query.filters import Matches
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.documents import CREATED_AT, make_uuid
from tests.support.fleets.nova_tables import CELL0, CELL1, SmallNova, small_nova


@pytest.fixture
def nova(tmp_path: Path) -> SmallNova:
    return small_nova(tmp_path)


def opened(nova: SmallNova) -> NovaDbAdapter:
    return NovaDbAdapter(
        Cell(
            CELL1, "cell1", CellKind.NOVA_DB, nova.urls["cell1"], "", api_database_url=nova.urls["api"], nova_uuid=CELL1
        )
    )


def record(nova: SmallNova, uuid: str) -> Record:
    with closing(opened(nova)) as adapter:
        row = adapter.find(uuid)
    assert row is not None
    return row.record


def flavor(name: str) -> str:
    data = {"flavorid": name, "name": name, "memory_mb": 1, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
    return msgspec.json.encode({"cur": {"nova_object.data": data}}).decode()


def test_of_several_rows_of_extras_the_living_and_newest_counts(nova: SmallNova) -> None:
    uuid = nova.add("cell1", 1)
    for number, (deleted, text) in enumerate(((0, flavor("old")), (0, flavor("new")), (3, None)), 1):
        row = {"id": number, "instance_uuid": uuid, "deleted": deleted, "flavor": text}
        nova.insert("cell1", tables.instance_extra, row)
    assert record(nova, uuid)["flavor_id"] == "new"


def test_instance_without_anything_that_hangs_off_it_is_read(nova: SmallNova) -> None:
    found = record(nova, nova.add("cell1", 1, vm_state=None, display_name=None, created_at=None, hidden=None))
    assert (found["flavor"], found["ip_addresses"], found["metadata"], found["tags"]) == (None, [], {}, [])
    assert (found["hidden"], found["deleted"]) == (False, False)


def test_json_that_was_cut_off_is_as_good_as_none(nova: SmallNova) -> None:
    uuid = nova.add("cell1", 1)
    nova.insert(
        "cell1", tables.instance_extra, {"id": 1, "instance_uuid": uuid, "deleted": 0, "flavor": flavor("m1")[:-9]}
    )
    nova.insert(
        "cell1", tables.instance_info_caches, {"id": 1, "instance_uuid": uuid, "deleted": 0, "network_info": '[{"id": '}
    )
    found = record(nova, uuid)
    assert (found["flavor"], found["ip_addresses"]) == (None, [])


def test_row_that_moves_while_rows_are_filtered_in_batches_is_found(
    nova: SmallNova, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern of a time is left to Python, which filters 500 rows at a time."""
    moving = nova.add("cell1", 1000, display_name="web", created_at=1_000_000_000_000_000)
    others = [
        {
            "id": n,
            "uuid": make_uuid(n),
            "deleted": 0,
            "hidden": False,
            "display_name": f"n{n}",
            "created_at": CREATED_AT,
        }
        for n in range(1, 601)
    ]
    engine = create_engine(nova.urls["cell1"])
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    with engine.begin() as connection:
        connection.execute(insert(tables.instances), others)
    by_name = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])
    with closing(opened(nova)) as adapter:
        read = adapter._read

        def and_then_it_moves(*args: Any) -> list[InstanceRow]:
            rows = read(*args)
            with engine.begin() as connection:
                connection.execute(update(tables.instances).where(tables.instances.c.id == 1000), {"display_name": "a"})
            return rows

        monkeypatch.setattr(adapter, "_read", and_then_it_moves)
        page = adapter.read_page(PageRequest(Matches("created_at", "^2001"), by_name, 10))
    engine.dispose()
    assert [row.uuid for row in page] == [moving]


def test_cell_confirms_only_what_its_deployment_maps_to_it(nova: SmallNova) -> None:
    here, elsewhere = nova.add("cell1", 1), nova.add("cell0", 2)
    with closing(opened(nova)) as adapter:
        assert adapter.confirm_here([here, elsewhere, make_uuid(3)]) == [here]
        assert adapter.living_elsewhere([here, elsewhere, make_uuid(3)]) == {elsewhere: CELL0}


def test_what_is_in_no_cell_yet_lives_in_none(nova: SmallNova) -> None:
    waiting, placed = nova.add("cell1", 1), nova.add("cell1", 2)
    mappings = tables.instance_mappings
    nova.execute("api", update(mappings).where(mappings.c.instance_uuid == waiting).values(cell_id=None))
    url = nova.urls["api"]
    stands_for_all = Cell("b" * 8, "build-requests", CellKind.NOVA_DB, url, "", api_database_url=url)
    with closing(NovaBuildRequests(stands_for_all)) as adapter:
        assert adapter.confirm_here([waiting, placed]) == [waiting]
        assert adapter.living_elsewhere([waiting, placed]) == {placed: CELL1}
    with closing(opened(nova)) as adapter_of_cell:
        assert adapter_of_cell.living_elsewhere([waiting, placed]) == {}
