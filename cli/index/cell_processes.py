"""Child processes that each work on some of the cells, since Python code uses one processor per process.

The parent keeps what the cells of a command share: leases, the stop signal, progress and records. A child does what a
thread of the parent would do, and asks the parent between two pages whether to continue. A child ends with the parent,
in whatever way that ends, so no child works on without the lease.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from multiprocessing import get_context, get_start_method, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Event, Lock
from typing import Any, Generic, TypeVar

from fleetlight.cli.endings import how_it_ended
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.settings import Settings
from fleetlight.cli.work_progress import Show
from fleetlight.indexer.errors import ProcessEndedError, StopRequestedError

J = TypeVar("J")
R = TypeVar("R")
Work = Callable[[J, Show], R]
"""Does a job. Between two pages it calls the function with the number of rows so far; an error from that ends it."""
OpenWork = Callable[[Settings, float | None, Event], AbstractContextManager[Work[J, R]]]
"""Opens, inside the child, what its jobs need.

It takes the settings, the limit of rows a second, and an event that is set when all work is to stop.
"""


def number_of_processes(settings: Settings, wanted: int | None) -> int:
    """How many processes read cells. wanted: the option of the command, if given.

    Raises ConfigurationError if several are wanted for an index that only one process at a time can write.
    """
    if settings.index.backend != "sqlite":
        return wanted or settings.indexer.sync_processes
    if wanted is not None and wanted > 1:
        raise ConfigurationError(
            f"--processes {wanted} gains nothing with the SQLite index, which takes the writes of one process at a "
            "time: leave it away, or keep the index in Elasticsearch (index.backend)"
        )
    return 1


@contextmanager
def cell_processes(
    settings: Settings, number: int, cells_at_once: int, rate: float | None, open_work: OpenWork[J, R]
) -> Iterator["CellProcesses[J, R] | None"]:
    """Start children for the block. Yields None if one process is enough, which is then the parent.

    The caller enters it before it opens anything, since children are forked. rate: rows a second, of all children
    together. open_work: a function at the top of a module.
    """
    if number == 1:
        yield None
        return
    children = CellProcesses[J, R]()
    try:
        children.start(number, cells_at_once, _Child(settings, None if rate is None else rate / number, open_work))
        yield children
    finally:
        children.close()


class CellProcesses(Generic[J, R]):
    """The children of one command; several threads may use it."""

    def __init__(self) -> None:
        self._processes: dict[Connection, BaseProcess] = {}
        self._free = SimpleQueue[Connection]()

    def start(self, number: int, cells_at_once: int, child: "_Child[J, R]") -> None:
        # A fork takes milliseconds, but is safe only without threads. A spawned child first imports everything, 1 s.
        context: ForkContext | SpawnContext
        context = get_context("fork") if threading.active_count() == 1 else get_context("spawn")
        connections: list[list[Connection]] = []
        for _ in range(number):
            pairs = [context.Pipe() for _ in range(-(-cells_at_once // number))]
            process = context.Process(target=child.run, args=([theirs for _, theirs in pairs],))
            process.start()
            for ours, theirs in pairs:
                theirs.close()  # so that it closes when the child ends
                self._processes[ours] = process
            connections.append([ours for ours, _ in pairs])
        # Interleave the connections, so that the first cells go to different children.
        for ours in chain.from_iterable(zip(*connections, strict=True)):
            self._free.put(ours)

    def do(self, cell: str, job: J, on_progress: Show) -> R:
        """Let a child do a job, and wait for it. cell: its name. on_progress: called in this thread.

        Raises what the work or `on_progress` raises, and ProcessEndedError if the child dies.
        """
        connection = self._free.get()
        try:
            failure, answer = _exchanged(connection, job, on_progress)
        except (EOFError, ConnectionError) as error:
            process = self._processes[connection]
            process.join()
            raise ProcessEndedError(cell, how_it_ended(process.exitcode)) from error
        finally:
            self._free.put(connection)
        if failure is not None:
            raise failure
        if isinstance(answer, _Failure):
            raise answer.error()
        result: R = answer.value
        return result

    def close(self) -> None:
        """Let each child finish its current job, then end it."""
        for connection in self._processes:
            with suppress(OSError):
                connection.send(None)
        for connection, process in self._processes.items():
            process.join()
            connection.close()


@dataclass(frozen=True, slots=True)
class _Child(Generic[J, R]):
    """rate: rows a second that this child may read."""

    settings: Settings
    rate: float | None
    open_work: OpenWork[J, R]

    def run(self, connections: Sequence[Connection]) -> None:
        """The main function of the child; each connection carries one job at a time."""
        # Ctrl-C and systemd signal all processes: only the parent reacts, by ending the work and then its children.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
        if get_start_method(allow_none=True) == "spawn":
            configure_logging(self.settings.log)
        stop = Event()
        with ExitStack() as opened, ThreadPoolExecutor(len(connections), thread_name_prefix="cell") as threads:
            work = _Opened(lambda: opened.enter_context(self.open_work(self.settings, self.rate, stop)))
            for connection in connections:
                threads.submit(_served_or_ended, connection, work, stop)


class _Opened(Generic[J, R]):
    """Opens the work of a child at its first job, since a refused command has no job."""

    def __init__(self, open_work: Callable[[], Work[J, R]]) -> None:
        self._open_work = open_work
        self._guard = Lock()
        self._work: Work[J, R] | None = None

    def __call__(self, job: J, on_progress: Show) -> R:
        with self._guard:
            self._work = self._work or self._open_work()
        return self._work(job, on_progress)


class _Reply(Enum):
    """The parent's reply to progress. END ends the work on this cell alone, STOP all work."""

    GO_ON = auto()
    END = auto()
    STOP = auto()


