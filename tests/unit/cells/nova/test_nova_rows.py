"""What rows of Nova's databases may be like, and Nova's own objects never make."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cells.adapters.nova_db import NovaDbAdapter
from cells.model import Cell, CellKind
from cells.nova import tables
from query.fields import Record
from tests.support.nova_tables import CELL1, SmallNova, small_nova


@pytest.fixture
def nova(tmp_path: Path) -> SmallNova:
    return small_nova(tmp_path)


def record(nova: SmallNova, uuid: str) -> Record:
    cell = Cell(
        CELL1, "cell1", CellKind.NOVA_DB, nova.urls["cell1"], "", api_database_url=nova.urls["api"], nova_uuid=CELL1
    )
    with closing(NovaDbAdapter(cell)) as adapter:
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
