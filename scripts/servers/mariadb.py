"""MariaDB from the Debian package `mariadb-server`."""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.errors import NotInstalledError

_OPTIONS_FILE = "server.cnf"


class MariaDB:
    NAME: ClassVar[str] = "mariadb"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_MARIADB_URL"
    # Nothing that docker-compose.yml starts needs it.
    CONTAINER_PORT: ClassVar[int | None] = None
    READY_WITHIN_S: ClassVar[float] = 60
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    # The data is thrown away with the server.
    _SETTINGS: ClassVar[tuple[str, ...]] = (
        "innodb_flush_log_at_trx_commit=0",
        "innodb_doublewrite=0",
        "innodb_buffer_pool_size=64M",
        "performance_schema=OFF",
        "max_connections=300",
    )

    def url(self, port: int) -> str:
        return f"mysql+pymysql://root@127.0.0.1:{port}/mysql"

    def is_ready(self, port: int) -> bool:
        command = [_program("mariadb-admin"), "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "ping"]
        return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode == 0

    def set_up(self, folder: Path, port: int) -> None:
        settings = [
            f"datadir={folder / 'data'}",
            f"socket={folder / 'socket'}",
            f"pid-file={folder / 'pid'}",
            f"port={port}",
            "bind-address=127.0.0.1",
            *self._SETTINGS,
        ]
        (folder / _OPTIONS_FILE).write_text("\n".join(["[mariadbd]", *settings, ""]))
        process.hand_over(folder)
        command = [
            _program("mariadb-install-db"),
            f"--defaults-file={folder / _OPTIONS_FILE}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--datadir={folder / 'data'}",
        ]
        process.run(self.NAME, command, {}, folder, timeout_s=60)

    def launch(self, folder: Path, port: int) -> process.Process:
        return process.spawn(self.NAME, self._command(folder), {}, folder)

    def _command(self, folder: Path) -> list[str]:
        return [_program("mariadbd"), f"--defaults-file={folder / _OPTIONS_FILE}"]

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the server's session."""


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotInstalledError(MariaDB.NAME, f"the program {name}", "On Debian: apt-get install mariadb-server")
    return found
