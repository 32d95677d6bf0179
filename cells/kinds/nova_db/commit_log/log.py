"""The log of one database server, read once for all cells of this process that have databases there.

A round asks the server up to where commits can be seen, reads the log up to there, and gives each cell the instances
that were touched. Whoever reads their rows after that gets what those commits have made of them, or something newer:
the log alone would not do, for a transaction is in it a moment before it can be seen.
"""

import logging
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from threading import Condition, Event, Thread
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
from sqlalchemy import URL

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.server import (
    LogPlace,
    LogServer,
    ServerIdentity,
    as_commit_log_error,
    number_of,
    sorted_gtid,
)
from fleetlight.cells.kinds.nova_db.commit_log.touched import OWNERS, Touched, is_harmless
from fleetlight.cells.model import LogPosition
from fleetlight.resources.clock import Clock

_log = structlog.get_logger(__name__)

# It warns of names of columns that the log lacks: they are taken from the schema.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

HEARTBEAT_S = 1.25
"""How often a server at rest is asked; two statements each time."""

# How often it is looked whether the same server answers at the address. A connection may outlive a failover.
_ADDRESS_CHECKED_S = 10.0
# So often a server may say that nothing comes before it has sent what can be seen.
_HEARTBEATS_AWAITED = 5
# From further behind a comparison is faster, and keeps no other cell of the server waiting.
_MOST_READ_AGAIN = 50_000

# Under load the server is asked at most so often.
_SHORTEST_ROUND_S = 0.05
_ADMITTED_WITHIN_S = 30.0
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


class Subscription:
    """What one cell is told of one log. `take` and `wait` belong to one thread.

    schemas: whose rows it is told about. after: the position to go on from; None for the present one.
    is_continued: whether it does go on from there; otherwise nothing is known of what was committed before.
    identity: of the server.
    """

    def __init__(self, log: "CommitLog", schemas: Sequence[str], after: LogPosition | None) -> None:
        self.schemas = schemas
        self.after = after
        self.is_continued = False
        self.identity: ServerIdentity | None = None
        self._log = log
        self._changed = Condition()
        self._touched = Touched()
        self._position: LogPosition | None = None
        self._at = 0
        self._failure: CommitLogError | None = None

    def put(self, touched: Mapping[str, Touched], position: LogPosition, at: int) -> None:
        """Nothing but what is `touched`, by schema, was committed up to a position since the last call.

        at: the moment before the server was asked for the position, microseconds.
        """
        with self._changed:
            for schema in self.schemas:
                if (of_schema := touched.get(schema)) is not None:
                    self._touched.merge(of_schema)
            self._position, self._at = position, at
            self._changed.notify_all()

    def fail(self, failure: CommitLogError) -> None:
        """Nothing more comes."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    @property
    def is_alive(self) -> bool:
        return self._failure is None

    def require_alive(self) -> None:
        """Raise CommitLogError if nothing more comes."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def wait(self, longest_s: float) -> None:
        """Wait until there is something to take."""
        with self._changed:
            self._changed.wait_for(lambda: self._position is not None or self._failure is not None, longest_s)

    def take(self) -> tuple[Touched, LogPosition, int] | None:
        """What has come since the last call; None if nothing has. Raises CommitLogError."""
        self.require_alive()
        with self._changed:
            if self._position is None:
                return None
            taken = self._touched, self._position, self._at
            self._touched, self._position = Touched(), None
            return taken

    def close(self) -> None:
        """Be told nothing more."""
        self._log.leave(self)


