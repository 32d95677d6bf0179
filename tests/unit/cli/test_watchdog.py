"""Signs of life for systemd come while the process says that it lives, and only then."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlight.cli.watchdog import watched
from fleetlight.indexer.stream.liveness import Probe
from tests.support.waiting import wait_until


class Changing:
    """Probes of a process that lives until told otherwise."""

    lives = True

    def healthz(self) -> Probe:
        return Probe(self.lives, {})

    def readyz(self) -> Probe:
        raise AssertionError("whether it is ready is no question of life")


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def asking(systemd: socket.socket, **changes: str) -> dict[str, str]:
    return {
        "NOTIFY_SOCKET": systemd.getsockname(),
        "WATCHDOG_USEC": "30000",
        "WATCHDOG_PID": str(os.getpid()),
        **changes,
    }


def signs(systemd: socket.socket) -> int:
    """How many have come since the last look."""
    count = 0
    while True:
        try:
            assert systemd.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            return count
        count += 1


def test_signs_come_several_times_in_the_time_that_is_allowed(systemd: socket.socket) -> None:
    with watched(Changing(), asking(systemd)):
        wait_until(lambda: signs(systemd) > 0)
        wait_until(lambda: signs(systemd) > 0)
    signs(systemd)


def test_process_that_is_stuck_gives_none(systemd: socket.socket) -> None:
    probes = Changing()
    with watched(probes, asking(systemd)):
        wait_until(lambda: signs(systemd) > 0)
        probes.lives = False
        wait_until(lambda: signs(systemd) == 0)
        probes.lives = True
        wait_until(lambda: signs(systemd) > 0)


@pytest.mark.parametrize("changes", [{"NOTIFY_SOCKET": ""}, {"WATCHDOG_USEC": ""}, {"WATCHDOG_PID": "1"}])
def test_nothing_is_told_where_nothing_is_asked(systemd: socket.socket, changes: dict[str, str]) -> None:
    with watched(Changing(), asking(systemd, **changes)):
        pass
    assert signs(systemd) == 0


def test_child_of_the_process_that_is_asked_gives_them_too(systemd: socket.socket) -> None:
    with watched(Changing(), asking(systemd, WATCHDOG_PID=str(os.getppid()))):
        wait_until(lambda: signs(systemd) > 0)
