"""PostgreSQL 15 or newer from the Debian package `postgresql`."""

import shutil
import signal
import subprocess
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.base import ADMINISTRATORS_PASSWORD
from scripts.servers.certificates import CERTIFICATE_FILE, KEY_FILE, make_certificates
from scripts.servers.errors import NotInstalledError

_ACCESS_FILE = "pg_hba.conf"


class PostgreSQL:
    NAME: ClassVar[str] = "postgresql"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_POSTGRESQL_URL"
    CONTAINER_PORT: ClassVar[int | None] = 5432
    READY_WITHIN_S: ClassVar[float] = 60
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGINT  # "fast shutdown": sessions are cut, data is written
    # The data is thrown away with the server; tests kill our processes, never this one.
    _SETTINGS: ClassVar[dict[str, str]] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

    def url(self, port: int) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"

    def is_ready(self, port: int) -> bool:
        command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(command, check=False).returncode == 0

    def set_up(self, folder: Path, port: int) -> None:
        data = folder / "data"
        # The default collation is a linguistic one, as on most real installations: a query that
        # forgets COLLATE "C" sorts wrongly here instead of only in production.
        collation = ["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US", "--encoding=UTF8"]
        process.run(
            self.NAME,
            [_program("initdb"), "-D", str(data), "-U", "postgres", "--no-sync", *collation, *self._security(folder)],
            {},
            folder,
            timeout_s=60,
        )

    def launch(self, folder: Path, port: int) -> process.Process:
        settings = {
            "port": str(port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "300",
            **self._SETTINGS,
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        command = [_program("postgres"), "-D", str(folder / "data"), *options]
        return process.spawn(self.NAME, command, {}, folder)

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the server's session."""

    def _security(self, folder: Path) -> list[str]:
        """Options of initdb."""
        return ["--auth=trust"]


class DurablePostgreSQL(PostgreSQL):
    """One that tests kill: what it has committed is still there afterwards."""

    # Not even now it waits for the disk, which only a power cut would need.
    _SETTINGS: ClassVar[dict[str, str]] = {"fsync": "off", "synchronous_commit": "on"}


class SecuredPostgreSQL(PostgreSQL):
    """Speaks TLS alone, and asks for a password."""

    NAME: ClassVar[str] = "postgresql-secured"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_SECURED_POSTGRESQL_URL"
    CONTAINER_PORT: ClassVar[int | None] = None
    _SETTINGS: ClassVar[dict[str, str]] = {
        **PostgreSQL._SETTINGS,
        "ssl": "on",
        "ssl_cert_file": f"../{CERTIFICATE_FILE}",
        "ssl_key_file": f"../{KEY_FILE}",
        "hba_file": _ACCESS_FILE,
    }

    def url(self, port: int) -> str:
        return f"postgresql+psycopg://postgres:{ADMINISTRATORS_PASSWORD}@127.0.0.1:{port}/postgres"

    def _security(self, folder: Path) -> list[str]:
        make_certificates(self.NAME, folder)
        password = folder / "password"
        password.write_text(ADMINISTRATORS_PASSWORD)
        (folder / _ACCESS_FILE).write_text("hostssl all all 127.0.0.1/32 scram-sha-256\n")
        process.hand_over(folder)
        return ["--auth=scram-sha-256", f"--pwfile={password}"]


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
