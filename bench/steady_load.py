"""Changes at a steady rate, made by a process of their own: `python -m bench.steady_load CONFIG --rate N --seconds N`.

Each is an operation as the fleet makes it, in a transaction of its own. In the process that measures they would wait
for its other threads, and those for them. Prints how many were made, and in how many seconds.
"""

import argparse
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.settings import load_settings
from tests.support.fleets.instance_operations import InstanceOperations


@dataclass(frozen=True, slots=True)
class Load:
    """count: changes that were made. per_second: how fast, which is less than asked for if the machine is too slow."""

    count: int
    per_second: float


def change_steadily(config: Path, *, rate: float, seconds: float) -> Load:
    """Let another process change the instances that there are in the cells, and wait until it has ended."""
    command = [sys.executable, "-m", "bench.steady_load", str(config), f"--rate={rate}", f"--seconds={seconds}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    count, took_s = json.loads(done.stdout)
    return Load(count, count / took_s)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    arguments = parser.parse_args()
    with open_fleet(load_settings(arguments.config, None).fleet) as fleet:
        cells = [_Cell(InstanceOperations(engine, fleet, cell), _uuids(engine)) for cell, engine in _engines(fleet)]
        begun_s = time.monotonic()
        with ThreadPoolExecutor(len(cells)) as threads:
            rate = arguments.rate / len(cells)
            count = sum(threads.map(lambda cell: _change(cell, rate, begun_s + arguments.seconds), cells))
        json.dump((count, time.monotonic() - begun_s), sys.stdout)


@dataclass(frozen=True, slots=True)
class _Cell:
    operations: InstanceOperations
    uuids: list[str]


def _engines(fleet: Fleet) -> Iterator[tuple[Cell, Engine]]:
    for cell in fleet.cells():
        yield cell, create_database_engine(cell.database_url)


def _uuids(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(select(instances.c.uuid)))


def _change(cell: _Cell, rate: float, until_s: float) -> int:
    """Change one instance after the other; returns how many changes that were. Cells do not wait for each other."""
    generator = random.Random(1)
    pause = threading.Event()
    count = 0
    due_s = time.monotonic()
    while (now_s := time.monotonic()) < until_s:
        pause.wait(max(0.0, due_s - now_s))
        cell.operations.update(generator.choice(cell.uuids), {"display_name": f"renamed {count}"})
        count += 1
        due_s += 1 / rate
    return count


if __name__ == "__main__":
    main()
