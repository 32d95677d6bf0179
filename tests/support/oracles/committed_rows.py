"""What the servers of a Nova deployment were like, and when, by nothing but the rows in the log of its MariaDB.

The values come out of the log itself, whole, from its first byte on. (The product takes only uuids from it, and reads
the rows.) It needs full row images, and no statements.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Condition, Event, Thread
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import HeartbeatLogEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

Row = Mapping[str, Any]
Value = Any
"""What JSON can hold."""

# The column that names the server, of each table that is read.
_OWNERS = {
    "instances": "uuid",
    "instance_metadata": "instance_uuid",
    "instance_system_metadata": "instance_uuid",
    "instance_info_caches": "instance_uuid",
    "instance_faults": "instance_uuid",
    "block_device_mapping": "instance_uuid",
    "tags": "resource_id",
    "request_specs": "instance_uuid",
    "build_requests": "instance_uuid",
}
_MARKS = "marks"
ABSENT = None
"""The value of each part of a server that no list has."""


@dataclass(slots=True)
class Version:
    """A value of a part, since `at` (seconds of the monotonic clock, when the log had it)."""

    at: float
    value: Value


@dataclass
class CommittedRows:
    """schemas: of the cells and of the API database. It reads until `reading` ends."""

    port: int
    schemas: Collection[str]
    transactions: int = 0
    row_changes: int = 0
    _versions: dict[str, dict[str, list[Version]]] = field(default_factory=dict)
    _rows: dict[tuple[str, str], dict[str, dict[Any, Row]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    _columns: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _turn: Condition = field(default_factory=Condition)
    _marked: int = 0
    _failure: BaseException | None = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """In a thread of its own, also while the server is killed and starts again."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {_MARKS}")
            cursor.execute(f"CREATE TABLE {_MARKS}.{_MARKS} (id BIGINT PRIMARY KEY)")
            cursor.execute("SHOW BINARY LOGS")
            first = cursor.fetchone()
            assert first is not None
            statement = "SELECT table_schema, table_name, column_name FROM information_schema.columns ORDER BY 1, 2, "
            cursor.execute(statement + "ordinal_position")
            for schema, table, column in cursor.fetchall():
                self._columns.setdefault((schema, table), []).append(column)
        stop = Event()
        thread = Thread(target=self._read, args=(str(first[0]), stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)

    def connect(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)

    def catch_up(self, timeout_s: float = 60) -> None:
        """Return when everything that was committed before is known. Raises AssertionError."""
        mark = time.monotonic_ns()
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with closing(self.connect()) as connection, connection.cursor() as cursor:
                    cursor.execute(f"INSERT IGNORE INTO {_MARKS}.{_MARKS} VALUES (%s)", (mark,))  # noqa: S608
                    break
            except pymysql.MySQLError:
                assert time.monotonic() < deadline, "the database server does not answer"
                time.sleep(0.1)
        with self._turn:
            reached = self._turn.wait_for(
                lambda: self._marked >= mark or self._failure is not None, max(1.0, deadline - time.monotonic())
            )
            assert self._failure is None, repr(self._failure)
            assert reached, "the log does not come"

    def servers(self) -> Sequence[str]:
        """All that there ever were."""
        with self._turn:
            return list(self._versions)

    def values(self, uuid: str, part: str, since: float) -> Sequence[Value]:
        """Each value that a part of a server had at some moment from `since` on, the oldest first."""
        with self._turn:
            versions = self._versions.get(uuid, {}).get(part, [])
            begin = next((at for at in range(len(versions) - 1, -1, -1) if versions[at].at < since), -1)
            found = [version.value for version in versions[max(begin, 0) :]]
        return found if begin >= 0 else [ABSENT, *found]

    def history(self, uuid: str, part: str) -> Sequence[Version]:
        """All versions of a part, the oldest first."""
        with self._turn:
            return list(self._versions.get(uuid, {}).get(part, []))

    def _read(self, file: str, stop: Event) -> None:
        place = (file, 4)
        while not stop.is_set():
            stream = BinLogStreamReader(
                connection_settings={"host": "127.0.0.1", "port": self.port, "user": "root"},
                server_id=random.randrange(1 << 30, 1 << 31),
                blocking=True,
                resume_stream=True,
                log_file=place[0],
                log_pos=place[1],
                only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, XidEvent, HeartbeatLogEvent],
                only_tables=[*_OWNERS, _MARKS],
                only_schemas=[*self.schemas, _MARKS],
                slave_heartbeat=1.0,
                enable_logging=False,
                pymysql_wrapper=_once(),
            )
            touched: list[Callable[[], str | None]] = []
            try:
                while not stop.is_set():
                    event = stream.fetchone()
                    if isinstance(event, RowsEvent):
                        touched += self._changes(event)
                    elif isinstance(event, XidEvent):
                        self._commit(touched)
                        touched = []
                        place = (stream.log_file, stream.log_pos)
            except (pymysql.MySQLError, OSError):
                time.sleep(0.1)
            except Exception as failure:
                with self._turn:
                    self._failure = failure
                    self._turn.notify_all()
                raise
            finally:
                stream.close()

    def _changes(self, event: Any) -> Iterator[Callable[[], str | None]]:
        """What a transaction does to rows once it is committed; each returns the server that it is about."""
        names = self._columns[event.schema, event.table]
        for row in event.rows:
            before = _named(names, row.get("before_values") or (row["values"] if _is_removal(event) else None))
            after = _named(names, row.get("after_values") or (None if _is_removal(event) else row["values"]))
            yield lambda before=before, after=after: self._put(event.schema, event.table, before, after)  # type: ignore[misc]

    def _put(self, schema: str, table: str, before: Row | None, after: Row | None) -> str | None:
        self.row_changes += 1
        if table == _MARKS:
            assert after is not None
            self._marked = max(self._marked, int(after["id"]))
            return None
        owner = None
        for image, is_kept in ((before, False), (after, True)):
            if image is None:
                continue
            owner = str(image[_OWNERS[table]])
            key = image.get("id") or (image.get("tag"),)
            rows = self._rows[schema, table][owner]
            if is_kept:
                rows[key] = image
            else:
                rows.pop(key, None)
        return owner

    def _commit(self, changes: Sequence[Callable[[], str | None]]) -> None:
        with self._turn:
            now = time.monotonic()
            self.transactions += 1
            for uuid in {uuid for change in changes if (uuid := change()) is not None}:
                kept = self._versions.setdefault(uuid, {})
                for part, value in self._parts(uuid).items():
                    versions = kept.setdefault(part, [])
                    if not versions or versions[-1].value != value:
                        versions.append(Version(now, value))
            self._turn.notify_all()

    def _of(self, table: str, uuid: str) -> Iterator[Row]:
        """Its rows that are not deleted, in all schemas, the oldest first."""
        for schema in self.schemas:
            found = self._rows.get((schema, table), {}).get(uuid, {})
            yield from (found[key] for key in sorted(found, key=str) if not found[key].get("deleted"))

    def _parts(self, uuid: str) -> Mapping[str, Value]:
        """As lists of the newest microversion show them."""
        shown = [row for row in self._of("instances", uuid) if not row["hidden"] and row["vm_state"] != "soft-delete"]
        waiting = list(self._of("build_requests", uuid))
        if not shown:
            return dict.fromkeys(PARTS, ABSENT) | {"is_listed": True if waiting else ABSENT}
        [row] = shown
        system = {each["key"]: each["value"] for each in self._of("instance_system_metadata", uuid)}
        faults = sorted(self._of("instance_faults", uuid), key=lambda each: (each["created_at"], each["id"]))
        caches = [json.loads(each["network_info"] or "[]") for each in self._of("instance_info_caches", uuid)]
        specs = [json.loads(each["spec"])["nova_object.data"] for each in self._of("request_specs", uuid)]
        return {
            "is_listed": True,
            "name": row["display_name"],
            "description": row["display_description"],
            "vm_state": row["vm_state"],
            "task_state": row["task_state"],
            "host": row["host"],
            "locked": bool(row["locked"]),
            "locked_reason": system.get("locked_reason") if row["locked"] else None,
            "metadata": {each["key"]: each["value"] for each in self._of("instance_metadata", uuid)},
            "tags": sorted(each["tag"] for each in self._of("tags", uuid)),
            "addresses": sorted(
                ip["address"]
                for cache in caches
                for port in cache
                for subnet in port["network"]["subnets"]
                for ip in subnet["ips"]
            ),
            "volumes": sorted(each["volume_id"] for each in self._of("block_device_mapping", uuid)),
            "fault": faults[-1]["message"] if faults and row["vm_state"] in ("error", "deleted") else None,
            "zone": specs[-1].get("availability_zone") if specs else None,
        }


