"""Runs a command as a parent with child processes: starts them, keeps them running, and stops them in order.

Children are forked, since what the parent has imported and made takes seconds to make again, but milliseconds to fork.
So the parent has neither threads nor connections when it begins to supervise, and never serves anything itself. If it
dies, its children end.
"""

import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import mkdtemp

import structlog
from prometheus_client import CollectorRegistry

from fleetlight.cli.endings import as_command_error, how_it_ended
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.cli.monitoring import served
from fleetlight.cli.processes.command_probes import CommandProbes
from fleetlight.cli.processes.sibling_processes import SiblingProcess, States, answering, listen_for_requests
from fleetlight.cli.processes.signals import STOPPING, signals_answered, woken_by_signals
from fleetlight.cli.processes.summing import SummedMetrics
from fleetlight.cli.settings import MonitoringSettings
from fleetlight.cli.watchdog import wants_signs, watched
from fleetlight.indexer.stream.liveness import ALIVE, Probe, Probes

_log = structlog.get_logger(__name__)

_FORK = multiprocessing.get_context("fork")
_MONITORING = "monitoring"
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
# A child that ran this long did not end because of a failed start.
_LONG_RUN_S = 60.0
_SIGN_INTERVAL_S = 1.0
# How many checks in a row may find no sign of life before the parent kills a child. Checks are counted instead of
# seconds: if all processes are halted at once, as in a paused container, no child counts as silent.
_SILENT_LOOKS = 10


@dataclass(frozen=True, slots=True)
class Child:
    """A process to be kept running.

    name: in the log and in the probes. run: runs in the child; reports when it is ready, and returns after SIGTERM.
    listener: the socket that it serves, if any; the parent keeps it open for a successor.
    ends_within_s: how long it may take to end after SIGTERM before it is killed.
    answers_lists: whether its `/readyz` says that lists can be answered.
    """

    name: str
    run: Callable[["ChildContext"], None]
    listener: socket.socket | None = None
    ends_within_s: float = 30.0
    answers_lists: bool = False


class ChildContext:
    """The command, as seen by a child. siblings: its processes by name. command_probes: the combined probes."""

    def __init__(
        self,
        reports: Connection,
        requests: socket.socket,
        siblings: Mapping[str, SiblingProcess],
        command_probes: CommandProbes,
    ) -> None:
        self._reports = reports
        self._requests = requests
        self.siblings = siblings
        self.command_probes = command_probes
        self._probes: Probes | None = None

    @property
    def is_alive(self) -> bool:
        """What the probes say while they are served; a child that is starting or ending counts as alive."""
        probes = self._probes
        return probes is None or probes.healthz().is_well

    def is_ready(self) -> None:
        """Report to the parent that the child is ready; call this while the child answers requests."""
        self._reports.send(None)

    @contextmanager
    def answering(
        self, registry: CollectorRegistry, probes: Probes, orders: Mapping[str, Callable[[], object]] | None = None
    ) -> Iterator[None]:
        """Answer requests of siblings during the block; see fleetlight.cli.processes.sibling_processes."""
        with answering(self._requests, registry, probes, orders or {}):
            self._probes = probes
            try:
                yield
            finally:
                self._probes = None


@dataclass(slots=True)
class _Kept:
    """The parent's record of a child.

    number: its index in the states. requests: the socket at which siblings send it requests.
    starts_at: when to start it (again), by the monotonic clock; None if it runs, or is not due yet.
    wait_s: the wait before the next start. was_ready: since the command began.
    kill_at: when to kill it unless it has ended, by the same clock.
    sign, silent_looks: its last sign of life, and the number of checks since.
    reports: the pipe by which it sends None when it is ready, or its failure.
    """

    child: Child
    number: int
    requests: socket.socket
    starts_at: float | None = None
    started_at: float = 0.0
    wait_s: float = _FIRST_WAIT_S
    was_ready: bool = False
    kill_at: float | None = None
    sign: int = 0
    silent_looks: int = 0
    process: BaseProcess | None = None
    reports: Connection | None = None
    failure: CommandError | None = None


