"""The relay: from the outbox of one cell to its bus, in order, at least once, at most one relay at a time.

A step is: give the next sequence numbers to committed changes (a transaction of its own), publish what has a number
and was not published, wait for the confirms, mark it published. Wherever it is cut off, the next relay goes on with the
same numbers: a change may be published twice, never under two numbers, and there is never a hole.
"""

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, Row, select, update

from fleetlight.bus.bus import Message
from fleetlight.cells.database.commits import Commits
from fleetlight.cells.database.engines import cell_failures, create_database_engine, writing
from fleetlight.cells.database.leases import ExclusiveLock, open_leases
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.changelog_pruning import ChangelogPruning
from fleetlight.cells.kinds.native.outbox import heartbeat_message, to_message
from fleetlight.cells.kinds.native.relay_bus import RelayBus
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.kinds.native.relay_numbers import RelayNumbers, RelayReplacedError
from fleetlight.cells.model import Cell
from fleetlight.cells.retrying import retrying_until
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import changes
from fleetlight.notifications.envelope import size_problem
from fleetlight.notifications.errors import BusError, MessageRefusedError
from fleetlight.resources.clock import Clock, system_clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_log = structlog.get_logger(__name__)


def is_relayed(cell: Cell) -> bool:
    """Whether a relay is active for the native cell. Raises CellUnreachableError and DatabaseUrlError."""
    engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid)
    try:
        with cell_failures(cell.name):
            lock = _lock_of(engine, cell)
            is_free = lock.acquire()
            lock.release()
    except OSError as error:
        raise CellUnreachableError(cell.name, error.strerror or str(error)) from error
    finally:
        engine.dispose()
    return not is_free


def _lock_of(engine: Engine, cell: Cell, takeover_after_s: float | None = None) -> ExclusiveLock:
    """The lock of the active relay of the cell. takeover_after_s: as of open_leases."""
    leases = open_leases(engine, "fleetlight relay", takeover_after_s=takeover_after_s)
    return ExclusiveLock(leases, f"relay-{cell.uuid}")


class Publishes(Protocol):
    def publish(self, messages: Sequence[Message]) -> None:
        """Return when the bus has confirmed all `messages`; raises BusError, then none or some arrived."""
        ...


