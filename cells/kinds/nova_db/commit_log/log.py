"""Reads the log of one database server once for all cells of this process with databases there.

A round queries the position up to which commits are visible, reads the log up to it, and gives each cell the instances
that were touched. Rows that are read after that contain those commits, or newer ones. The log alone would not suffice,
since a transaction is in it a moment before it is visible.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from threading import Condition, Event, Thread

import structlog
from sqlalchemy import URL

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.server import LogPlace, LogServer, number_of
from fleetlight.cells.kinds.nova_db.commit_log.stream import LogStream
from fleetlight.cells.kinds.nova_db.commit_log.subscription import Subscription
from fleetlight.cells.kinds.nova_db.commit_log.touched import Touched
from fleetlight.cells.model import LogPosition
from fleetlight.resources.clock import Clock

_log = structlog.get_logger(__name__)

# How often to check that the same server answers at the address, since a connection may outlive a failover.
_ADDRESS_CHECKED_S = 10.0
# A cell that is further behind is compared, which is faster, and does not delay other cells of the server.
_MOST_READ_AGAIN = 50_000
# The shortest time between two queries to the server under load.
_SHORTEST_ROUND_S = 0.05
_ADMITTED_WITHIN_S = 45.0


class CommitLog:
    """The log of the server at one address; thread-safe. A thread of its own reads it until the last subscription ends.

    url: of any database there.
    """

    def __init__(self, url: URL, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._guard = Condition()
        self._subscriptions: list[Subscription] = []
        self._newcomers: list[tuple[Subscription, Event]] = []
        self._thread: Thread | None = None

    def subscribe(self, schemas: Sequence[str], after: LogPosition | None) -> Subscription:
        """Subscribe to the touched instances of these schemas, from `after` on if the log still has that position.

        Raises CommitLogError if the log cannot be read, or does not have every change.
        """
        new, admitted = Subscription(schemas, after, self.leave), Event()
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
        """End a subscription."""
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
                # A mistake of this program: end the subscriptions, so that none waits for ever.
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
            subscriptions, self._subscriptions = self._subscriptions, []
            newcomers, self._newcomers = self._newcomers, []
        for subscription in (*subscriptions, *(new for new, _ in newcomers)):
            subscription.fail(failure)
        for _, admitted in newcomers:
            admitted.set()

    def _read(self) -> None:
        """Read until the last subscription ends. Raises CommitLogError."""
        with closing(LogServer(self._url)) as server:
            server.require_usable()
            reached: LogPosition | None = None
            clustered = ClusterCount()
            while True:
                newcomers = self._logged_newcomers(server)
                with self._guard:
                    subscriptions = [*self._subscriptions, *newcomers]
                if not subscriptions:
                    return
                start = _start(server, newcomers, reached)
                schemas = {schema for subscription in subscriptions for schema in subscription.schemas}
                with closing(LogStream(server, start, schemas)) as stream:
                    # Only now the server shows whether the account may read the log.
                    stream.wait()
                    self._admit(newcomers)
                    reached = self._follow(server, stream, clustered)

    def _logged_newcomers(self, server: LogServer) -> Sequence[Subscription]:
        """The new subscriptions whose schemas are in the log; the others fail with the reason."""
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

    def _follow(self, server: LogServer, stream: LogStream, clustered: "ClusterCount") -> LogPosition:
        """Make rounds until a subscription is added or the last one ends; returns the position that all reached."""
        position = stream.position
        rounds = _Rounds(server, stream, clustered)
        address_due_s = time.monotonic() + _ADDRESS_CHECKED_S
        while True:
            if time.monotonic() >= address_due_s:
                self._check_address(server)
                address_due_s = time.monotonic() + _ADDRESS_CHECKED_S
            with self._guard:
                subscriptions = list(self._subscriptions)
                if self._newcomers or not subscriptions:
                    return position
            asked_at = self._clock()
            touched = rounds.next()
            position = stream.position
            for subscription in subscriptions:
                subscription.put(touched, position, asked_at)
            stream.wait()

    def _check_address(self, server: LogServer) -> None:
        """Raises CommitLogError if another server answers at the address by now, or this one has become a replica."""
        with closing(LogServer(self._url)) as answering:
            answering.require_usable()
            if answering.identity != server.identity:
                raise CommitLogError("another server answers at its address", is_lasting=False)


class _Rounds:
    """Makes rounds on one stream."""

    def __init__(self, server: LogServer, stream: LogStream, clustered: "ClusterCount") -> None:
        self._server = server
        self._stream = stream
        self._seen: LogPlace | None = None
        self._not_before_s = 0.0
        self._clustered = clustered

    def next(self) -> Mapping[str, Touched]:
        """The touched instances, by schema, up to the position that is visible now. Raises CommitLogError."""
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
            _log.warning("indexer.commits_not_logged", server=self._server.identity[0])
            self._stream.touch_everything()
        touched = self._stream.taken()
        for schema, of_schema in touched.items():
            for where, keys in list(of_schema.keys.items()):
                of_schema.add(self._server.look_up(schema, where, list(keys)))
        return touched


class ClusterCount:
    """Checks that the log of a node of a cluster (Galera) has all commits of the other nodes.

    Nodes count the commits of all nodes, and changes of membership, which are in no log. Otherwise the difference
    between that count and the number of logged commits stays the same.
    """

    def __init__(self) -> None:
        self._difference: int | None = None

    def lacks(self, replicated: int, logged: int) -> bool:
        """Whether a commit since the last call is not in the log."""
        known, self._difference = self._difference, replicated - logged
        return known is not None and self._difference > known


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
"""The logs that this process reads."""


def _start(server: LogServer, newcomers: Sequence[Subscription], reached: LogPosition | None) -> LogPosition:
    """The position from which to read, so that no subscription misses a commit. Raises CommitLogError."""
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
    return min(starts, key=LogPlace.at)


def _go_on(server: LogServer, after: Mapping[Subscription, LogPosition]) -> Iterator[LogPosition]:
    """Mark the subscriptions that the log continues; yields their positions.

    A server reads a file of its log from the beginning to check a position. So this checks only the newest that it
    still knows. Earlier positions since the server started are in the log as well, unless their file was removed.
    """
    files, now = (server.files(), server.number_now()) if after else ((), 0)
    newest: LogPosition | None = None
    for subscription, position in sorted(after.items(), key=lambda each: LogPlace.at(each[1]), reverse=True):
        if newest is None and server.is_in_log(position):
            newest = position
        is_near = position.file in files and now - position.number <= _MOST_READ_AGAIN
        if newest is None or not is_near:
            continue
        if position.number <= newest.number and abs(position.started_at - newest.started_at) <= 1:
            subscription.is_continued = True
            yield position