def supervise(
    stages: Sequence[Sequence[Child]], monitoring: MonitoringSettings, on_ready: Callable[[], object]
) -> None:
    """Run children until SIGINT or SIGTERM, or until one fails, which raises CommandError with its text.

    The caller must have no threads. stages: groups of children. Each group starts when the one before it is ready, and
    stops when that one has ended. monitoring: where one more child serves the metrics and probes of all; it also
    reports to systemd. on_ready: called when the first stage is ready, before the next one starts. A child that is
    killed, or ends unasked, is restarted. A child that gives no sign of life for ten seconds, or does not end in time,
    is killed. A second signal kills all that still run.
    """
    if threading.active_count() > 1:
        raise RuntimeError(f"threads are not forked, and would be missed: {threading.enumerate()}")
    keep_collector_out_of_the_way()
    folder = Path(mkdtemp(prefix="fleetlight-"))
    try:
        _Supervisor(stages, monitoring, folder).run(on_ready)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    def __init__(self, stages: Sequence[Sequence[Child]], monitoring: MonitoringSettings, folder: Path) -> None:
        self._folder = folder
        self._monitoring = monitoring
        is_watched = monitoring.port is not None or wants_signs()
        watching = [Child(_MONITORING, self._serve_monitoring)] if is_watched else []
        children = [*watching, *(child for stage in stages for child in stage)]
        self._states = States(len(children))
        self._kept = {
            child.name: _Kept(child, number, listen_for_requests(folder / child.name))
            for number, child in enumerate(children)
        }
        self._siblings = {
            name: SiblingProcess(name, folder / name, kept.number, self._states) for name, kept in self._kept.items()
        }
        self._command_probes = CommandProbes(
            list(self._siblings.values()), [child.name for child in children if child.answers_lists]
        )
        self._watching = [self._kept[child.name] for child in watching]
        self._stages = [[self._kept[child.name] for child in stage] for stage in stages]
        # A pipe, of which only the parent keeps the writing end: children can read its end when the parent is gone.
        self._end_of_parent, self._life = os.pipe()
        self._is_stopping = False
        self._looks_at = time.monotonic()

    def run(self, on_ready: Callable[[], object]) -> None:
        with woken_by_signals() as woken:
            try:
                self._keep_running(woken, on_ready)
            finally:
                self._stop(woken)
        for kept in self._kept.values():
            if kept.failure is not None:
                raise kept.failure

    def _keep_running(self, woken: socket.socket, on_ready: Callable[[], object]) -> None:
        """Start all stages and keep them running; returns after a signal, or when a child has failed."""
        for stage in ([self._watching] if self._watching else []) + self._stages:
            for kept in stage:
                kept.starts_at = time.monotonic()
            while not all(kept.was_ready for kept in stage):
                if self._is_over(woken):
                    return
            if stage is self._stages[0]:
                on_ready()
        while not self._is_over(woken):
            pass

    def _is_over(self, woken: socket.socket) -> bool:
        """Start children that are due, and handle the next event; returns whether to stop."""
        for kept in self._kept.values():
            if kept.starts_at is not None and kept.starts_at <= time.monotonic():
                self._start(kept)
        happened = self._wait(woken)
        if woken in happened:
            _log.info("stopping", signal=signal.Signals(woken.recv(1)[0]).name)
        return woken in happened or any(kept.failure is not None for kept in self._kept.values())

    def _wait(self, woken: socket.socket) -> Sequence[object]:
        """Wait for a signal, a child's report or end, or the next time limit, and record it. Returns what happened.

        Kills children that are silent, or late to end.
        """
        self._kill_hanging()
        times = [self._looks_at, *(kept.starts_at or kept.kill_at for kept in self._kept.values())]
        timeout_s = max(0.0, min(filter(None, times)) - time.monotonic())
        running = [kept for kept in self._kept.values() if kept.process is not None]
        reports = [kept.reports for kept in running if kept.reports is not None]
        ends = [kept.process.sentinel for kept in running if kept.process is not None]
        happened = wait([woken, *reports, *ends], timeout_s)
        for kept in running:
            if kept.reports in happened:
                self._hear(kept)
            if kept.process is not None and kept.process.sentinel in happened:
                self._note_end(kept, kept.process)
        return happened

    def _hear(self, kept: _Kept) -> None:
        if kept.reports is None:
            return
        try:
            said = kept.reports.recv()
        except (EOFError, OSError):
            kept.reports.close()
            kept.reports = None
            return
        if said is None:
            kept.was_ready = True
            self._states.set_ready(kept.number)
        else:
            kept.failure = _failure(*said)

    def _kill_hanging(self) -> None:
        now = time.monotonic()
        looks = self._looks_at <= now
        if looks:
            self._looks_at = now + _SIGN_INTERVAL_S
        for kept in self._kept.values():
            if kept.process is None:
                continue
            if looks:
                self._look_for_sign(kept)
            if kept.silent_looks >= _SILENT_LOOKS:
                self._kill(kept, kept.process, "it gives no sign of life")
            elif kept.kill_at is not None and kept.kill_at <= now:
                self._kill(kept, kept.process, f"it has not ended within {kept.child.ends_within_s:g} s")

    def _look_for_sign(self, kept: _Kept) -> None:
        sign = self._states.sign(kept.number)
        kept.silent_looks = kept.silent_looks + 1 if sign == kept.sign else 0
        kept.sign = sign

    def _kill(self, kept: _Kept, process: BaseProcess, reason: str) -> None:
        _log.warning("process.killed", name=kept.child.name, reason=reason)
        process.kill()
        kept.silent_looks, kept.kill_at = 0, None

    def _note_end(self, kept: _Kept, process: BaseProcess) -> None:
        while kept.reports is not None:
            self._hear(kept)
        process.join()
        if kept.failure is None:
            self._plan_restart(kept, how_it_ended(process.exitcode))
        process.close()
        kept.process = kept.kill_at = None

    def _plan_restart(self, kept: _Kept, reason: str) -> None:
        self._states.set_down(kept.number)
        if self._is_stopping:
            return
        now = time.monotonic()
        if now - kept.started_at > _LONG_RUN_S:
            kept.wait_s = _FIRST_WAIT_S
        kept.starts_at = now + kept.wait_s
        _log.warning("process.ended", name=kept.child.name, reason=reason, again_in_s=kept.wait_s)
        kept.wait_s = min(2 * kept.wait_s, _LONGEST_WAIT_S)

    def _start(self, kept: _Kept) -> None:
        kept.starts_at, kept.started_at = None, time.monotonic()
        kept.silent_looks = 0
        kept.reports, reporting = _FORK.Pipe(duplex=False)
        kept.process = _FORK.Process(target=self._run_child, args=(kept, reporting), name=kept.child.name)
        self._states.set_starting(kept.number)
        # Blocked until the child has handlers of its own, or else a signal for it would count as one for the parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            kept.process.start()
        except OSError as error:
            # The system has no memory for it, or too many processes.
            kept.process = None
            self._plan_restart(kept, str(error))
        else:
            _log.info("process.started", name=kept.child.name, process=kept.process.pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            reporting.close()

    def _stop(self, woken: socket.socket) -> None:
        """Stop the stages in order; returns when all children have ended."""
        self._is_stopping = True
        for kept in self._kept.values():
            kept.starts_at = None
            # Pending connections are refused, instead of waiting for ever.
            if kept.child.listener is not None:
                kept.child.listener.close()
        for stage in (*self._stages, self._watching):
            for kept in stage:
                if kept.process is not None:
                    kept.process.terminate()
                    kept.kill_at = time.monotonic() + kept.child.ends_within_s
            while any(kept.process is not None for kept in stage):
                if woken in self._wait(woken):
                    woken.recv(1)
                    self._kill_all()
        for kept in self._kept.values():
            kept.requests.close()
        os.close(self._life)
        os.close(self._end_of_parent)

    def _kill_all(self) -> None:
        for kept in self._kept.values():
            if kept.process is not None:
                kept.process.kill()

    def _run_child(self, kept: _Kept, reporting: Connection) -> None:
        """The main function of a child."""
        signal.set_wakeup_fd(-1)
        # Only the parent reacts to Ctrl-C: it stops its children one after the other.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        os.close(self._life)
        for other in self._kept.values():
            if other is not kept:
                other.requests.close()
                if other.child.listener is not None:
                    other.child.listener.close()
        context = ChildContext(reporting, kept.requests, self._siblings, self._command_probes)
        threading.Thread(target=self._live_with_parent, args=(context, kept.number), name="parent", daemon=True).start()
        try:
            kept.child.run(context)
        except Exception as error:  # noqa: BLE001  # the edge: the parent raises it
            failure = as_command_error(error)
            if failure is None:
                _log.error("process.failed", name=kept.child.name, exc_info=error)
                failure = CommandError(f"the process {kept.child.name} failed; the log says why")
            reporting.send((str(failure), failure.exit_code))

    def _live_with_parent(self, context: ChildContext, number: int) -> None:
        """Give signs of life while the parent lives; exit when it is gone."""
        while not wait([self._end_of_parent], _SIGN_INTERVAL_S):
            if context.is_alive:
                self._states.give_sign(number)
        # Exit at once, since the next parent needs the folder and the addresses.
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(1)

    def _serve_monitoring(self, context: ChildContext) -> None:
        stop = threading.Event()
        registry = CollectorRegistry()
        registry.register(SummedMetrics(list(self._siblings.values())))
        with (
            signals_answered(lambda _: stop.set(), [signal.SIGTERM]),
            context.answering(CollectorRegistry(), _AlwaysAlive()),
            watched(self._command_probes),
            nullcontext()
            if self._monitoring.port is None
            else served(self._monitoring, registry, self._command_probes),
        ):
            context.is_ready()
            stop.wait()


class _AlwaysAlive:
    """The probes of a process that does nothing but serve the others' probes."""

    def healthz(self) -> Probe:
        return ALIVE

    def readyz(self) -> Probe:
        return ALIVE


def _failure(text: str, exit_code: int) -> CommandError:
    kind = ConfigurationError if exit_code == ConfigurationError.exit_code else CommandError
    return kind(text)
