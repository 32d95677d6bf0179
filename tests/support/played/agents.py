"""Agents with simulated hosts, over real TLS on the loopback address."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import uvloop

from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.certificates import Pair, Role, issue, new_authority
from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.drivers.simulated import BEHAVIOUR_FILE, HostSize, SimulatedDriver
from fleetlight.manager.agents.journal import Journal
from fleetlight.manager.agents.server import serve_agent
from fleetlight.manager.agents.tls import RenewedContext, TlsFiles


class Certificates:
    """An authority, and files of what it has issued."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority: Pair = new_authority("cell1", datetime.now(UTC))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "authority.pem").write_bytes(self.authority.certificate)

    def files(self, role: Role, name: str, *, at: datetime | None = None) -> TlsFiles:
        """at: when it is issued; now, unless given."""
        files = self.paths(role, name)
        pair = issue(self.authority, role, name, at or datetime.now(UTC))
        files.key.write_bytes(pair.key)
        files.certificate.write_bytes(pair.certificate)
        return files

    def paths(self, role: Role, name: str) -> TlsFiles:
        base = self._folder / f"{role.name.lower()}-{name}"
        return TlsFiles(base.with_suffix(".pem"), base.with_suffix(".key"), self._folder / "authority.pem")


def simulated_agent(
    name: str, folder: Path, size: HostSize | None = None
) -> tuple[Agent, SimulatedDriver, AgentDatabase]:
    """One that is called without a network."""
    database = AgentDatabase(folder)
    driver = SimulatedDriver(database, folder, size or HostSize())
    return Agent(name, driver, Journal(database)), driver, database


@dataclass
class ServedAgent:
    """folder: of the agent. driver: what its host is like, past all calls."""

    name: str
    folder: Path
    tls: RenewedContext
    driver: SimulatedDriver
    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def behave(self, text: str) -> None:
        """Write the file that says how the host takes calls."""
        new = self.folder / "behaviour.new"
        new.write_text(text)
        new.rename(self.folder / BEHAVIOUR_FILE)


@contextmanager
def serving(
    name: str, folder: Path, files: TlsFiles, *, port: int = 0, size: HostSize | None = None
) -> Iterator[ServedAgent]:
    """An agent that answers calls at a port of the loopback address until the end."""
    agent, driver, database = simulated_agent(name, folder, size)
    tls = RenewedContext(files, is_server=True)
    ready = Event()
    with socket.create_server(("127.0.0.1", port)) as listener:
        loop = uvloop.new_event_loop()
        stop = asyncio.Event()

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve_agent(agent, listener, tls, stop, on_ready=ready.set))

        thread = Thread(target=run, daemon=True)
        thread.start()
        assert ready.wait(30)
        try:
            yield ServedAgent(name, folder, tls, driver, listener.getsockname()[1])
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)
            database.close()
