"""Part of `scripts/bench query`: every instance in one answer, by Ganeti's remote API and by its local socket.

The API is a process of its own; its memory is the highest that the system reports while it answers.
"""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import urllib3

from bench.listing_http import api_process
from bench.measure import Figure, at_most, figure
from fleetlight.api.rapi.bulk_fields import BULK_FIELDS
from fleetlight.indexer.backends.settings import IndexSettings

_CHUNK = 2**20
_END = b"\3"
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class _Read:
    """What reading an answer took; grown: bytes by which the memory of its process rose at the highest."""

    size: int
    first_s: float
    whole_s: float
    grown: int


def run(directory: Path, index: IndexSettings, count: int) -> Iterator[Figure]:
    """directory: of a fleet with `count` instances, all of which are in the index, a file."""
    # A path in a temporary folder may be longer than one of a socket.
    luxi = directory / "s"
    settings = {"INDEX_PATH": str(index.path), "API_LUXI_SOCKET": str(luxi)}
    with api_process(directory, settings) as (url, pid):
        # What every list needs is there before.
        _drain(_by_rapi(f"{url}/2/instances?bulk=1"), lambda _: None)
        read = _measured(pid, _by_rapi(f"{url}/2/instances?bulk=1"))
        yield from _figures("rapi", "GET /2/instances?bulk=1", read, count)
        names = list(BULK_FIELDS["instance"])
        read = _measured(pid, _by_luxi(luxi, "QueryInstances", [], names, False))
        yield from _figures("luxi", "QueryInstances", read, count)


def _figures(face: str, asked: str, read: _Read, count: int) -> Iterator[Figure]:
    what = f"{asked}, {count} instances in {read.size / 1e6:.0f} MB, {read.whole_s:.1f} s"
    yield figure(
        f"query.whole.{face}.memory",
        read.grown / read.size,
        "ratio",
        f"{what}: growth of the API's memory at its highest ({read.grown / 1e6:.0f} MB) / size of the answer",
        runs=1,
        goal=at_most(1.2),
    )
    yield figure(
        f"query.whole.{face}.first",
        read.first_s / read.whole_s,
        "ratio",
        f"{what}: time to the first byte / to the last",
        runs=1,
        goal=at_most(0.1),
    )


def _measured(pid: int, parts: Iterator[bytes]) -> _Read:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the highest is what it has now (proc(5))
    before = _highest(pid)
    begin = time.perf_counter()
    first_s: list[float] = []
    size = _drain(parts, lambda _: None if first_s else first_s.append(time.perf_counter() - begin))
    return _Read(size, first_s[0], time.perf_counter() - begin, _highest(pid) - before)


def _drain(parts: Iterator[bytes], see: Callable[[bytes], None]) -> int:
    size = 0
    for part in parts:
        see(part)
        size += len(part)
    return size


def _highest(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _by_rapi(url: str) -> Iterator[bytes]:
    answer = urllib3.request("GET", url, preload_content=False, timeout=_TIMEOUT_S)
    assert answer.status == 200
    assert answer.headers["Fleetlight-Complete"] == "true"
    while part := answer.read1(_CHUNK):
        yield part
    answer.release_conn()


def _by_luxi(path: Path, method: str, *arguments: object) -> Iterator[bytes]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(msgspec.json.encode({"method": method, "args": arguments}) + _END)
        part = b""
        while not part.endswith(_END):
            part = connection.recv(_CHUNK)
            assert part, "the answer has no end"
            yield part