@dataclass(frozen=True, slots=True)
class _Job:
    value: Any


@dataclass(frozen=True, slots=True)
class _Result:
    value: Any


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error as parts, because pickle would call its class with the text alone."""

    kind: type[Exception]
    args: tuple[object, ...]
    attributes: dict[str, object]

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        error.add_note("".join(traceback.format_exception(error)))
        return cls(type(error), error.args, error.__dict__)

    def error(self) -> Exception:
        error = self.kind.__new__(self.kind)
        error.args = self.args
        error.__dict__.update(self.attributes)
        return error


def _exchanged(connection: Connection, job: object, on_progress: Show) -> "tuple[Exception | None, _Result | _Failure]":
    """Send a job. Returns the error that `on_progress` raised, if any, and the child's final answer.

    Raises EOFError and ConnectionError if the child is gone.
    """
    connection.send(_Job(job))
    failure: Exception | None = None
    while isinstance(answer := connection.recv(), int):
        try:
            on_progress(answer)
        except Exception as error:  # noqa: BLE001  # raised by the caller, when the child has ended the job
            failure = error
        connection.send(_reply(failure))
    return failure, answer


def _served_or_ended(connection: Connection, work: Work[J, R], stop: Event) -> None:
    """Serve jobs. An answer that cannot be pickled is our mistake: the child exits, lest its parent wait forever."""
    try:
        _serve(connection, work, stop)
    except BaseException:  # noqa: BLE001  # the edge: it is printed
        traceback.print_exc()
        os._exit(1)


def _serve(connection: Connection, work: Work[J, R], stop: Event) -> None:
    def on_progress(rows: int) -> None:
        connection.send(rows)
        reply = connection.recv()
        if reply is _Reply.STOP:
            stop.set()
        if reply is not _Reply.GO_ON:
            raise StopRequestedError

    while isinstance(job := connection.recv(), _Job):
        answer: _Result | _Failure
        try:
            answer = _Result(work(job.value, on_progress))
        except Exception as error:  # noqa: BLE001  # the edge: the parent raises it
            answer = _Failure.of(error)
        connection.send(answer)


def _reply(failure: Exception | None) -> _Reply:
    if failure is None:
        return _Reply.GO_ON
    return _Reply.STOP if isinstance(failure, StopRequestedError) else _Reply.END


def _end_with_parent() -> None:
    """Exit at once when the parent is gone: another process may hold the lease by now, and writes would collide."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
