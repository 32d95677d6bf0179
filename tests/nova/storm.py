"""A deployment of Nova that changes by Nova's own code, and by hand: `storm.py WORLD.json`, in Nova's environment.

WORLD.json is that of make_world.py. It says `ready` when the deployment is made. For each line `SEED COUNT` that it
reads it makes that many random changes, and answers `done`: servers created, changed, hidden and deleted in two cells,
their tables, what the API database has of them, and what `nova-manage db archive_deleted_rows` and `purge` move away.
Some transactions are rolled back, others stay open for long, and now and then a column comes, as with an upgrade.
With `bus` and `announced` (lines of nova.conf) Nova announces what it does.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import sys
import uuid
from collections.abc import Iterator

import make_world
import sqlalchemy
from nova import context, exception, objects
from nova.db.main import api as main_database
from oslo_db import exception as db_exception

CONTEXT = make_world.CONTEXT
# So many servers there are after a while.
_MOST = 150
STATES = ("active", "stopped", "paused", "error", "shelved_offloaded")


class Storm:
    """Changes of the servers of `cells`."""

    def __init__(self, cells: list[make_world.Cell], engines: list[sqlalchemy.Engine]) -> None:
        self._cells = cells
        self._engines = engines
        self._homes: dict[str, make_world.Cell] = {}
        self._size = next(iter(objects.FlavorList.get_all(CONTEXT)))
        self._draw = random.Random()
        self._open: list[tuple[int, sqlalchemy.Connection, str, make_world.Cell]] = []
        self._waiting: list[str] = []
        self._columns = 0

    def play(self, seed: int, count: int) -> None:
        self._draw = random.Random(seed)
        acts = (
            *(self.create, self.change, self.change, self.change, self.annotate, self.tag, self.fail, self.attach),
            *(self.network, self.lock, self.specify, self.group, self.delete, self.swap, self.by_hand, self.roll_back),
            *(self.build, self.heartbeat, self.begin, self.save_and_go_back),
            *(self.by_sql, self.by_sql),
        )
        for number in range(count):
            act = self._draw.choice(acts)
            # What another act has removed meanwhile, what is there already, and a server that was killed in between.
            with contextlib.suppress(exception.NovaException, sqlalchemy.exc.DBAPIError, db_exception.DBError):
                act()
                if number % 97 == 96:
                    self.archive()
                if number % 499 == 240:
                    self.upgrade()
            self.end(is_last=False)
        self.end(is_last=True)

    def create(self) -> None:
        cell = self._draw.choice(self._cells)
        name = f"storm-{self._draw.getrandbits(64):x}"
        made = cell.add(name, metadata={"made": name}, spec={"zone": self._draw.choice(["north", "south", None])})
        self._homes[made] = cell

    @contextlib.contextmanager
    def server(self) -> Iterator[tuple[objects.Instance, context.RequestContext]]:
        """One of them, in its cell."""
        instance_uuid, cell = self._any()
        with context.target_cell(CONTEXT, cell.mapping) as targeted:
            yield objects.Instance.get_by_uuid(targeted, instance_uuid), targeted

    def _any(self) -> tuple[str, make_world.Cell]:
        if not self._homes:
            raise exception.InstanceNotFound(instance_id="none yet")
        return self._draw.choice(list(self._homes.items()))

    def change(self) -> None:
        with self.server() as (instance, _):
            instance.vm_state = self._draw.choice(STATES)
            instance.task_state = self._draw.choice([None, "powering-on"])
            instance.display_name = f"named-{self._draw.getrandbits(24):x}"
            instance.host = self._draw.choice([None, "host-1", "host-2"])
            instance.save()

    def annotate(self) -> None:
        with self.server() as (instance, _):
            instance.metadata = {
                f"key-{number}": str(self._draw.random()) for number in range(self._draw.randint(0, 3))
            }
            instance.save()

    def tag(self) -> None:
        with self.server() as (instance, targeted):
            objects.TagList.create(targeted, instance.uuid, [f"tag-{self._draw.randint(0, 5)}"])
            if self._draw.random() < 0.5:
                objects.TagList.destroy(targeted, instance.uuid)

    def fail(self) -> None:
        with self.server() as (instance, targeted):
            instance.vm_state = "error"
            instance.save()
            objects.InstanceFault(
                targeted,
                instance_uuid=instance.uuid,
                code=500,
                message=f"storm {self._draw.getrandbits(32):x}",
                details=None,
                host=None,
            ).create()

    def attach(self) -> None:
        with self.server() as (instance, targeted):
            found = objects.BlockDeviceMappingList.get_by_instance_uuid(targeted, instance.uuid)
            if len(found) > 2:
                found[0].destroy()
                return
            objects.BlockDeviceMapping(
                targeted,
                instance_uuid=instance.uuid,
                source_type="volume",
                destination_type="volume",
                device_name=f"/dev/vd{'abc'[len(found)]}",
                boot_index=len(found),
                delete_on_termination=False,
                volume_id=str(uuid.UUID(int=self._draw.getrandbits(128))),
                no_device=False,
            ).create()

    def network(self) -> None:
        with self.server() as (instance, targeted):
            cache = objects.InstanceInfoCache.get_by_instance_uuid(targeted, instance.uuid)
            address = f"10.0.{self._draw.randint(0, 255)}.{self._draw.randint(1, 254)}"
            cache.network_info = make_world.network_info(("net", address, None))
            cache.save()

    def lock(self) -> None:
        with self.server() as (instance, _):
            instance.locked, instance.locked_by = True, "admin"
            instance.system_metadata["locked_reason"] = f"reason {self._draw.randint(0, 9)}"
            instance.save()

    def specify(self) -> None:
        instance_uuid, _ = self._any()
        spec = objects.RequestSpec.get_by_instance_uuid(CONTEXT, instance_uuid)
        spec.availability_zone = self._draw.choice(["north", "south", "west"])
        spec.save()

    def group(self) -> None:
        instance_uuid, _ = self._any()
        groups = objects.InstanceGroupList.get_all(CONTEXT)
        if groups and self._draw.random() < 0.3:
            self._draw.choice(list(groups)).destroy()
            return
        made = objects.InstanceGroup(
            CONTEXT, name="storm", policy="affinity", project_id=make_world.PROJECTS["demo"], user_id=make_world.USER
        )
        made.create()
        objects.InstanceGroup.add_members(CONTEXT, made.uuid, [instance_uuid])

    def delete(self) -> None:
        if len(self._homes) < 20 or (len(self._homes) < _MOST and self._draw.random() < 0.1):
            return
        with self.server() as (instance, _):
            instance.vm_state = "deleted"
            instance.save()
            instance.destroy()
            self._homes.pop(instance.uuid)
            mapping = objects.InstanceMapping.get_by_instance_uuid(CONTEXT, instance.uuid)
            mapping.queued_for_delete = True
            mapping.save()

    def swap(self) -> None:
        """Hidden and shown again, as the one row of a server that is resized across cells."""
        with self.server() as (instance, _):
            instance.hidden = not instance.hidden
            instance.save()

    def by_hand(self) -> None:
        instance_uuid, cell = self._any()
        cell.set(instance_uuid, display_description=f"by hand {self._draw.random()}")

    def by_sql(self) -> None:
        """Rows of other tables, each with a commit of its own."""
        instance_uuid, cell = self._any()
        for _ in range(5):
            number = self._draw.getrandbits(24)
            cell.execute(
                self._draw.choice(
                    [
                        "INSERT INTO tags (resource_id, tag) VALUES (:uuid, :tag)",
                        "DELETE FROM tags WHERE resource_id = :uuid AND tag <> :tag",
                        "UPDATE instances SET host = :host, task_state = NULL WHERE uuid = :uuid",
                        "UPDATE instance_metadata SET value = :host WHERE instance_uuid = :uuid AND deleted = 0",
                        "UPDATE instances SET vm_state = 'stopped' WHERE uuid = :uuid AND deleted = 0",
                        "INSERT INTO instance_faults (created_at, deleted, instance_uuid, code, message) "
                        "VALUES (NOW(), 0, :uuid, 500, :host)",
                    ]
                ),
                uuid=instance_uuid,
                tag=f"tag-{number % 9}",
                host=f"host-{number % 4}",
            )

    def roll_back(self) -> None:
        instance_uuid, cell = self._any()
        with self._engines[self._cells.index(cell)].connect() as connection, connection.begin() as transaction:
            connection.execute(
                sqlalchemy.text("UPDATE instances SET display_name = 'never' WHERE uuid = :uuid"),
                {"uuid": instance_uuid},
            )
            transaction.rollback()

    def begin(self) -> None:
        """A transaction that stays open while others are committed. Nothing else changes its server meanwhile."""
        if len(self._open) > 2 or len(self._homes) < 10:
            return
        instance_uuid, cell = self._any()
        connection = self._engines[self._cells.index(cell)].connect()
        # Otherwise it locks what lies between the rows, too.
        connection.execute(sqlalchemy.text("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"))
        connection.execute(
            sqlalchemy.text("UPDATE instances SET display_name = :name WHERE uuid = :uuid"),
            {"name": f"late-{self._draw.getrandbits(24):x}", "uuid": instance_uuid},
        )
        self._open.append((self._draw.randint(5, 60), connection, instance_uuid, self._homes.pop(instance_uuid)))

    def end(self, *, is_last: bool) -> None:
        """Commit, or roll back, what has been open for long enough; all, if it is the last time."""
        still = []
        for left, connection, instance_uuid, cell in self._open:
            if left and not is_last:
                still.append((left - 1, connection, instance_uuid, cell))
                continue
            with contextlib.suppress(sqlalchemy.exc.DBAPIError), contextlib.closing(connection):
                if self._draw.random() < 0.8:
                    connection.commit()
            self._homes[instance_uuid] = cell
        self._open = still

    def save_and_go_back(self) -> None:
        instance_uuid, cell = self._any()
        with self._engines[self._cells.index(cell)].begin() as connection:
            for statement in (
                "UPDATE instances SET display_description = 'kept' WHERE uuid = :uuid",
                "SAVEPOINT here",
                "UPDATE instances SET display_name = 'taken back' WHERE uuid = :uuid",
                "ROLLBACK TO SAVEPOINT here",
            ):
                connection.execute(sqlalchemy.text(statement), {"uuid": instance_uuid})

    def upgrade(self) -> None:
        """A column more, for which the server waits until no transaction is open."""
        self.end(is_last=True)
        self._columns += 1
        with self._draw.choice(self._engines).begin() as connection:
            connection.execute(sqlalchemy.text(f"ALTER TABLE instances ADD COLUMN storm_{self._columns} INT"))

    def build(self) -> None:
        self._waiting.append(make_world.build_request(f"waiting-{self._draw.getrandbits(32):x}", self._size))
        if self._draw.random() < 0.5 or len(self._waiting) > 20:
            objects.BuildRequest.get_by_instance_uuid(CONTEXT, self._waiting.pop(0)).destroy()

    def heartbeat(self) -> None:
        with self._draw.choice(self._engines).begin() as connection:
            connection.execute(sqlalchemy.text("UPDATE services SET report_count = report_count + 1"))

    def archive(self) -> None:
        for cell in self._cells:
            with context.target_cell(CONTEXT, cell.mapping) as targeted:
                main_database.archive_deleted_rows(targeted, max_rows=50)
                if self._draw.random() < 0.3:
                    main_database.purge_shadow_tables(targeted, None)


def main() -> None:
    world = json.loads(pathlib.Path(sys.argv[1]).read_text())
    make_world.begin(world)
    make_world.make_schemas(world)
    flavors = {"small": make_world.flavor("m1.small", "1")}
    engines = {name: sqlalchemy.create_engine(world[name]) for name in ("cell1", "cell2")}
    cells = [make_world.Cell(name, engine, flavors) for name, engine in engines.items()]
    for cell in cells:
        cell.add_service("host-1")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    storm = Storm(cells, list(engines.values()))
    for line in sys.stdin:
        storm.play(*map(int, line.split()))
        sys.stdout.write("done\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
