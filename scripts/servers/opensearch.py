"""OpenSearch 3, put together from its parts on Maven Central.

No registry has the distribution. The security plugin is not among the parts, so tests cannot use it. The parts are kept
in the cache, with the main class that starts them.
"""

import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.elasticsearch import BRIEF, Elasticsearch
from scripts.servers.errors import ServerError
from scripts.servers.folders import cache_folder
from scripts.servers.java import OLDEST_JAVA, java_home
from scripts.servers.maven import run_maven

_VERSION = "3.9.0"
_PLUGINS = ("transport-netty4-client", "reindex-client", "lang-painless", "analysis-common")
_PARTS = (
    f"org.opensearch:opensearch:{_VERSION}",
    *(f"org.opensearch.plugin:{name}:{_VERSION}" for name in _PLUGINS),
    # Of the version of the log4j-api that comes with them.
    "org.apache.logging.log4j:log4j-core:2.25.5",
)
_SOURCE = Path(__file__).parent / "opensearch_node" / "OpenSearchNode.java"
_COMPILE_TIMEOUT_S = 120


class OpenSearch(Elasticsearch):
    """It is asked whether it is ready as Elasticsearch is."""

    NAME: ClassVar[str] = "opensearch"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_OPENSEARCH_URL"
    _HEAP: ClassVar[str] = "512m"

    def set_up(self, folder: Path, port: int) -> None:
        _parts(self.NAME)
        process.hand_over(folder)

    def launch(self, folder: Path, port: int) -> process.Process:
        parts = _parts(self.NAME)
        settings = {
            "path.home": folder,
            "path.data": folder / "data",
            "path.repo": folder / "snapshots",
            "network.host": "127.0.0.1",
            "http.port": port,
            "http.type": "netty4",
            "transport.type": "netty4",
            **self._discovery(),
            **self._limits(),
        }
        java = java_home(self.NAME) / "bin" / "java"
        memory = (f"-Xms{self._HEAP}", f"-Xmx{self._HEAP}", f"-Djava.io.tmpdir={folder}")
        # A boolean is spelt as in JSON.
        written = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
        command = [str(java), *memory, *BRIEF, "-cp", f"{parts}/classes:{parts}/lib/*", _SOURCE.stem]
        return process.spawn(self.NAME, [*command, *(f"{name}={value}" for name, value in written.items())], {}, folder)


def _parts(server: str) -> Path:
    """Folder of the parts and of the compiled main class, made in the cache if it is not there yet."""
    version = hashlib.sha256("".join((*_PARTS, _SOURCE.read_text())).encode()).hexdigest()[:12]
    kept = cache_folder() / f"opensearch-{_VERSION}-{version}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetch-") as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            copied = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={made / 'lib'}")
            run_maven(server, Path(temporary), *copied, dependencies=_PARTS)
            _compile(server, made)
            # The name appears only when the folder is complete, so an interrupted fetch is repeated.
            made.rename(kept)
    return kept


def _compile(server: str, folder: Path) -> None:
    compiler = java_home(server) / "bin" / "javac"
    options = ("--release", str(OLDEST_JAVA), "-cp", f"{folder}/lib/*", "-d", str(folder / "classes"))
    command = [str(compiler), *options, str(_SOURCE)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
    if result.returncode != 0:
        raise ServerError(server, f"{compiler} could not compile {_SOURCE.name}\n{result.stderr[-3000:]}")
