"""The real Ganeti cluster that `scripts/services` starts.

Most tests only read it, and compare what two questions say, so nobody may change it between them. A test that changes
something makes what it changes, and removes it.
"""

import fcntl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from fleetlight.cells.upstream.address import UpstreamAddress
from tests.support.session.requirements import GANETI

USER, PASSWORD = "reader", "secret"
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class RealCluster:
    """url: of its remote API. folder: has its certificate, and the roots of its nodes."""

    url: str
    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "rapi.pem"

    @property
    def root(self) -> Path:
        """The files of the master, as this process sees them."""
        pid = (self.folder / "node1.pid").read_text().strip()
        return Path(f"/proc/{pid}/root{self.folder}/tree/root1")

    @property
    def luxi_socket(self) -> Path:
        return self.root / "run/ganeti/socket/ganeti-query"

    def address(self, folder: Path) -> str:
        """That of a cell; the password is written into `folder`."""
        password = folder / "ganeti-password"
        password.write_text(f"{PASSWORD}\n")
        return UpstreamAddress(self.url, username=USER, password_file=password, ca_certs=self.certificate).write()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Keep tests away, also those of other processes, that change the cluster."""
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep all others away that keep to it."""
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with (self.folder / "tests.lock").open("w") as lock:
            fcntl.flock(lock, how)
            yield

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """What a command of Ganeti's prints on the master, and how it ends."""
        pid = (self.folder / "node1.pid").read_text().strip()
        inside = ["nsenter", "-t", pid, "-m", "-n", "-u", "-p", "--", "chroot", f"{self.folder}/tree/root1"]
        clean = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TZ=UTC"]
        return subprocess.run(
            [*inside, *clean, *command], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )


@pytest.fixture(scope="session")
def ganeti_cluster() -> RealCluster:
    """A test that asks for it needs a cluster."""
    located = GANETI.locate()
    assert located is not None, "this test needs a Ganeti cluster"
    url, folder = urldefrag(located)
    return RealCluster(url, Path(folder))