PARTS = (
    *("is_listed", "name", "description", "vm_state", "task_state", "host", "locked", "locked_reason", "metadata"),
    *("tags", "addresses", "volumes", "fault", "zone"),
)


def shown_parts(server: Mapping[str, Any]) -> Mapping[str, Value]:
    """The same of a server of `GET /servers/detail`."""
    return {
        "is_listed": True,
        "name": server["name"],
        "description": server["description"],
        "vm_state": server["OS-EXT-STS:vm_state"],
        "task_state": server["OS-EXT-STS:task_state"],
        "host": server["OS-EXT-SRV-ATTR:host"],
        "locked": server["locked"],
        "locked_reason": server["locked_reason"],
        "metadata": server["metadata"],
        "tags": sorted(server["tags"]),
        "addresses": sorted(each["addr"] for label in server["addresses"].values() for each in label),
        "volumes": sorted(each["id"] for each in server["os-extended-volumes:volumes_attached"]),
        "fault": server["fault"]["message"] if "fault" in server else None,
        "zone": server["pinned_availability_zone"],
    }


def _once() -> Callable[..., Any]:
    """Connects once. Where the connection is lost, the reader would go on in the middle of a transaction by itself."""
    has_connected = False

    def connect(**arguments: Any) -> Any:
        nonlocal has_connected
        database = arguments.pop("db", None)
        if database is None:
            if has_connected:
                raise ConnectionError("the server has gone")
            has_connected = True
        return pymysql.connect(database=database, **arguments)

    return connect


def _is_removal(event: Any) -> bool:
    return isinstance(event, DeleteRowsEvent)


def _named(names: Sequence[str], values: Mapping[str, Any] | None) -> Row | None:
    """By the places of the columns. One that was added since is behind the others, and not read."""
    if values is None:
        return None
    return {name: _decoded(value) for name, value in zip(names, values.values(), strict=False)}


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
