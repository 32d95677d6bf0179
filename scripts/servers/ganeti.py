"""A Ganeti cluster from the Debian package `ganeti`, in namespaces of its own (ganeti_cluster/cluster.sh)."""

import os
import shutil
import signal
import urllib.request
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.certificates import unchecked_tls
from scripts.servers.errors import NotInstalledError, ServerError
from scripts.servers.folders import state_folder

_SCRIPT = Path(__file__).parent / "ganeti_cluster" / "cluster.sh"


class Ganeti:
    """The fragment of its URL is the folder that has its certificate, `rapi.pem`, and its nodes."""

    NAME: ClassVar[str] = "ganeti"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_GANETI_URL"
    CONTAINER_PORT: ClassVar[int | None] = None
    READY_WITHIN_S: ClassVar[float] = 300
    # Its first process hands nothing on to what runs in the namespaces, and all of that ends with it.
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGKILL

    def url(self, port: int) -> str:
        return f"https://127.0.0.1:{port}#{state_folder() / self.NAME}"

    def is_ready(self, port: int) -> bool:
        try:
            with urllib.request.urlopen(
                f"https://127.0.0.1:{port}/version", timeout=10, context=unchecked_tls()
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def set_up(self, folder: Path, port: int) -> None:
        if os.geteuid() != 0:
            raise ServerError(self.NAME, "only root may run one, since its nodes have namespaces of their own")
        for program, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("apt-get", "apt")):
            if shutil.which(program) is None:
                raise NotInstalledError(self.NAME, f"the program {program}", f"On Debian: apt-get install {package}")

    def launch(self, folder: Path, port: int) -> process.Process:
        return process.spawn(self.NAME, ["bash", str(_SCRIPT), str(folder), str(port)], {}, folder, as_root=True)

    def clean_up(self, folder: Path) -> None:
        """Nothing runs outside the session of its first process."""
