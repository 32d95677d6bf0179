"""What a process and all that it has started use of the machine. Linux: read from /proc, without a library."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """What a process and its children have taken, in user and kernel mode, those that have ended among them.

    0 for one that is no more.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(processor_s(child) for child in _children(pid))


def processor_shares(pids: Mapping[str, int], window_s: float) -> Mapping[str, float]:
    """How many processors each takes, over a time in which the caller does nothing. pids: by name."""
    before, begun_s = {name: processor_s(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(window_s)
    took_s = time.monotonic() - begun_s
    return {name: (processor_s(pid) - before[name]) / took_s for name, pid in pids.items()}


def memory_mib(pid: int) -> float:
    """Resident memory of a process and its children; what several of them share counts once."""
    return sum(_field(each, "smaps_rollup", "Pss:") for each in _tree(pid)) / 1024


@dataclass(frozen=True, slots=True)
class OpenThings:
    """What a process and its children have open. connections: those of `files` that are sockets."""

    threads: int
    files: int
    connections: int


def open_things(pid: int) -> OpenThings:
    """Of a process and its children, now."""
    pids = list(_tree(pid))
    files = [target for each in pids for target in _targets(each)]
    connections = sum(target.startswith("socket:") for target in files)
    return OpenThings(sum(_field(each, "status", "Threads:") for each in pids), len(files), connections)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in _children(pid):
        yield from _tree(child)


def _children(pid: int) -> Iterator[int]:
    """Each thread has the children that it has begun."""
    for each in _listed(Path(f"/proc/{pid}/task")):
        with suppress(OSError):  # the thread has ended
            yield from map(int, (each / "children").read_text().split())


def _targets(pid: int) -> Iterator[str]:
    for each in _listed(Path(f"/proc/{pid}/fd")):
        with suppress(OSError):  # it was closed meanwhile
            yield str(each.readlink())


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []  # the process has ended


def _field(pid: int, file: str, name: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/{file}").read_text().partition(name)[2].split()[0])
    except (OSError, IndexError):
        return 0  # it has ended, and its parent has not asked for it yet
