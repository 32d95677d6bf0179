"""The log of one database server, read once for all cells of this process that have databases there.

A round asks the server up to where commits can be seen, reads the log up to there, and gives each cell the instances
that were touched. Whoever reads their rows after that gets what those commits have made of them, or something newer:
the log alone would not do, for a transaction is in it a moment before it can be seen.
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

# How often it is looked whether the same server answers at the address. A connection may outlive a failover.
_ADDRESS_CHECKED_S = 10.0
# From further behind a comparison is faster, and keeps no other cell of the server waiting.
_MOST_READ_AGAIN = 50_000
# Under load the server is asked at most so often.
_SHORTEST_ROUND_S = 0.05
_ADMITTED_WITHIN_S = 45.0


class CommitLog:
    """The log of the server at one address. Any thread may call it; one of its own reads.

    url: of any database there. The thread ends with the last subscription.
    """

    def __init__(self, url: URL, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._guard = Condition()
        self._subscriptions: list[Subscription] = []
        self._newcomers: list[tuple[Subscription, Event]] = []
        self._thread: Thread | None = None

    def subscribe(self, schemas: Sequence[str], after: LogPosition | None) -> Subscription:
        """Subscribe to what is touched of these schemas, from `after` on if the log still has it.

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
                    # Only now the server says whether the account may read it.
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
        """Raise CommitLogError if another server answers there by now, or this one has become a replica."""
        with closing(LogServer(self._url)) as answering:
            answering.require_usable()
            if answering.identity != server.identity:
                raise CommitLogError("another server answers at its address", is_lasting=False)


class _Rounds:
    """One round after the other on one stream."""

    def __init__(self, server: LogServer, stream: LogStream, clustered: "ClusterCount") -> None:
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
            _log.warning("indexer.commits_not_logged", server=self._server.identity[0])
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
    """The position to read from, so that no subscription lacks anything; repeats do no harm. Raises CommitLogError."""
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
    """Tell those for which the log goes on; returns from where.

    A server reads a file of its log from the beginning to say what was at a place in it. So it is asked for the newest
    place that it still knows. What was before that while it ran is there too, unless its file was removed.
    """
    files, now = (server.files(), server.number_now()) if after else ((), 0)
    newest: LogPosition | None = None
    for subscription, position in sorted(after.items(), key=lambda each: LogPlace.at(each[1]), reverse=True):
        if newest is None and server.is_in_log(position):
            newest = position
        is_near = position.file in files and now - position.number <= _MOST_READ_AGAIN
        if newest is not None and is_near and _is_before(position, newest):
            subscription.is_continued = True
            yield position


def _is_before(position: LogPosition, newest: LogPosition) -> bool:
    return position.number <= newest.number and abs(position.started_at - newest.started_at) <= 1
