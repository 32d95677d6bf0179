"""`scripts/bench scale`: 10,000 to 1,000,000 instances, and 10 to 1,000 cells in which nothing happens.

What docs/explanation/scale.md reckons with. Each measurement that has ended is kept in build/scale.jsonl, a line each:
begun again, this goes on with what is missing; remove the file to measure all anew. Its servers are its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.measure import Figure
from bench.recovery import followed_fleet
from bench.scale import cells
from bench.scale.instances import MEASUREMENTS
from bench.scale.kept import KeptFigures
from scripts.servers.folders import CHECKOUT

_FILE = CHECKOUT / "build" / "scale.jsonl"
SIZES, _QUICK_SIZES = (10_000, 100_000, 1_000_000), (2_000,)
CELL_COUNTS, _QUICK_CELL_COUNTS = (10, 100, 1_000), (3,)
_WINDOW_S, _QUICK_WINDOW_S = 30.0, 2.0
_WAYS = {"one_command": cells.in_one_command, "followers": cells.in_processes}
# What takes minutes, and says no more with other numbers of instances.
_ONLY_AT = {"processes": SIZES, "servers": (100_000,), "emptied": (10_000, 100_000), "audit_share": (1_000_000,)}


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 2,000 instances and three cells, of which nothing is kept. Raises ServerError where one cannot start."""
    for part in PARTS.values():
        yield from part(directory, quick)


def _run_cells(directory: Path, quick: bool) -> Iterator[Figure]:
    counts, window_s = (_QUICK_CELL_COUNTS, _QUICK_WINDOW_S) if quick else (CELL_COUNTS, _WINDOW_S)
    kept = _kept(directory, quick, [name for count in counts for name in of_cells(count)])
    yield from kept.known()
    for count in counts:
        for name in kept.missing(of_cells(count)):
            measure = _WAYS[name.rpartition(".")[2]]
            yield from kept.measured(name, partial(measure, _folder(directory, name), count, window_s))


def _run_instances(directory: Path, quick: bool) -> Iterator[Figure]:
    sizes = _QUICK_SIZES if quick else SIZES
    kept = _kept(directory, quick, [name for size in sizes for name in _of(size)])
    yield from kept.known()
    for size in sizes:
        if missing := kept.missing(_of(size)):
            yield from _measured(kept, missing, _folder(directory, str(size)), size)


PARTS: Mapping[str, Callable[[Path, bool], Iterator[Figure]]] = {
    "scale.cells": _run_cells,
    "scale.instances": _run_instances,
}


def _kept(directory: Path, quick: bool, planned: Sequence[str]) -> KeptFigures:
    return KeptFigures(directory / _FILE.name if quick else _FILE, planned)


def of_cells(count: int) -> Sequence[str]:
    """Names of what is measured with so many cells."""
    return [f"{count}_cells.{way}" for way in _WAYS if way != "one_command" or count <= cells.UP_AT_MOST]


def _of(size: int) -> Sequence[str]:
    """Names of what is measured with so many instances."""
    return [f"{size}.{name}" for name in MEASUREMENTS if size in _ONLY_AT.get(name, (size,))]


def _folder(directory: Path, name: str) -> Path:
    folder = directory / name
    folder.mkdir()
    return folder


def _measured(kept: KeptFigures, missing: Sequence[str], folder: Path, size: int) -> Iterator[Figure]:
    with followed_fleet(folder, size) as followed:
        if f"{size}.sync" not in missing:
            followed.wait()
        for name in missing:
            yield from kept.measured(name, partial(MEASUREMENTS[name.partition(".")[2]], followed))
