"""PostgreSQL 15 or newer from the Debian package `postgresql`."""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.errors import NotInstalledError


class PostgreSQL:
    NAME: ClassVar[str] = "postgresql"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_POSTGRESQL_URL"
    CONTAINER_PORT: ClassVar[int] = 5432
    READY_WITHIN_S: ClassVar[float] = 60
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGINT  # "fast shutdown": sessions are cut, data is written

    def url(self, port: int) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"

    def is_ready(self, port: int) -> bool:
        command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(command, check=False).returncode == 0

    def launch(self, folder: Path, port: int) -> process.Process:
        data = folder / "data"
        # The default collation is a linguistic one, as on most real installations: a query that
        # forgets COLLATE "C" sorts wrongly here instead of only in production.
        collation = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US", "--encoding=UTF8"]
        process.run(
            self.NAME,
            [_program("initdb"), "-D", str(data), "-U", "postgres", "--auth=trust", "--no-sync", *collation],
            {},
            folder,
            timeout_s=60,
        )
        settings = {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "300",
            # The data is thrown away with the server; tests kill our processes, never this one.
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return process.spawn(self.NAME, [_program("postgres"), "-D", str(data), *options], {}, folder)

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the server's session."""


def _program(name: str) -> str:
    """Path of one of PostgreSQL's programs; Debian keeps those of a server in a folder per version, not on the PATH."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    for folder in sorted(versions, key=lambda path: int(path.parent.name), reverse=True):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(PostgreSQL.NAME, f"the program {name}", "On Debian: apt-get install postgresql")
    return found
