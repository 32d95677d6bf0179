"""Nova's own list, timed by `scripts/bench list`: `nova_peer.py WORLD.json prepare|serve N`, in Nova's environment.

The file says `api` and `template` (URLs of databases) and `folder`. `prepare` makes both schemas with the migrations of
Nova, and in the cell one instance that all others are copied from. `serve`, which asks N cells at once, reads requests,
lines of JSON with `limit` and `delay_s` (added to each statement), lists, and writes a line when it has; `{"tell":
true}` has it write the uuids of the list before.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time

import nova.conf
import sqlalchemy
from nova import context, objects
from nova.compute import instance_list
from nova.db import migration
from nova.db.api import api as api_database
from nova.db.main import api as main_database

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from tests.nova import make_world

# What Nova's API asks for in a detailed list of the newest microversion, and its view always does.
EXPECTED = ["flavor", "info_cache", "metadata", "services", "system_metadata", "tags", "trusted_certs"]
PROTOTYPE = "prototype"
# An image has some that servers show, and some that they do not.
IMAGE = (
    *("os_distro", "os_version", "architecture", "hw_disk_bus", "hw_vif_model", "hw_machine_type", "hw_rng_model"),
    *("min_disk", "min_ram", "base_image_ref", "container_format", "disk_format", "owner_specified.sha256"),
)


def configure(world: dict[str, str]) -> None:
    make_world.begin({**world, "cell2": world["template"]})
    main_database.configure(nova.conf.CONF)
    api_database.configure(nova.conf.CONF)


def prepare(world: dict[str, str]) -> None:
    migration.db_sync(database="api")
    mapping = objects.CellMapping(
        make_world.CONTEXT,
        uuid=make_world.identifier("template"),
        name="template",
        database_connection=world["template"],
        transport_url="none:///",
    )
    mapping.create()
    with context.target_cell(make_world.CONTEXT, mapping) as targeted:
        migration.db_sync(context=targeted)
        objects.Service(targeted, host="compute1", binary="nova-compute", topic="compute", report_count=1).create()
    engine = sqlalchemy.create_engine(world["template"])
    make_world.Cell("template", engine, {"small": make_world.flavor("m1.small", "1")}).add(
        PROTOTYPE,
        host="compute1",
        node="compute1.example.org",
        compute_id=1,
        launched_on="compute1",
        launched_at=make_world.START,
        metadata={"role": "web", "owner": "shop-team", "cost-centre": "42"},
        system_metadata={f"image_{name}": f"of {name}" for name in IMAGE} | {"boot_roles": "member,reader"},
        tags=("shop", "production"),
        volumes=(("data", True),),
        ports=make_world.network_info(("private", "10.0.0.4", "192.0.2.4"), ("storage", "10.1.0.4", None)),
        spec={"zone": "east"},
    )
    engine.dispose()


def serve() -> None:
    delay_s = 0.0
    listed = []

    def wait(*_: object) -> None:
        if delay_s:
            time.sleep(delay_s)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", wait)
    for line in sys.stdin:
        asked = json.loads(line)
        if "tell" in asked:
            answer = [instance.uuid for instance in listed]
        else:
            delay_s = asked["delay_s"]
            listed, down = instance_list.get_instance_objects_sorted(
                make_world.CONTEXT.elevated(),
                {"deleted": False},
                asked["limit"],
                None,
                EXPECTED,
                ["created_at"],
                ["desc"],
            )
            answer = {"count": len(listed), "down": down}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def main() -> None:
    world = json.loads(pathlib.Path(sys.argv[1]).read_text())
    configure(world)
    match sys.argv[2:]:
        case ["prepare"]:
            prepare(world)
        case ["serve", threads]:
            nova.conf.CONF.set_override("cell_worker_thread_pool_size", int(threads))
            serve()


if __name__ == "__main__":
    main()
