"""Agents with simulated hosts as children of `fleetlight up`: folders, certificates, hosts and processes.

They belong to the first cell. Agents that a folder has are always run, since instances may be on their hosts.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import structlog

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.agents.drivers.simulated import HostSize
from fleetlight.manager.commands.embedded import EmbeddedCell
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.opcodes.refresh import postpone_refresh
from fleetlight.manager.operations.simulation.simulated_instances import node_of, zone_of
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER_DEFAULTS
from fleetlight.resources.units import MIB_PER_GIB

_log = structlog.get_logger(__name__)

_LOOPBACK = "127.0.0.1"
# Agents have started within this time, even on a busy machine.
_START_S = 30.0
_LOOK_INTERVAL_S = 0.5
_RESTART_WAIT_S = 1.0
_END_TIMEOUT_S = 15.0
_SIZE = HostSize(vcpus=64, memory_mib=256 * MIB_PER_GIB, disk_mib=4000 * MIB_PER_GIB)
_NAME = "{cell}-agent-{number:02d}"


@dataclass(slots=True)
class _Child:
    """The agent of a host. process: None until it is started."""

    host: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None


class SimulatedAgents:
    """wanted: the least number of agents; existing ones stay, and none runs for a cell that is down.

    Creates missing hosts and certificates. Raises CommandError, CellUnreachableError, FleetUnreachableError.
    """

    def __init__(self, folder: DataFolder, fleet: Fleet, cell: EmbeddedCell, wanted: int) -> None:
        self._certificates = folder.certificates / cell.cell.name
        self._addresses = AgentAddresses(cell.engine, cell.cell)
        known = sum(1 for _ in folder.agents.glob("*")) if folder.agents.exists() else 0
        last = 0 if cell.is_down else max(known, wanted)
        names = [_NAME.format(cell=cell.cell.name, number=number) for number in range(1, last + 1)]
        self._children = [_Child(name, folder.agents / name) for name in names]
        if not names:
            return
        from fleetlight.manager.commands.certificate_files import write_certificates  # noqa: PLC0415 -- has cryptography, which takes long

        # Before the first call to the agents, since the stored addresses are those of the last run.
        postpone_refresh(cell.engine, cell.cell, _START_S)
        for child in self._children:
            child.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_certificates(folder.certificates, cell.cell.name, map(node_of, names), ["worker"], tell=_log.debug)
        capacity = Amount(_SIZE.vcpus, _SIZE.memory_mib, _SIZE.disk_mib)
        nodes = CellNodes(cell.engine, cell.cell)
        nodes.add_hosts([NewHost(name, capacity, zone_of(cell.cell.name, name), node_of(name)) for name in names])
        fleet.known_hosts.remember({cell.cell.uuid: [service.host for service in nodes.services()]})

    @property
    def hosts(self) -> Sequence[str]:
        return [child.host for child in self._children]

    def run(self, stop: Event) -> None:
        """Keep the agents running until `stop` is set; returns when all have ended."""
        try:
            while not stop.is_set():
                for child in self._children:
                    self._see_to(child, stop)
                stop.wait(_LOOK_INTERVAL_S)
        finally:
            self._end()

    def _see_to(self, child: _Child, stop: Event) -> None:
        """Start an agent that is not running."""
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                return
            _log.warning("up.agent_ended", host=child.host, exit_code=code)
            # The agent of a fleet that was killed may not have ended yet.
            stop.wait(_RESTART_WAIT_S)
        port = _free_port()
        # A process group of its own, since Ctrl-C is for this process, which ends the agent after its calls.
        child.process = subprocess.Popen(  # noqa: S603
            self._command(child, port), stdin=subprocess.PIPE, process_group=0
        )
        self._addresses.set(child.host, f"{_LOOPBACK}:{port}")
        _log.info("up.agent_started", host=child.host, address=f"{_LOOPBACK}:{port}", process=child.process.pid)

    def _command(self, child: _Child, port: int) -> list[str]:
        node = node_of(child.host)
        files = {"certificate": f"agent-{node}.pem", "key": f"agent-{node}.key", "trusted": "authority.pem"}
        sizes = {"vcpus": f"{_SIZE.vcpus}", "memory": f"{_SIZE.memory_mib}M", "disk": f"{_SIZE.disk_mib}M"}
        command = [sys.executable, "-m", "fleetlight.cli", "node-agent", node, "--until-stdin-ends"]
        command += ["--folder", str(child.folder), "--host", _LOOPBACK, "--port", str(port)]
        for name, file in files.items():
            command += [f"--{name}", str(self._certificates / file)]
        for name, size in sizes.items():
            command += [f"--{name}", size]
        for hypervisor in CLUSTER_DEFAULTS["enabled_hypervisors"]:
            command += ["--hypervisor", hypervisor]
        return command

    def _end(self) -> None:
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _free_port() -> int:
    """A port that is free now. If another process takes it, the agent ends, and is started at another port."""
    with closing(socket.create_server((_LOOPBACK, 0))) as listener:
        return int(listener.getsockname()[1])