class Relay:
    """The relay of one native cell. `run` until `stop` is set, or `run_once` for a single step.

    Any number of processes may run one for the same cell: all but one stand by, and one takes over when it is gone,
    hangs, or cannot reach the bus. A relay that hung, and wakes up anywhere, gives out no number any more: that takes
    the epoch that it has begun itself, in the transaction of the numbers.
    sign: gives a message the signature of the cell (fleetlight.cells.fleet.cell_keys); without it no reader takes it
        for the cell's.
    heartbeat: called by `run` after each step, and before each wait for what is away. metrics: what is counted, where.
    check_bus: called by a relay before it takes over, after a failure, and now and then while it stands by; raises
        BusError.
    takeover_after_s: how long the active one may show no sign of life (fleetlight.cells.database.leases).
    traces: of the process; None: none are made.
    """

    def __init__(
        self,
        engine: Engine,
        cell: Cell,
        publisher: Publishes,
        settings: RelaySettings,
        clock: Clock = system_clock,
        *,
        sign: Callable[[Message], Message] = lambda message: message,
        heartbeat: Callable[[], None] = lambda: None,
        check_bus: Callable[[], None] = lambda: None,
        metrics: RelayMetrics | None = None,
        takeover_after_s: float | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._engine = engine
        self._metrics = metrics or RelayMetrics(CollectorRegistry(), clock)
        self._cell = cell
        self._sign = sign
        self._traces = traces
        self._heartbeat = heartbeat
        self._bus = RelayBus(cell, check_bus)
        self._commits = Commits(engine)
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._lock = _lock_of(engine, cell, takeover_after_s)
        self._is_active = False
        self._is_waiting = False
        self._has_failed = False
        self._numbers = RelayNumbers(engine, self._lock)
        self._may_have_unpublished = True
        # Of what was committed since the last look for changes, and since the last look at the numbers.
        self._may_be_unnumbered = self._may_be_restored = True
        self._all_numbered_at: int | None = None
        self._heartbeat_due = 0.0
        self._pruning = ChangelogPruning(engine, clock, retention_h=settings.changelog_retention_h)

    @property
    def is_active(self) -> bool:
        """Whether this relay, and not another one, published last time it looked."""
        return self._is_active

    def run(self, stop: Event) -> None:
        """Relay until `stop` is set; waits, longer and longer, while the bus or the database cannot be used.

        Also for what a person has to put right, such as a wrong address: cells of one process do not share their fate.
        """
        self._metrics.cell_known(self._cell.uuid)
        retrying = retrying_until(
            stop,
            (BusError, CellUnreachableError),
            self._before_retry,
            longest_wait_s=self._settings.retry_wait_max_s,
        )
        try:
            while not stop.is_set():
                published = retrying(self.run_once) or 0
                if self._is_waiting and not stop.is_set():
                    _log.info("relay.cell_relayed_again", cell=self._cell.name)
                    self._is_waiting = False
                self._heartbeat()
                if published < self._settings.batch_size:
                    self._wait(stop)
        finally:
            self.close()

    def _wait(self, stop: Event) -> None:
        """Until there may be changes, or a heartbeat is due; one that stands by looks at each interval for the lock."""
        if self._is_active:
            longest_s = max(0.0, self._heartbeat_due - time.monotonic())
            self._commits.wait(stop, self._settings.poll_interval_s, longest_s)
        else:
            stop.wait(self._settings.poll_interval_s)

    def run_once(self) -> int:
        """Publish at most one batch, and a heartbeat when it is due; returns the number of changes published.

        Returns 0 when another relay is active. Raises BusError or CellUnreachableError.
        """
        with cell_failures(self._cell.name):
            try:
                if self._has_failed:
                    self._bus.require()
                    self._has_failed = False
                return self._step()
            except RelayReplacedError:
                self._is_active = False
                self._metrics.active(self._cell.uuid, is_active=False)
                _log.warning("relay.replaced", cell=self._cell.name)
                return 0
            except BusError:
                self._has_failed = True
                if not self._bus.is_reached:
                    # Another one may reach it. From now on without the lock, for which that one would wait.
                    self.close()
                self._tell_what_waits()
                raise

    def _step(self) -> int:
        was_active, self._is_active = self._is_active, self._lock.acquire()
        self._metrics.active(self._cell.uuid, is_active=self._is_active)
        if not self._is_active:
            self._bus.look_now_and_then()
            return 0
        if not was_active:
            self._take_over()
        began_s = time.monotonic()
        published = self._publish_batch()
        if not published:
            self._metrics.look_seconds.labels(self._cell.uuid).observe(time.monotonic() - began_s)
        self._when_due()
        return published

    def _take_over(self) -> None:
        # While the bus is away all relays try, one after the other: one that cannot publish changes nothing.
        self._bus.require()
        # The relay that was active before may have been cut off anywhere.
        self._may_have_unpublished = self._may_be_unnumbered = self._may_be_restored = True
        self._numbers.begin_epoch()

    def _tell_what_waits(self) -> None:
        """For alerts about its age: there may be no relay that is active."""
        unpublished = select(changes.c.committed_at).where(changes.c.published_at.is_(None))
        numbered = unpublished.where(changes.c.sequence.is_not(None)).order_by(changes.c.sequence)
        others = unpublished.where(changes.c.sequence.is_(None)).order_by(changes.c.id)
        with self._engine.connect() as connection:
            for oldest in connection.scalars(numbered.limit(1)).all() or connection.scalars(others.limit(1)):
                self._metrics.waits_since(self._cell.uuid, oldest)

    def close(self) -> None:
        """Let another relay take over."""
        self._lock.release()
        self._is_active = False
        self._metrics.active(self._cell.uuid, is_active=False)

    def _publish_batch(self) -> int:
        rows = self._unpublished() if self._may_have_unpublished else []
        if not rows:
            # Numbers may be committed without an answer.
            self._may_have_unpublished = True
            if not self._give_numbers():
                self._may_have_unpublished = False
                self._metrics.nothing_waits(self._cell.uuid)
                return 0
            self._metrics.numbered(self._cell.uuid, self._numbers.last)
            rows = self._unpublished()
        if not rows:
            # This process hung since it gave them their numbers, and the relay that took over has published them.
            raise RelayReplacedError
        self._metrics.waits_since(self._cell.uuid, rows[0].committed_at)
        self._publish(rows)
        with writing(self._engine) as connection:
            connection.execute(
                update(changes)
                .where(changes.c.sequence.between(rows[0].sequence, rows[-1].sequence))
                .values(published_at=self._clock())
            )
        self._metrics.published.labels(self._cell.uuid).inc(len(rows))
        self._may_have_unpublished = len(rows) == self._settings.batch_size
        if not self._may_have_unpublished:
            self._metrics.nothing_waits(self._cell.uuid)
        return len(rows)

    def _give_numbers(self) -> int:
        """To what was committed until now, at most a batch; returns to how many."""
        looked_at = self._clock()
        if self._commits.may_be_new():
            self._may_be_unnumbered = self._may_be_restored = True
        numbered = self._numbers.give(self._settings.batch_size) if self._may_be_unnumbered else 0
        self._may_be_unnumbered = numbered == self._settings.batch_size
        if not self._may_be_unnumbered:
            self._all_numbered_at = looked_at
        return numbered

    def _publish(self, rows: Sequence[Row[Any]]) -> None:
        """Publish what the bus takes. A change too large for it, which would stop all others, is left out there.

        The indexer misses its number, and finds it in the changelog.
        """
        sent = [row for row in rows if self._is_sent(row)]
        try:
            self._send(sent)
        except MessageRefusedError:
            # The broker does not say over which of them.
            for row in sent:
                try:
                    self._send([row])
                except MessageRefusedError as error:
                    self._leave_out(row, error.reason)
                self._heartbeat()

    def _send(self, rows: Sequence[Row[Any]]) -> None:
        """Raises BusError."""
        messages, began_at = [self._message_of(row) for row in rows], self._clock()
        self._publisher.publish(messages)
        if self._traces is not None:
            self._traces.published(messages, [row.committed_at for row in rows], began_at, self._clock())

    def _message_of(self, row: Row[Any]) -> Message:
        message = to_message(self._cell, row, self._numbers.epoch)
        return self._sign(message if self._traces is None else self._traces.begun(message))

    def _is_sent(self, row: Row[Any]) -> bool:
        problem = size_problem(row.message)
        if problem:
            self._leave_out(row, problem)
        return problem is None

    def _leave_out(self, row: Row[Any], problem: str) -> None:
        _log.error("relay.message_too_large", cell=self._cell.name, sequence=row.sequence, detail=problem)
        self._metrics.left_out.labels(self._cell.uuid).inc()

    def _unpublished(self) -> Sequence[Row[tuple[object, ...]]]:
        statement = (
            select(changes)
            .where(changes.c.published_at.is_(None), changes.c.sequence.is_not(None))
            .order_by(changes.c.sequence)
            .limit(self._settings.batch_size)
        )
        with self._engine.connect() as connection:
            return connection.execute(statement).all()

    def _when_due(self) -> None:
        now = time.monotonic()
        if now >= self._heartbeat_due and self._all_numbered_at is not None:
            self._publish_heartbeat(self._all_numbered_at)
            self._heartbeat_due = now + self._settings.heartbeat_interval_s
        self._pruning.prune_when_due()

    def _publish_heartbeat(self, at: int) -> None:
        """Promise that whatever was committed before `at` has a number up to the highest given out."""
        if self._may_be_restored and self._numbers.was_restored():
            self._numbers.begin_again()
            # There may be changes in the older copy that have no number yet.
            self._all_numbered_at, self._may_have_unpublished, self._may_be_unnumbered = None, True, True
            return
        self._may_be_restored = False
        self._metrics.numbered(self._cell.uuid, self._numbers.last)
        message = heartbeat_message(self._cell, self._numbers.last, at, self._numbers.epoch)
        self._publisher.publish([self._sign(message)])

    def _before_retry(self, error: Exception, attempt: int, _wait_s: float) -> None:
        self._is_waiting = True
        self._heartbeat()
        self._metrics.failures.labels(self._cell.uuid, type(error).__name__).inc()
        _log.warning("relay.waiting", cell=self._cell.name, attempt=attempt, reason=str(error))
