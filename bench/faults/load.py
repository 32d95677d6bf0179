"""A steady load of operations on all cells, and a journal of what the cells have promised by answering."""

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fleetlight.cells.errors import (
    CellUnreachableError,
    FleetUnreachableError,
    InstanceNotFoundError,
    InvalidTransitionError,
)
from tests.support.fleets.instance_operations import Changed, InstanceOperations

_PAUSE_S = 0.01  # leaves the processes time to follow
_FEW = 20  # instances that are alive


@dataclass(frozen=True, slots=True)
class Promise:
    """What a cell has answered last about an instance: it has at least this revision, and is deleted or not.

    name: no other instance has it, and this one never again. is_certain: False when a later operation got no answer, so
    that the cell may be one revision further.
    """

    cell: int
    revision: int
    is_deleted: bool
    name: str
    is_certain: bool = True


class FaultLoad:
    """Random operations from a thread; `journal` may be read when `finish` has returned, or while it is paused."""

    def __init__(self, cells: Sequence[InstanceOperations], seed: int) -> None:
        self._cells = cells
        self._random = random.Random(seed)
        self._alive: list[str] = []
        self._stop = threading.Event()
        self._done = threading.Condition()
        self._operating = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="load")
        self._failure: BaseException | None = None
        self.journal: dict[str, Promise] = {}
        self.events = 0

    def start(self) -> None:
        self._thread.start()

    def wait_for(self, events: int, timeout_s: float = 120) -> None:
        """Return when that many more operations have succeeded."""
        with self._done:
            wanted = self.events + events
            arrived = self._done.wait_for(lambda: self.events >= wanted or self._failure is not None, timeout_s)
        assert arrived, f"the load stands still after {self.events} operations"
        assert self._failure is None, self._failure

    def take_back(self, cell: int, journal: Mapping[str, Promise]) -> None:
        """What this cell has promised since `journal` was copied never happened; called while it is paused."""
        others = {uuid: promise for uuid, promise in self.journal.items() if promise.cell != cell}
        self.journal = others | {uuid: promise for uuid, promise in journal.items() if promise.cell == cell}
        self._alive = [uuid for uuid, promise in self.journal.items() if not promise.is_deleted]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No operation is under way, and none begins; `journal` may be read."""
        with self._operating:
            yield

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        """Stop, and make one more change in each cell: it comes when everything works again, so all must follow it."""
        self.stop()
        if self._failure is not None:
            raise self._failure
        for number in range(len(self._cells)):
            self._create(number)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_PAUSE_S):
                try:
                    with self._operating:
                        self._operate()
                except (CellUnreachableError, FleetUnreachableError):
                    continue
        except BaseException as error:
            self._failure = error
            raise
        finally:
            with self._done:
                self._done.notify_all()

    def _operate(self) -> None:
        if len(self._alive) < _FEW or self._random.random() < 0.3:
            self._create(self._random.randrange(len(self._cells)))
            return
        position = self._random.randrange(len(self._alive))
        uuid, kind = self._alive[position], self._random.randrange(4)
        promise = self.journal[uuid]
        cell, name = self._cells[promise.cell], promise.name
        try:
            match kind:
                case 0:
                    name = f"renamed {self.events}"
                    changed = cell.update(uuid, {"display_name": name})
                case 1:
                    changed = cell.stop(uuid)
                case 2:
                    changed = cell.start(uuid)
                case _:
                    changed = cell.delete(uuid)
        except InvalidTransitionError:
            return
        except InstanceNotFoundError:
            # Deleted by an operation that got no answer; any other instance must be found.
            assert not promise.is_certain, f"instance {uuid} is gone"
            self._forget(position)
            return
        except (CellUnreachableError, FleetUnreachableError):
            self.journal[uuid] = replace(promise, is_certain=False)
            raise
        if kind == 3:
            self._forget(position)
        self._note(promise.cell, changed, name, is_deleted=kind == 3)

    def _create(self, number: int) -> None:
        name = f"instance {self.events}"
        changed = self._cells[number].create({"display_name": name, "host": "host1"})
        self._alive.append(changed.uuid)
        self._note(number, changed, name, is_deleted=False)

    def _forget(self, position: int) -> None:
        del self._alive[position]

    def _note(self, cell: int, changed: Changed, name: str, *, is_deleted: bool) -> None:
        self.journal[changed.uuid] = Promise(cell, changed.revision, is_deleted, name)
        with self._done:
            self.events += 1
            self._done.notify_all()
