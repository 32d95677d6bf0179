"""Certificates and agents for tests that call over TLS."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleetlight.manager.agents.certificates import Role
from fleetlight.manager.operations.nodes.client import AgentClient
from tests.support.played.agents import Certificates, ServedAgent, serving

NewAgent = Callable[..., ServedAgent]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def new_agent(certificates: Certificates, tmp_path: Path) -> Iterator[NewAgent]:
    """Starts an agent of a name, which ends with the test."""
    with ExitStack() as agents:

        def start(name: str = "node1", *, role: Role = Role.AGENT) -> ServedAgent:
            return agents.enter_context(serving(name, tmp_path / name, certificates.files(role, name)))

        yield start


@pytest.fixture
def client(certificates: Certificates) -> Iterator[AgentClient]:
    client = AgentClient(certificates.files(Role.WORKER, "worker1"))
    yield client
    client.close()
