"""Reads the log of a server from one position on: the instances that its transactions touched."""

import logging
import random
from collections.abc import Collection
from typing import Any

import pymysql
import structlog
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    BeginLoadQueryEvent,
    ExecuteLoadQueryEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.server import (
    LogPlace,
    LogServer,
    as_commit_log_error,
    number_of,
    sorted_gtid,
)
from fleetlight.cells.kinds.nova_db.commit_log.touched import OWNERS, Touched, is_harmless
from fleetlight.cells.model import LogPosition

_log = structlog.get_logger(__name__)

# The library warns of missing names of columns in the log; this program takes them from the schema.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

HEARTBEAT_S = 1.5
"""How often an idle server is queried, with two statements each time."""

# The most heartbeats of a server that has not sent all visible commits yet.
_HEARTBEATS_AWAITED = 5
_SERVER_IDS = range(1 << 31, (1 << 32) - 1)
_EVENTS = (
    MariadbGtidEvent,
    QueryEvent,
    XidEvent,
    XAPrepareEvent,
    BeginLoadQueryEvent,
    ExecuteLoadQueryEvent,
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
    HeartbeatLogEvent,
    NotImplementedEvent,
)


class LogStream:
    """The log from one position on. Calls raise CommitLogError."""

    def __init__(self, server: LogServer, start: LogPosition, schemas: Collection[str]) -> None:
        self._server = server
        self._gtids = {part.partition("-")[0]: part for part in start.gtid.split(",") if part}
        self._place = LogPlace.at(start)
        self._number = start.number
        self._schemas = schemas
        self._columns = server.columns(schemas)
        self._touched: dict[str, Touched] = {}
        self._pending: Any = None
        self._connection: Any = None
        self._reader = BinLogStreamReader(
            connection_settings=dict(server.arguments),
            server_id=random.choice(_SERVER_IDS),  # noqa: S311  # no secret: two readers must not share one
            blocking=True,
            resume_stream=True,
            log_file=start.file,
            log_pos=start.offset,
            only_events=_EVENTS,
            filter_non_implemented_events=False,
            only_tables=list(OWNERS),
            slave_heartbeat=HEARTBEAT_S,
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )

    @property
    def position(self) -> LogPosition:
        """The position up to which the log was read, which is between two transactions after `read_until`."""
        gtid = sorted_gtid(",".join(self._gtids.values()))
        # Where two servers write in one domain, numbers may go back.
        self._number = max(self._number, number_of(gtid))
        return LogPosition(self._place.file, self._place.offset, gtid, self._number, self._server.started_at)

    def read_until(self, place: LogPlace) -> None:
        """Read every transaction that ends at or before `place`. Raises CommitLogError."""
        heartbeats = 0
        while self._place < place:
            event = self._pending if self._pending is not None else self._fetch()
            self._pending = None
            heartbeats += isinstance(event, HeartbeatLogEvent)
            if heartbeats > _HEARTBEATS_AWAITED:
                # This happens after a change of the log's format, which the reader does not notice.
                raise CommitLogError("the log that it sends does not come to what can be seen", is_lasting=False)
            if event is not None:
                self._take(event)
            self._move()

    def taken(self) -> dict[str, Touched]:
        """The instances that rows since the last call touched, by schema."""
        taken, self._touched = self._touched, {}
        return taken

    def touch_everything(self) -> None:
        """Note that any row of any schema may have been touched."""
        for schema in self._schemas:
            self._touched.setdefault(schema, Touched()).forget()

    def wait(self) -> None:
        """Wait for the next event, at most until a heartbeat of the server."""
        if self._pending is None:
            event = self._fetch()
            if event is None or isinstance(event, HeartbeatLogEvent):
                self._move()
            else:
                self._pending = event

    def close(self) -> None:
        # Its second connection is the server's. One that has ended it has closed itself.
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def _connect(self, **arguments: Any) -> Any:
        """Connect the reader, only once, since another server may answer at the same address the next time."""
        if arguments.get("db") == "information_schema":
            return self._server.connection
        if self._connection is not None:
            raise CommitLogError("the connection to its log has ended", is_lasting=False)
        self._connection = pymysql.connect(**arguments)
        return self._connection

    def _fetch(self) -> Any:
        """The next event; None for an unreadable one, after which any row may have been touched."""
        try:
            event = self._reader.fetchone()
        except (pymysql.MySQLError, OSError) as error:
            raise as_commit_log_error(error) from error
        except CommitLogError:
            raise
        except Exception as error:  # noqa: BLE001  # only this event fails, which was received completely
            _log.warning("indexer.log_event_unreadable", reason=f"{type(error).__name__}: {error}")
            self.touch_everything()
            return None
        if event is None:
            raise CommitLogError("the server has ended its log", is_lasting=False)
        return event

    def _move(self) -> None:
        """Move to the reader's position, which is after the last event that it returned."""
        self._place = LogPlace.of(self._reader.log_file, self._reader.log_pos)

    def _take(self, event: Any) -> None:
        match event:
            case HeartbeatLogEvent() | XidEvent():
                return
            case MariadbGtidEvent():
                self._gtids[str(event.domain_id)] = event.gtid
            case RowsEvent():
                self._take_rows(event)
            case QueryEvent():
                self._take_statement(event)
            case _:
                self.touch_everything()

    def _take_rows(self, event: Any) -> None:
        if event.schema not in self._schemas:
            return
        touched = self._touched.setdefault(event.schema, Touched())
        columns = self._columns.get((event.schema, event.table), {})
        try:
            for row in event.rows:
                images = [row[image] for image in ("values", "before_values", "after_values") if image in row]
                touched.take_row(event.table, columns, images)
        except Exception as error:  # noqa: BLE001  # a row of a kind that the library does not know
            _log.warning("indexer.log_event_unreadable", reason=f"{type(error).__name__}: {error}")
            touched.forget()

    def _take_statement(self, event: Any) -> None:
        """Take DDL, or another logged statement, which does not name the rows that it changed."""
        statement = str(event.query)
        if is_harmless(statement):
            return
        schema = event.schema.decode(errors="replace")
        if statement.lstrip().upper().startswith("XA"):
            self.touch_everything()
        for name in self._schemas:
            if name == schema or name.lower() in statement.lower():
                self._touched.setdefault(name, Touched()).forget()
        self._columns = self._server.columns(self._schemas)
