"""A Galera cluster of MariaDB on one machine, as kolla-ansible sets it up: each node keeps a log of its own."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from scripts.servers import process
from scripts.servers.private import PrivateServer, private_server
from tests.support.servers.logged_nova import LoggingMariaDB

_LIBRARY = "/usr/lib/galera/libgalera_smm.so"


class _Node(LoggingMariaDB):
    READY_WITHIN_S: ClassVar[float] = 120

    def __init__(self, number: int, addresses: Sequence[int]) -> None:
        self._number = number
        listens, receives, copies = addresses[number], process.free_port(), process.free_port()
        members = ",".join(f"127.0.0.1:{port}" for port in addresses)
        self._cluster = (
            f"server-id={number + 1}",
            "innodb_autoinc_lock_mode=2",
            "wsrep_on=ON",
            f"wsrep_provider={_LIBRARY}",
            "wsrep_cluster_name=nova",
            f"wsrep_cluster_address=gcomm://{members}",
            f"wsrep_node_name=node{number}",
            "wsrep_node_address=127.0.0.1",
            f"wsrep_provider_options=gmcast.listen_addr=tcp://127.0.0.1:{listens};ist.recv_addr=127.0.0.1:{receives};"
            "gcache.size=16M",
            "wsrep_sst_method=rsync",
            f"wsrep_sst_receive_address=127.0.0.1:{copies}",
        )
        self._is_first = number == 0

    def set_up(self, folder: Path, port: int) -> None:
        super().set_up(folder, port)
        # Its tables are made before it knows of the others.
        with (folder / "server.cnf").open("a") as options:
            options.write("\n".join((*self._cluster, "")))

    def is_ready(self, port: int) -> bool:
        asked = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(port), "-u", "root", "-BNe"]
        state = "SHOW STATUS LIKE 'wsrep_local_state_comment'"
        said = subprocess.run([*asked, state], check=False, capture_output=True, text=True, timeout=10)
        return "Synced" in said.stdout

    def launch(self, folder: Path, port: int) -> process.Process:
        """The first start of the first node makes the cluster; whoever starts later joins it."""
        if not self._is_first:
            return super().launch(folder, port)
        self._is_first = False
        command = [*self._command(folder), "--wsrep-new-cluster"]
        return process.spawn(self.NAME, command, {}, folder)


@contextmanager
def galera_cluster(nodes: int = 3) -> Iterator[Sequence[PrivateServer]]:
    """Its nodes, all of which have joined; of three one may be killed, and the other two go on."""
    addresses = [process.free_port() for _ in range(nodes)]
    with ExitStack() as stack:
        yield [stack.enter_context(private_server(_Node(number, addresses))) for number in range(nodes)]
