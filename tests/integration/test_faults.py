"""The index equals the cells after every fault, and the copy of a consumer of the feed too, which has had each change
once: a short run of those of `scripts/bench faults` that anybody can cause.

Eight cells under a load of operations, real servers. What is cut off is cut by a proxy, since the servers are shared;
what is killed was started for it. Nothing here depends on how fast anything is: a fault is caused when a number of
operations have gone by, and recovery may take minutes.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bench.faults.damage import Damage
from bench.faults.faults import FAULTS
from bench.faults.run import Supply, run_fault
from scripts.servers.folders import CHECKOUT
from scripts.servers.marks import MARK_VARIABLE
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.no_rerun,
    pytest.mark.elasticsearch,
    pytest.mark.rabbitmq,
    pytest.mark.postgresql,
    pytest.mark.timeout(600),
]


# What takes root to cause is left to `scripts/bench faults`.
_CAUSES = [name for name, fault in FAULTS.items() if not fault.small_disk]


@pytest.fixture
def supply(elasticsearch_url: str, amqp_url: str, postgresql_url: str) -> Iterator[Supply]:
    shared = {"elasticsearch": elasticsearch_url, "rabbitmq": amqp_url, "postgresql": postgresql_url}
    with ExitStack() as stack:
        yield Supply(stack, shared)


@pytest.mark.parametrize("name", _CAUSES)
def test_nothing_is_lost_doubled_or_resurrected_by(name: str, supply: Supply, tmp_path: Path) -> None:
    outcome = run_fault(FAULTS[name], supply, tmp_path, seed=1, rounds=1)
    assert outcome.damage == Damage()
    assert outcome.events > 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.usefixtures("supply")
def test_nothing_is_left_running_of_a_bench_that_is_ended_in_a_fault(number: signal.Signals, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != MARK_VARIABLE}
    environment["TMPDIR"] = str(tmp_path)
    command = [sys.executable, "-m", "bench", "faults", "postgresql killed"]
    bench = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    data = wait_until(lambda: _data_of_server(bench.pid))
    assert data is not None
    # With its own, it has five without anybody who is connected.
    wait_until(lambda: len(_processes_in(data)) > 10, timeout_s=120)
    bench.send_signal(number)
    try:
        said, _ = bench.communicate(timeout=120)
    finally:
        bench.kill()  # or its load goes on beside all other tests
    assert bench.returncode == (-number if number is signal.SIGKILL else 128 + number), said.decode()
    wait_until(lambda: not _processes_in(data))
    if number is signal.SIGKILL:
        shutil.rmtree(data.parent)
    else:
        assert b"nothing of this run is left running" in said
        assert not data.parent.exists()


def _data_of_server(bench: int) -> Path | None:
    """The folder in which the PostgreSQL works that a bench has started."""
    for child in map(int, Path(f"/proc/{bench}/task/{bench}/children").read_text().split()):
        with suppress(OSError):
            folder = Path(f"/proc/{child}/cwd").readlink()
            if folder.name == "data" and folder.parent.name.startswith("private-postgresql-"):
                return folder
    return None


def _processes_in(folder: Path) -> list[int]:
    """Those of a PostgreSQL work in the folder of its data."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "cwd").readlink() == folder:
                found.append(int(process.name))
    return found
