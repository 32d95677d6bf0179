"""A simulated host: guests and volumes are rows of the agent's database, so they survive its process.

The file `behaviour.json` in the agent's folder, read before each call, sets delays and failures of calls:
`{"node_snapshot": {"delay_s": 0.2}, "instance_start": {"failure": "no memory"}, "*": {"delay_s": 0.01}}`.
"""

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.drivers.driver import (
    RUNNING,
    GuestState,
    HypervisorState,
    VolumeGroup,
    disk_name,
    is_disk_of,
)
from fleetlight.manager.agents.errors import DriverError, UnknownGuestError

BEHAVIOUR_FILE = "behaviour.json"
_TABLES = """
CREATE TABLE IF NOT EXISTS boots (boot_id TEXT NOT NULL, booted_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS guests (
    name TEXT PRIMARY KEY, hypervisor TEXT NOT NULL, memory INTEGER NOT NULL, vcpus INTEGER NOT NULL,
    is_arriving INTEGER NOT NULL, is_leaving INTEGER NOT NULL, started_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS volumes (
    volume_group TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (volume_group, name));
"""


class Behaviour(BaseModel):
    """The behaviour of one call. delay_s: wait before it. failure: text with which it then fails."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_s: float = Field(default=0.0, ge=0)
    failure: str | None = None


class _Behaviours(RootModel[dict[str, Behaviour]]):
    """Behaviours by names of calls; `*` applies to all others."""


@dataclass(frozen=True, slots=True)
class HostSize:
    """The capacity of the host. memory_mib, disk_mib: all of it is for guests."""

    vcpus: int = 16
    memory_mib: int = 65_536
    disk_mib: int = 1_048_576


class SimulatedDriver:
    """A host with one volume group. hypervisors: they share its memory; the first is the default of guests."""

    is_transactional: ClassVar[bool] = True

    def __init__(
        self,
        database: AgentDatabase,
        folder: Path,
        size: HostSize,
        *,
        hypervisors: Sequence[str] = ("fake",),
        volume_group: str = "xenvg",
    ) -> None:
        self._database = database
        self._behaviour = folder / BEHAVIOUR_FILE
        self._size = size
        self._hypervisors = tuple(hypervisors)
        self._volume_group = volume_group
        with database.transaction() as connection:
            for statement in filter(str.strip, _TABLES.split(";")):
                connection.execute(statement)
            if connection.execute("SELECT count(*) FROM boots").fetchone()[0] == 0:
                _boot(connection)

    @property
    def hypervisors(self) -> Collection[str]:
        return self._hypervisors

    def before(self, call: str) -> None:
        """Delay a call, or let it fail, as behaviour.json says. Raises DriverError."""
        behaviour = self._behaviour_for(call)
        if behaviour.delay_s:
            time.sleep(behaviour.delay_s)
        if behaviour.failure is not None:
            raise DriverError(behaviour.failure)

    def changing(self) -> AbstractContextManager[object]:
        return self._database.transaction()

    def boot_id(self) -> str:
        with self._database.transaction() as connection:
            return str(connection.execute("SELECT boot_id FROM boots").fetchone()[0])

    def hypervisor(self, name: str) -> HypervisorState:
        if name not in self._hypervisors:
            return HypervisorState({}, {})
        now = time.time()
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT name, memory, vcpus, started_at FROM guests WHERE hypervisor = ? AND NOT is_arriving", (name,)
            ).fetchall()
            used = connection.execute("SELECT coalesce(sum(memory), 0) FROM guests").fetchone()[0]
        guests = {
            guest: GuestState(memory, vcpus, RUNNING, round(max(0.0, now - started_at), 1))
            for guest, memory, vcpus, started_at in rows
        }
        node = {
            "memory_total": self._size.memory_mib,
            "memory_free": self._size.memory_mib - used,
            "memory_dom0": 0,
            "cpu_total": self._size.vcpus,
            "cpu_nodes": 1,
            "cpu_sockets": 1,
            "cpu_dom0": 0,
        }
        return HypervisorState(node, guests)

    def volume_groups(self) -> Mapping[str, VolumeGroup]:
        with self._database.transaction() as connection:
            return {self._volume_group: VolumeGroup(self._size.disk_mib, self._free(connection))}

    def create(
        self,
        hypervisor: str | None,
        name: str,
        *,
        memory: int,
        vcpus: int,
        disks: Sequence[int],
        starts: bool,
        is_moved: bool,
    ) -> None:
        with self._database.transaction() as connection:
            for index, size in enumerate(disks):
                if self._size_of(connection, disk_name(name, index)) != size:
                    self.create_volume(self._volume_group, disk_name(name, index), size)
            if starts:
                self.start(hypervisor, name, memory=memory, vcpus=vcpus)

    def remove(self, name: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM guests WHERE name = ?", (name,))
            for (volume,) in connection.execute("SELECT name FROM volumes").fetchall():
                if is_disk_of(name, volume):
                    connection.execute("DELETE FROM volumes WHERE name = ?", (volume,))

    def start(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        self._add_guest(self._known_hypervisor(hypervisor), name, memory, vcpus, is_arriving=False)

    def shut_down(self, name: str, *, timeout_s: float) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM guests WHERE name = ?", (name,))

    def reboot(self, name: str) -> None:
        self._update(name, "started_at = ?", time.time())

    def pause(self, name: str) -> None:
        # A paused guest keeps its memory, so a snapshot shows it unchanged.
        self._require(name)

    def unpause(self, name: str) -> None:
        self._require(name)

    def suspend(self, name: str) -> None:
        self.shut_down(name, timeout_s=0)

    def rescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        with self._database.transaction():
            self.start(hypervisor, name, memory=memory, vcpus=vcpus)
            self.reboot(name)

    def unrescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        self.rescue(hypervisor, name, memory=memory, vcpus=vcpus)

    def rebuild(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int, starts: bool) -> None:
        with self._database.transaction():
            self.shut_down(name, timeout_s=0)
            if starts:
                self.start(hypervisor, name, memory=memory, vcpus=vcpus)

    def keep_contents(self, name: str) -> None:
        """Do nothing, since simulated disks have no contents."""

    def set_memory(self, name: str, memory: int) -> None:
        with self._database.transaction() as connection:
            self._check_memory(connection, name, memory)
            self._update(name, "memory = ?", memory)

    def accept(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        self._add_guest(self._known_hypervisor(hypervisor), name, memory, vcpus, is_arriving=True)

    def send_away(self, name: str, target: str) -> None:
        # The guest runs here until its arrival is confirmed.
        self._update(name, "is_leaving = ?", 1)

    def finish_arrival(self, name: str, *, has_succeeded: bool) -> None:
        if has_succeeded:
            self._update(name, "is_arriving = ?", 0)
            return
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM guests WHERE name = ? AND is_arriving", (name,))
            if self._is_here(connection, name):
                raise DriverError(f"instance '{name}' has arrived here")

    def finish_departure(self, name: str, *, has_succeeded: bool) -> None:
        with self._database.transaction() as connection:
            if has_succeeded:
                connection.execute("DELETE FROM guests WHERE name = ? AND is_leaving", (name,))
            else:
                connection.execute("UPDATE guests SET is_leaving = 0 WHERE name = ?", (name,))

    def grow_disk(self, name: str, index: int, size: int) -> None:
        volume = disk_name(name, index)
        with self._database.transaction() as connection:
            known = self._size_of(connection, volume)
            if known is None:
                raise DriverError(f"there is no volume '{volume}' in {self._volume_group}")
            self._check_room(connection, max(0, size - known))
            connection.execute("UPDATE volumes SET size = max(size, ?) WHERE name = ?", (size, volume))

    def create_volume(self, volume_group: str, name: str, size: int) -> None:
        self._check_volume_group(volume_group)
        with self._database.transaction() as connection:
            known = self._size_of(connection, name)
            if known is not None:
                raise DriverError(f"there is a volume '{name}' of {known} MiB in {volume_group} already")
            self._check_room(connection, size)
            connection.execute("INSERT INTO volumes VALUES (?, ?, ?)", (volume_group, name, size))

    def remove_volume(self, volume_group: str, name: str) -> None:
        self._check_volume_group(volume_group)
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM volumes WHERE volume_group = ? AND name = ?", (volume_group, name))

    def power_cycle(self) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM guests")
            _boot(connection)

    def _behaviour_for(self, call: str) -> Behaviour:
        try:
            behaviours = _Behaviours.model_validate_json(self._behaviour.read_bytes()).root
        except FileNotFoundError:
            return Behaviour()
        except (OSError, ValidationError) as error:
            raise DriverError(f"{self._behaviour} says nothing that can be done: {error}") from error
        return behaviours.get(call) or behaviours.get("*") or Behaviour()

    def _add_guest(self, hypervisor: str, name: str, memory: int, vcpus: int, *, is_arriving: bool) -> None:
        with self._database.transaction() as connection:
            known = connection.execute("SELECT is_arriving FROM guests WHERE name = ?", (name,)).fetchone()
            if known is not None:
                if is_arriving and not known[0]:
                    raise DriverError(f"instance '{name}' runs here already")
                # A guest that was arriving and is started here instead has arrived.
                self._update(name, "is_arriving = ?", int(is_arriving))
                return
            self._check_memory(connection, name, memory)
            connection.execute(
                "INSERT INTO guests VALUES (?, ?, ?, ?, ?, 0, ?)",
                (name, hypervisor, memory, vcpus, int(is_arriving), time.time()),
            )

    def _check_memory(self, connection: Connection, name: str, memory: int) -> None:
        used = connection.execute("SELECT coalesce(sum(memory), 0) FROM guests WHERE name <> ?", (name,)).fetchone()[0]
        free = self._size.memory_mib - used
        if memory > free:
            raise DriverError(f"instance '{name}' needs {memory} MiB of memory, and {free} MiB are free")

    def _is_here(self, connection: Connection, name: str) -> bool:
        return connection.execute("SELECT 1 FROM guests WHERE name = ?", (name,)).fetchone() is not None

    def _require(self, name: str) -> None:
        with self._database.transaction() as connection:
            if not self._is_here(connection, name):
                raise UnknownGuestError(name)

    def _update(self, name: str, change: str, value: float) -> None:
        with self._database.transaction() as connection:
            # `change` is one of the constants above.
            statement = f"UPDATE guests SET {change} WHERE name = ?"  # noqa: S608
            if connection.execute(statement, (value, name)).rowcount == 0:
                raise UnknownGuestError(name)

    def _known_hypervisor(self, name: str | None) -> str:
        if name is not None and name not in self._hypervisors:
            raise DriverError(f"this host has the hypervisor {', '.join(self._hypervisors)}, and not '{name}'")
        return name or self._hypervisors[0]

    def _size_of(self, connection: Connection, volume: str) -> int | None:
        """Return the size of a volume in MiB; None if it does not exist."""
        statement = "SELECT size FROM volumes WHERE volume_group = ? AND name = ?"
        found = connection.execute(statement, (self._volume_group, volume)).fetchone()
        return None if found is None else int(found[0])

    def _check_room(self, connection: Connection, size: int) -> None:
        free = self._free(connection)
        if size > free:
            raise DriverError(f"a volume of {size} MiB does not fit: {self._volume_group} has {free} MiB free")

    def _check_volume_group(self, name: str) -> None:
        if name != self._volume_group:
            raise DriverError(f"this host has the volume group {self._volume_group}, and not '{name}'")

    def _free(self, connection: Connection) -> int:
        used = connection.execute("SELECT coalesce(sum(size), 0) FROM volumes").fetchone()[0]
        return self._size.disk_mib - int(used)


def _boot(connection: Connection) -> None:
    connection.execute("DELETE FROM boots")
    connection.execute("INSERT INTO boots VALUES (?, ?)", (str(uuid.uuid4()), time.time()))
