"""The relay: publishes the outbox of one cell to its bus, in order, at least once, with one active relay at a time.

A step assigns the next sequences to committed changes (a transaction of its own), publishes numbered changes that are
not published yet, waits for the confirms, and marks them as published. Wherever it is interrupted, the next relay
continues with the same sequences: a change may be published twice, never under two sequences, and without holes.
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

# Between two checks of the bus by a relay on standby.
_CHECK_INTERVAL_S = 60.0


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
    """The lock of the active relay of the cell. takeover_after_s: as for open_leases."""
    leases = open_leases(engine, "fleetlight relay", takeover_after_s=takeover_after_s)
    return ExclusiveLock(leases, f"relay-{cell.uuid}")


class Publishes(Protocol):
    """Publishes messages to a bus."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Publish messages, and return when the bus has confirmed all. Raises BusError; some may have arrived then."""
        ...


class Relay:
    """The relay of one native cell. Call `run`, or `run_once` for a single step.

    Several processes may run a relay for the same cell: one is active, and the others stand by until it ends, hangs, or
    cannot reach the bus. A relay that hung assigns no more sequences wherever it wakes up, since the transaction checks
    that the newest epoch is its own.
    sign: signs a message for the cell (fleetlight.cells.fleet.cell_keys), as readers require.
    heartbeat: called by `run` after each step, and before each wait for a server.
    check_bus: called before a takeover, after a failure, and now and then on standby; raises BusError.
    takeover_after_s: without a sign of life for so long, another relay takes over (fleetlight.cells.database.leases).
    traces: of the process; None if it makes none.
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
        # Whether commits since the last query may have added changes, or may be those of an older copy.
        self._may_be_unnumbered = self._may_be_restored = True
        self._all_numbered_at: int | None = None
        self._heartbeat_due = 0.0
        self._pruning = ChangelogPruning(engine, clock, retention_h=settings.changelog_retention_h)

    @property
    def is_active(self) -> bool:
        """Whether this relay was the active one at its last step."""
        return self._is_active

    def run(self, stop: Event) -> None:
        """Relay until `stop` is set; waits, longer and longer, while the bus or the database cannot be used.

        It even waits for an operator to correct an address, so that other cells of the process are still relayed.
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
        """Wait until the cell may have changes, or a heartbeat is due; on standby for one interval."""
        if self._is_active:
            longest_s = max(0.0, self._heartbeat_due - time.monotonic())
            self._commits.wait(stop, self._settings.poll_interval_s, longest_s)
        else:
            stop.wait(self._settings.poll_interval_s)

    def run_once(self) -> int:
        """Publish at most one batch, and a heartbeat when it is due; returns the number of published changes.

        Returns 0 if another relay is active. Raises BusError and CellUnreachableError.
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
                    # Another relay may reach the bus: release the lock for it.
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
        # While the bus is down, all relays try in turn; one that cannot publish must change nothing.
        self._bus.require()
        # The previous relay may have been interrupted at any point.
        self._may_have_unpublished = self._may_be_unnumbered = self._may_be_restored = True
        self._numbers.begin_epoch()

    def _tell_what_waits(self) -> None:
        """Report the age of the oldest waiting change, for alerts, since no relay may be active."""
        unpublished = select(changes.c.committed_at).where(changes.c.published_at.is_(None))
        numbered = unpublished.where(changes.c.sequence.is_not(None)).order_by(changes.c.sequence)
        others = unpublished.where(changes.c.sequence.is_(None)).order_by(changes.c.id)
        with self._engine.connect() as connection:
            for oldest in connection.scalars(numbered.limit(1)).all() or connection.scalars(others.limit(1)):
                self._metrics.waits_since(self._cell.uuid, oldest)

    def close(self) -> None:
        """Release the lock, so that another relay takes over."""
        self._lock.release()
        self._is_active = False
        self._metrics.active(self._cell.uuid, is_active=False)

    def _publish_batch(self) -> int:
        rows = self._unpublished() if self._may_have_unpublished else []
        if not rows:
            # The sequences may be committed although the answer is lost.
            self._may_have_unpublished = True
            if not self._give_numbers():
                self._may_have_unpublished = False
                self._metrics.nothing_waits(self._cell.uuid)
                return 0
            self._metrics.numbered(self._cell.uuid, self._numbers.last)
            rows = self._unpublished()
        if not rows:
            # This process hung after it assigned sequences, and the relay that took over has published the changes.
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
        """Assign sequences to at most a batch of committed changes; returns their number."""
        looked_at = self._clock()
        if self._commits.may_be_new():
            self._may_be_unnumbered = self._may_be_restored = True
        numbered = self._numbers.give(self._settings.batch_size) if self._may_be_unnumbered else 0
        self._may_be_unnumbered = numbered == self._settings.batch_size
        if not self._may_be_unnumbered:
            self._all_numbered_at = looked_at
        return numbered

    def _publish(self, rows: Sequence[Row[Any]]) -> None:
        """Publish a batch, without changes too large for the bus, which would stop all others.

        The indexer misses the sequence of such a change, and reads it from the changelog.
        """
        sent = [row for row in rows if self._is_sent(row)]
        try:
            self._send(sent)
        except MessageRefusedError:
            # The broker does not say which message it refused.
            for row in sent:
                try:
                    self._send([row])
                except MessageRefusedError as error:
                    self._leave_out(row, error.reason)
                self._heartbeat()

    def _send(self, rows: Sequence[Row[Any]]) -> None:
        """Publish the messages of rows. Raises BusError."""
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
        """Publish a heartbeat: every change that was committed before `at` has at most the last sequence."""
        if self._may_be_restored and self._numbers.was_restored():
            self._numbers.begin_again()
            # The older copy may have changes without a sequence.
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


class RelayBus:
    """The bus of a relay. check: raises BusError. is_reached: whether the last `require` reached the bus."""

    def __init__(self, cell: Cell, check: Callable[[], None]) -> None:
        self._cell = cell
        self._check = check
        self._is_away = False
        self.check_due_s = 0.0
        self.is_reached = False

    def require(self) -> None:
        """Raises BusError if the bus cannot be reached."""
        self.is_reached = False
        self._check()
        self.is_reached = True

    def look_now_and_then(self) -> None:
        """Log whether this relay could take over, since a wrong account or authority would show too late."""
        if time.monotonic() < self.check_due_s:
            return
        was_away, self._is_away = self._is_away, False
        try:
            self._check()
        except BusError as error:
            self._is_away = True
            if not was_away:
                _log.warning("relay.standby_without_bus", cell=self._cell.name, reason=str(error))
        else:
            if was_away:
                _log.info("relay.standby_has_bus_again", cell=self._cell.name)
        self.check_due_s = time.monotonic() + _CHECK_INTERVAL_S
