"""A field that is added to the definitions goes from each kind of cell to all faces, and nothing else names it."""

import subprocess
import sys
from pathlib import Path

# A program of its own, since modules derive what they need of the fields when they are imported.
PROGRAM = """
import asyncio, sys
from pathlib import Path
import fleetlight.resources.instance as definitions
from fleetlight.resources.fields import Field, ItemType, Kind, Member

# The one definition, and the member that shows it.
known = definitions.INSTANCE_FIELDS
rack = Field("rack", "Rack", Kind.TEXT, "Rack that the host stands in")
shown = {**known.members, "rack": Member("OS-EXT-SRV-ATTR:rack", 104, is_for_admins=True)}
INSTANCE_FIELDS = definitions.INSTANCE_FIELDS = ItemType("instance", (*known.values(), rack), members=shown)

from sqlalchemy import select, text

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.elasticsearch.mapping import instance_mapping
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.notifications.envelope import decode
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from tests.support.fleets.instance_operations import InstanceOperations
from fleetlight.query.filters import check
from fleetlight.query.filters import Matches
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.query.to_dsl import to_dsl
from fleetlight.views.compute.view import FullTemplate

folder = Path(sys.argv[1])
fleet_engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
upgrade_fleet(fleet_engine)
fleet = Fleet(fleet_engine)
cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{folder}/one.db", "memory://")
engine = create_database_engine(cell.database_url)
upgrade_cell(engine)
with engine.begin() as connection:  # what a migration of the cells would do
    connection.execute(text("ALTER TABLE instances ADD COLUMN rack TEXT"))

operations = InstanceOperations(engine, fleet, cell)
for name, rack in (("a", "r9"), ("b", "r10"), ("c", None), ("d", "x1")):
    operations.create({"project_id": "demo", "user_id": "ada", "display_name": name, "rack": rack})

# In the cell, by filter and order.
wanted = Matches("rack", "^r")
check(wanted, INSTANCE_FIELDS)
request = PageRequest(wanted, SortOrder.of(INSTANCE_FIELDS, [SortKey("rack")]), 10)
assert [row.record["rack"] for row in NativeAdapter(cell).read_page(request)] == ["r10", "r9"]

# On the bus, by the general way and by the short one.
with engine.connect() as connection:
    bodies = connection.execute(select(changes.c.message).order_by(changes.c.id)).scalars().all()
assert [FullInstancePayload.unwrap(decode(body).payload).rack for body in bodies] == ["r9", "r10", None, "x1"]
records = [read_record(body) for body in bodies]
assert [record["rack"] for record in records] == ["r9", "r10", None, "x1"]

# In the index, by the same filter and order; and in the item.
settings = IndexSettings(path=folder / "index.db")
writer = open_writer(settings)
writer.prepare()
writer.write([to_document(cell.uuid, 1, record) for record in records])
writer.make_searchable()
template = FullTemplate(104, is_admin=True, versioned_base="/v2.1", plain_base="")
found = asyncio.run(open_searcher(settings).search(request, [cell.uuid], template))
assert [row.position[0] for row in found] == ["r10", "r9"], found
assert [b'"OS-EXT-SRV-ATTR:rack":"r' in row.item for row in found] == [True, True], found

assert instance_mapping()["properties"]["rack"] == {"type": "keyword"}
assert "rack" in str(to_dsl(wanted, INSTANCE_FIELDS))
# From a server of a Nova: the row of its database, and the item of its API.
import msgspec
from fleetlight.cells.kinds.nova_api.items import to_record
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.model import Cell
from tests.support.fleets.nova_tables import CELL1, small_nova
nova = small_nova(folder)
for number, rack in enumerate(("r9", "r10", None), 1):
    nova.add("cell1", number, rack=rack)
rows = NovaDbAdapter(Cell(CELL1, "cell1", CellKind.NOVA_DB, nova.urls["cell1"], "")).read_page(request)
assert [row.record["rack"] for row in rows] == ["r10", "r9"], rows
assert to_record(msgspec.json.decode(template.render_record(rows[0].record)))["rack"] == "r10"
for minor, is_admin in ((103, True), (104, False)):
    blind = FullTemplate(minor, is_admin=is_admin, versioned_base="/v2.1", plain_base="")
    assert b"rack" not in blind.render_record(rows[0].record)

# What documents say of servers, what fields queries, the feed and the console can show, and to whom.
from fleetlight.api.compute.server_lists.shape import LISTED_SERVER
from fleetlight.api.query import scope
from fleetlight.views.query2.instance import INSTANCE_VALUES
assert ["OS-EXT-SRV-ATTR:rack" in str(LISTED_SERVER.schema(minor)) for minor in (103, 104)] == [False, True]
assert scope.ITEM_TYPES["instance"]["rack"].title == "Rack"
assert "rack" not in scope._of_owners("instance")
assert INSTANCE_VALUES["rack"].stored == "rack"
print("rack is everywhere")
"""


def test_new_field_takes_its_definition_and_the_member_that_shows_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("rack is everywhere\n")
