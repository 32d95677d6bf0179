"""Signals to stop, and a main thread that cannot answer them itself."""

import hashlib
import os
import signal
import time
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cli.processes.processes import run_until_signal
from fleetlight.cli.processes.signals import STOPPING, signals_answered
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.stream.probes import IndexerProbes


@pytest.mark.parametrize("number", STOPPING)
def test_signal_is_answered_while_the_main_thread_executes_no_instruction_of_python(number: signal.Signals) -> None:
    """As between its last instruction and its wait for a lock: a handler in Python would have waited with it."""
    answered_at: Queue[float] = Queue()
    with signals_answered(lambda _: answered_at.put(time.monotonic()), [number]):
        Thread(target=os.kill, args=(os.getpid(), number)).start()
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2_000_000)
        busy_until = time.monotonic()
        assert answered_at.get(timeout=10) < busy_until


def test_each_signal_is_answered_and_none_after_the_end() -> None:
    came: Queue[signal.Signals] = Queue()
    before = [signal.getsignal(number) for number in STOPPING]
    with signals_answered(came.put):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            assert came.get(timeout=10) == number
    assert [signal.getsignal(number) for number in STOPPING] == before
    with pytest.raises(Empty):
        came.get_nowait()


def stopped_by_signal(stop: Event) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_process_stops_though_nobody_reads_its_log_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def info(event: str, **_: object) -> None:
        if event == "stopping":
            raise BrokenPipeError

    monkeypatch.setattr("fleetlight.cli.processes.processes._log", SimpleNamespace(info=info))
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", url := f"sqlite:///{tmp_path}/fleet.db")
    upgrade_fleet(create_database_engine(url))
    run_until_signal(
        "part", load_settings(None, None), CollectorRegistry(), IndexerProbes(), lambda _: stopped_by_signal
    )