class CommitLog:
    """The log of the server at one address. Any thread may call it; one of its own reads.

    url: of any database there. The thread ends when nobody is told anything.
    """

    def __init__(self, url: URL, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._guard = Condition()
        self._subscriptions: list[Subscription] = []
        self._newcomers: list[tuple[Subscription, Event]] = []
        self._thread: Thread | None = None

    def subscribe(self, schemas: Sequence[str], after: LogPosition | None) -> Subscription:
        """Be told what is touched of these schemas, from `after` on if the log still has it.

        Raises CommitLogError if the log cannot be read, or does not have every change.
        """
        new, admitted = Subscription(self, schemas, after), Event()
        with self._guard:
            self._newcomers.append((new, admitted))
            if self._thread is None:
                self._thread = Thread(target=self._run, name="commit-log", daemon=True)
                self._thread.start()
        if not admitted.wait(_ADMITTED_WITHIN_S):
            self.leave(new)
            raise CommitLogError(f"its log was not read within {_ADMITTED_WITHIN_S:g} s", is_lasting=False)
        new.require_alive()
        return new

    def leave(self, subscription: Subscription) -> None:
        with self._guard:
            self._subscriptions = [each for each in self._subscriptions if each is not subscription]
            self._newcomers = [each for each in self._newcomers if each[0] is not subscription]

    def _run(self) -> None:
        while True:
            try:
                self._read()
            except CommitLogError as error:
                self._end(error)
                return
            except BaseException as error:
                # A mistake of ours in a thread of its own: those who wait must not wait for ever.
                self._end(CommitLogError(f"{type(error).__name__}: {error}", is_lasting=False))
                raise
            else:
                with self._guard:
                    if not self._newcomers:
                        self._thread = None
                        return

    def _end(self, failure: CommitLogError) -> None:
        with self._guard:
            self._thread = None
            told, self._subscriptions = self._subscriptions, []
            newcomers, self._newcomers = self._newcomers, []
        for subscription in (*told, *(new for new, _ in newcomers)):
            subscription.fail(failure)
        for _, admitted in newcomers:
            admitted.set()

    def _read(self) -> None:
        """Until nobody is told anything. Raises CommitLogError."""
        with closing(LogServer(self._url)) as server:
            server.require_usable()
            reached: LogPosition | None = None
            clustered = ClusterCount()
            while True:
                newcomers = self._logged_newcomers(server)
                with self._guard:
                    told = [*self._subscriptions, *newcomers]
                if not told:
                    return
                start = _start(server, newcomers, reached)
                schemas = {schema for subscription in told for schema in subscription.schemas}
                with closing(_Stream(server, start, schemas)) as stream:
                    # Only now the server says whether the account may read it.
                    stream.wait()
                    self._admit(newcomers)
                    reached = self._follow(server, stream, clustered)

    def _logged_newcomers(self, server: LogServer) -> Sequence[Subscription]:
        """Those whose schemas are in the log; the others are told why not."""
        with self._guard:
            newcomers = [new for new, _ in self._newcomers]
        logged = []
        for new in newcomers:
            try:
                server.require_logged(new.schemas)
            except CommitLogError as error:
                if not error.is_lasting:
                    raise
                new.fail(error)
                self._admit([new])
            else:
                logged.append(new)
        return logged

    def _admit(self, newcomers: Sequence[Subscription]) -> None:
        with self._guard:
            admitted = [each for each in self._newcomers if each[0] in newcomers]
            self._newcomers = [each for each in self._newcomers if each not in admitted]
            self._subscriptions += [new for new, _ in admitted if new.is_alive]
        for _, event in admitted:
            event.set()

    def _follow(self, server: LogServer, stream: "_Stream", clustered: "ClusterCount") -> LogPosition:
        """Rounds, until somebody new comes or nobody is left; returns up to where all were told."""
        position = stream.position
        rounds = _Rounds(server, stream, clustered)
        address_due_s = time.monotonic() + _ADDRESS_CHECKED_S
        while True:
            if time.monotonic() >= address_due_s:
                self._check_address(server)
                address_due_s = time.monotonic() + _ADDRESS_CHECKED_S
            with self._guard:
                told = list(self._subscriptions)
                if self._newcomers or not told:
                    return position
            asked_at = self._clock()
            touched = rounds.next()
            position = stream.position
            for subscription in told:
                subscription.put(touched, position, asked_at)
            stream.wait()

    def _check_address(self, server: LogServer) -> None:
        """Raise CommitLogError if another server answers there by now, or this one has become a replica."""
        with closing(LogServer(self._url)) as answering:
            answering.require_usable()
            if answering.identity != server.identity:
                raise CommitLogError("another server answers at its address", is_lasting=False)


class _Rounds:
    """One round after the other on one stream."""

    def __init__(self, server: LogServer, stream: "_Stream", clustered: "ClusterCount") -> None:
        self._server = server
        self._stream = stream
        self._seen: LogPlace | None = None
        self._not_before_s = 0.0
        self._clustered = clustered

    def next(self) -> Mapping[str, Touched]:
        """What was touched, by schema, up to where commits can be seen now. Raises CommitLogError."""
        pause_s = self._not_before_s - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        self._not_before_s = time.monotonic() + _SHORTEST_ROUND_S
        seen = self._server.visible()
        if self._seen is not None and seen.place < self._seen:
            raise CommitLogError("its log was begun anew", is_lasting=False)
        self._seen = seen.place
        self._stream.read_until(seen.place)
        if seen.replicated is not None and self._clustered.lacks(seen.replicated, self._stream.position.number):
            _log.warning("indexer.commits_not_logged", server=self._server.identity.hostname)
            self._stream.touch_everything()
        touched = self._stream.taken()
        for schema, of_schema in touched.items():
            for where, keys in list(of_schema.keys.items()):
                of_schema.add(self._server.look_up(schema, where, list(keys)))
        return touched


class ClusterCount:
    """Whether the log of a node of a cluster (Galera) has all that was committed through the others.

    Nodes count the commits of all of them, and changes of who belongs to the cluster, which are in no log: the count
    less what is in the log stays the same otherwise.
    """

    def __init__(self) -> None:
        self._difference: int | None = None

    def lacks(self, replicated: int, logged: int) -> bool:
        """Whether something was committed since the last call that is not in the log."""
        known, self._difference = self._difference, replicated - logged
        return known is not None and self._difference > known


class _Stream:
    """The log from one position on. Calls raise CommitLogError."""

    def __init__(self, server: LogServer, start: LogPosition, schemas: Collection[str]) -> None:
        self._server = server
        self._gtids = {part.partition("-")[0]: part for part in start.gtid.split(",") if part}
        self._place = _place(start)
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
        """Up to where the log was read: between two transactions after `read_until`."""
        gtid = sorted_gtid(",".join(self._gtids.values()))
        # Where two servers write in one domain, numbers may go back.
        self._number = max(self._number, number_of(gtid))
        return LogPosition(self._place.file, self._place.offset, gtid, self._number, self._server.started_at)

    def read_until(self, place: LogPlace) -> None:
        """Read every transaction that ends at `place` or before it."""
        heartbeats = 0
        while self._place < place:
            event = self._pending if self._pending is not None else self._fetch()
            self._pending = None
            heartbeats += isinstance(event, HeartbeatLogEvent)
            if heartbeats > _HEARTBEATS_AWAITED:
                # As after a change of how the server writes its log, which the reader does not notice.
                raise CommitLogError("the log that it sends does not come to what can be seen", is_lasting=False)
            if event is not None:
                self._take(event)
            self._move()

    def taken(self) -> dict[str, Touched]:
        """What the rows since the last call have touched, by schema."""
        taken, self._touched = self._touched, {}
        return taken

    def touch_everything(self) -> None:
        """Say that any row of any schema may have been touched."""
        for schema in self._schemas:
            self._touched.setdefault(schema, Touched()).forget()

    def wait(self) -> None:
        """Wait for what comes next, at most until the server says that nothing has come."""
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
        """How the reader connects: once, since behind the same address another server may answer the next time."""
        if arguments.get("db") == "information_schema":
            return self._server.connection
        if self._connection is not None:
            raise CommitLogError("the connection to its log has ended", is_lasting=False)
        self._connection = pymysql.connect(**arguments)
        return self._connection

    def _fetch(self) -> Any:
        """The next event; None for one that cannot be read, after everything was said to be touched."""
        try:
            event = self._reader.fetchone()
        except (pymysql.MySQLError, OSError) as error:
            raise as_commit_log_error(error) from error
        except CommitLogError:
            raise
        except Exception as error:  # noqa: BLE001  # it is about this event, which was received as a whole
            _log.warning("indexer.log_event_unreadable", reason=f"{type(error).__name__}: {error}")
            self.touch_everything()
            return None
        if event is None:
            raise CommitLogError("the server has ended its log", is_lasting=False)
        return event

    def _move(self) -> None:
        """The reader's own place is behind the event that it returned last."""
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
        """DDL, or what was logged as a statement: which rows it has changed is not said."""
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


class CommitLogs:
    """The logs that this process reads, one for each address."""

    def __init__(self) -> None:
        self._guard = Condition()
        self._logs: dict[str, CommitLog] = {}

    def at(self, url: URL, clock: Clock) -> CommitLog:
        """The log of the server at this address, and for this account."""
        key = url._replace(database=None).render_as_string(hide_password=False)
        with self._guard:
            return self._logs.setdefault(key, CommitLog(url, clock))


COMMIT_LOGS = CommitLogs()
"""Those of this process."""


def _start(server: LogServer, newcomers: Sequence[Subscription], reached: LogPosition | None) -> LogPosition:
    """Where to read from, so that nobody lacks anything: what some hear again does no harm. Raises CommitLogError."""
    for new in newcomers:
        new.identity = server.identity
    starts = [] if reached is None else [reached]
    starts += _go_on(server, {new: new.after for new in newcomers if new.after is not None})
    if not starts:
        now = server.visible().place
        gtid = server.gtid_at(now)
        if gtid is None:
            raise CommitLogError("its log does not know the place where it ends", is_lasting=False)
        starts.append(LogPosition(now.file, now.offset, gtid, number_of(gtid), server.started_at))
    return min(starts, key=_place)


def _go_on(server: LogServer, after: Mapping[Subscription, LogPosition]) -> Iterator[LogPosition]:
    """Tell those for which the log goes on; returns from where.

    A server reads a file of its log from the beginning to say what was at a place in it. So it is asked for the newest
    place that it still knows. What was before that while it ran is there too, unless its file was removed.
    """
    files, now = (server.files(), server.number_now()) if after else ((), 0)
    newest: LogPosition | None = None
    for subscription, position in sorted(after.items(), key=lambda each: _place(each[1]), reverse=True):
        if newest is None and server.is_in_log(position):
            newest = position
        is_near = position.file in files and now - position.number <= _MOST_READ_AGAIN
        if newest is not None and is_near and _is_before(position, newest):
            subscription.is_continued = True
            yield position


def _is_before(position: LogPosition, newest: LogPosition) -> bool:
    return position.number <= newest.number and abs(position.started_at - newest.started_at) <= 1


def _place(position: LogPosition) -> LogPlace:
    return LogPlace.of(position.file, position.offset)
