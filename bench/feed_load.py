"""Changes at a steady rate, each numbered as soon as a relay can: `python -m bench.feed_load`, with a Task on its
standard input.

A process of its own, so that what is measured does not wait for it. The name of an instance says when its change began,
by the clock of the machine since it was started.
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import msgspec

from fleetlight.bus.bus import Message
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import RelaySettings
from tests.support.fleets.instance_operations import InstanceOperations

_RELAY_REST_S = 0.02


@dataclass(frozen=True, slots=True)
class Task:
    """uuids: instances to change, one after the other; each of cells as often as another. rate: changes a second."""

    fleet_url: str
    cells: Sequence[tuple[str, str, str]]
    uuids: Sequence[tuple[str, str]]
    rate: float
    seconds: float


class _NoBus:
    def publish(self, messages: Sequence[Message]) -> None: ...


def main() -> None:
    """Prints how many changes were made a second."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    fleet = Fleet(create_database_engine(task.fleet_url))
    cells = {name: Cell(uuid, name, CellKind.NATIVE, url, "memory://") for uuid, name, url in task.cells}
    engines = {name: create_database_engine(cell.database_url) for name, cell in cells.items()}
    relays = [Relay(engines[name], cell, _NoBus(), RelaySettings()) for name, cell in cells.items()]
    stop = threading.Event()
    numbering = threading.Thread(target=_number, args=(relays, stop))
    numbering.start()
    operations = {name: InstanceOperations(engines[name], fleet, cell) for name, cell in cells.items()}
    begun = time.monotonic()
    count = 0
    for cell, uuid in cycle(task.uuids):
        due = begun + count / task.rate
        if (now := time.monotonic()) > begun + task.seconds:
            break
        time.sleep(max(0.0, due - now))
        operations[cell].update(uuid, {"display_name": str(time.monotonic())})
        count += 1
    took_s = time.monotonic() - begun
    stop.set()
    numbering.join()
    print(count / took_s)  # it is what this program says


def _number(relays: Sequence[Relay], stop: threading.Event) -> None:
    """Until all that was made by the end has a number."""
    is_last = False
    while not is_last:
        is_last = stop.wait(_RELAY_REST_S)
        for relay in relays:
            while relay.run_once():
                pass
    for relay in relays:
        relay.close()


if __name__ == "__main__":
    main()
