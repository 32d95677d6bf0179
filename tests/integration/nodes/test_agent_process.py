"""`fleetlight node-agent` as a process that is killed and starts again."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetlight.manager.agents.certificates import Role
from fleetlight.manager.operations.nodes.client import AgentClient
from fleetlight.manager.operations.nodes.model import AgentNode
from tests.support.played.agents import Certificates
from tests.support.waiting import wait_until

WEB = {"instance": "web", "hypervisor": "fake", "memory": 1024, "vcpus": 1}


class AgentProcess:
    """A process of the command. address: where it answers."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        files = certificates.paths(Role.AGENT, "node1")
        command = [str(Path(sys.executable).with_name("fleetlight")), "node-agent", "node1", "--folder", str(folder)]
        command += ["--certificate", str(files.certificate), "--key", str(files.key), "--trusted", str(files.trusted)]
        self._log = folder.parent / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", "0"], stderr=log)
        self.address = wait_until(self._address)

    def _address(self) -> str:
        found = re.search(r'"address": "([^"]+)"|address=(\S+)', self._log.read_text())
        return "" if found is None else found[1] or found[2]

    def end(self, how: signal.Signals) -> int:
        self._process.send_signal(how)
        return self._process.wait(30)


@contextmanager
def process(folder: Path, certificates: Certificates) -> Iterator[AgentProcess]:
    agent = AgentProcess(folder, certificates)
    try:
        yield agent
    finally:
        agent.end(signal.SIGKILL)


def test_agent_that_is_killed_forgets_nothing_and_repeats_nothing(
    client: AgentClient, certificates: Certificates, tmp_path: Path
) -> None:
    certificates.files(Role.AGENT, "node1")
    folder = tmp_path / "agent"
    with process(folder, certificates) as agent:
        node = AgentNode("node1", agent.address)
        assert client.call(node, "instance_start", WEB, timeout_s=30, key="1").fail_msg is None
        assert client.call(node, "instance_shutdown", {"instance": "web"}, timeout_s=30, key="2").fail_msg is None
    with process(folder, certificates) as agent:
        node = AgentNode("node1", agent.address)
        assert client.call(node, "instance_start", WEB, timeout_s=30, key="1").fail_msg is None
        listed = client.call(node, "instance_list", {"hypervisor_list": ["fake"]}, timeout_s=30)
        assert listed.payload == []
        assert agent.end(signal.SIGTERM) == 0


def test_file_that_is_not_there_is_said(certificates: Certificates, tmp_path: Path) -> None:
    files = certificates.files(Role.AGENT, "node1")
    command = [str(Path(sys.executable).with_name("fleetlight")), "node-agent", "node1", "--folder", str(tmp_path)]
    command += ["--certificate", str(files.certificate), "--key", "nothing.key", "--trusted", str(files.trusted)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 1
    assert "cannot read nothing.key: No such file or directory" in " ".join(refused.stderr.split())
