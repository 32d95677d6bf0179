"""Agents called over real TLS: who may, what fails how, and that connections are used again."""

import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from structlog.testing import capture_logs

from fleetlight.manager.agents.certificates import Role
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.client import AgentClient
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from tests.integration.nodes.conftest import NewAgent
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.agents import Certificates, ServedAgent, serving
from tests.support.waiting import wait_until

WEB = {"instance": "web", "hypervisor": "fake", "memory": 1024, "vcpus": 1}
BOOT_ID = {"request": {"bootid": True}}


def node(agent: ServedAgent) -> AgentNode:
    return AgentNode(agent.name, agent.address)


def snapshot(client: AgentClient, agent: ServedAgent, *, timeout_s: float = 20) -> NodeResult:
    return client.call(node(agent), "node_snapshot", BOOT_ID, timeout_s=timeout_s)


def test_answer_is_the_payload(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    result = snapshot(client, agent)
    assert result.fail_msg is None
    assert result.payload == {"bootid": agent.driver.boot_id()}
    assert result.data == [True, result.payload]


def test_connections_are_used_again(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    for _ in range(5):
        assert not snapshot(client, agent).has_failed
    assert client.opened_connections == 1


def test_agent_that_started_again_is_called_on_a_new_connection(
    client: AgentClient, certificates: Certificates, tmp_path: Path
) -> None:
    files = certificates.files(Role.AGENT, "node1")
    with serving("node1", tmp_path, files) as agent:
        before = snapshot(client, agent)
    with serving("node1", tmp_path, files, port=agent.port):
        assert snapshot(client, agent).payload == before.payload


@pytest.mark.parametrize("role", [Role.AGENT, None], ids=["another agent", "a worker of another cell"])
def test_only_workers_of_the_cell_may_call(
    certificates: Certificates, new_agent: NewAgent, tmp_path: Path, role: Role | None
) -> None:
    agent = new_agent()
    stranger = Certificates(tmp_path / "other").files(Role.WORKER, "worker1")
    files = certificates.files(role, "node2") if role else stranger
    caller = AgentClient(type(files)(files.certificate, files.key, certificates.paths(Role.AGENT, "node1").trusted))
    result = caller.call(node(agent), "instance_start", WEB, timeout_s=20, key="a")
    caller.close()
    assert result.has_failed
    assert not agent.driver.hypervisor("fake").guests


def test_nobody_calls_without_a_certificate(certificates: Certificates, new_agent: NewAgent) -> None:
    agent = new_agent()
    context = ssl.create_default_context(cafile=certificates.paths(Role.AGENT, "node1").trusted)
    with (
        socket.create_connection(("127.0.0.1", agent.port)) as plain,
        context.wrap_socket(plain, server_hostname="node1") as secured,
    ):
        secured.sendall(b"GET /v1 HTTP/1.1\r\nHost: node1\r\n\r\n")
        # With TLS 1.3 who connects learns only now that it was refused, if it is told.
        try:
            answer = secured.recv(1)
        except (ssl.SSLError, ConnectionError):
            answer = b""
    assert answer == b""


@pytest.mark.parametrize(
    ("name", "role", "reason"),
    [
        ("node2", Role.AGENT, "Hostname mismatch, certificate is not valid for 'node1'."),
        ("node1", Role.WORKER, "unsuitable certificate purpose"),
    ],
)
def test_who_is_not_the_agent_of_that_node_is_told_nothing(
    client: AgentClient, new_agent: NewAgent, name: str, role: Role, reason: str
) -> None:
    impostor = new_agent(name, role=role)
    result = client.call(AgentNode("node1", impostor.address), "version", {}, timeout_s=20)
    assert result.fail_msg is not None
    assert reason.lower() in result.fail_msg.lower()


def test_certificates_are_renewed_without_a_pause(
    client: AgentClient, certificates: Certificates, new_agent: NewAgent
) -> None:
    """On the connection that is open, and on every new one, calls go on; new ones see the new certificate."""
    agent = new_agent()
    snapshot(client, agent)
    before = shown_certificate(certificates, agent)
    certificates.files(Role.AGENT, "node1")
    certificates.files(Role.WORKER, "worker1")
    wait_until(lambda: shown_certificate(certificates, agent) != before)
    assert not snapshot(client, agent).has_failed
    assert client.opened_connections == 1


def test_half_of_a_new_pair_is_not_used(certificates: Certificates, new_agent: NewAgent) -> None:
    agent = new_agent()
    paths = certificates.paths(Role.AGENT, "node1")
    old = paths.certificate.read_bytes()
    before = shown_certificate(certificates, agent)
    certificates.files(Role.AGENT, "node1")
    paths.certificate.write_bytes(old)
    with pytest.raises(Exception, match="are not a certificate and its key"):
        agent.tls.renew()
    assert shown_certificate(certificates, agent) == before


def test_files_that_cannot_be_used_are_told_about_once(
    certificates: Certificates, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.manager.agents.server._LOOK_INTERVAL_S", 0.01)
    monkeypatch.setattr("fleetlight.manager.operations.nodes.client._LOOK_INTERVAL_S", 0.0)
    with capture_logs() as logs:
        agent = new_agent()
        client = AgentClient(certificates.files(Role.WORKER, "worker1"))
        for files in (agent.tls, client._tls):
            files._files.key.write_text("nothing")
        for _ in range(20):
            assert not snapshot(client, agent).has_failed
        wait_until(lambda: sum("unusable" in each["event"] for each in logs) >= 2)
    client.close()
    said = [each["event"] for each in logs if "unusable" in each["event"]]
    assert sorted(said) == ["agent.certificate_unusable", "nodes.certificate_unusable"]


def shown_certificate(certificates: Certificates, agent: ServedAgent) -> bytes | None:
    """What an agent shows on a new connection."""
    files = certificates.paths(Role.WORKER, "worker1")
    context = ssl.create_default_context(cafile=files.trusted)
    context.load_cert_chain(files.certificate, files.key)
    with (
        socket.create_connection(("127.0.0.1", agent.port)) as plain,
        context.wrap_socket(plain, server_hostname=agent.name) as secured,
    ):
        return secured.getpeercert(binary_form=True)


def test_a_call_ends_at_its_time_limit(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    agent.behave('{"node_snapshot": {"delay_s": 1}}')
    begun = time.monotonic()
    result = snapshot(client, agent, timeout_s=0.3)
    assert (result.fail_msg, result.is_timeout) == ("no answer within 0.3 s", True)
    assert time.monotonic() - begun < 2


def test_what_fails_on_the_host_is_said(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    agent.behave('{"*": {"failure": "the hypervisor is away"}}')
    result = snapshot(client, agent)
    assert (result.fail_msg, result.payload, result.is_timeout) == ("the hypervisor is away", None, False)


def test_what_is_no_call_is_said(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    result = client.call(node(agent), "instance_start", {}, timeout_s=20, key="a")
    assert result.fail_msg is not None
    assert "instance: Field required" in result.fail_msg


@pytest.mark.parametrize(
    "begin",
    [
        b"POST /v1/calls/version HTTP/1.1\r\nHost: node1\r\n",
        b"POST /v1/calls/version HTTP/1.1\r\nHost: node1\r\nContent-Length: 9\r\n\r\n{",
    ],
    ids=["half a head", "half a body"],
)
def test_who_sends_no_whole_call_is_cut_off(
    certificates: Certificates, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr("fleetlight.manager.agents.server._REQUEST_TIMEOUT_S", 0.3)
    agent = new_agent()
    files = certificates.files(Role.WORKER, "worker1")
    context = ssl.create_default_context(cafile=files.trusted)
    context.load_cert_chain(files.certificate, files.key)
    with (
        socket.create_connection(("127.0.0.1", agent.port)) as plain,
        context.wrap_socket(plain, server_hostname="node1") as secured,
    ):
        secured.settimeout(20)
        # The first call is answered; the time begins anew with the second one.
        secured.sendall(b"GET /v1 HTTP/1.1\r\nHost: node1\r\n\r\n")
        assert b"200 OK" in secured.recv(4096)
        secured.sendall(begin)
        try:
            while rest := secured.recv(4096):
                pass
        except (ssl.SSLError, ConnectionError):
            rest = b""
    assert rest == b""


def test_call_that_is_too_large_is_refused(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    result = client.call(node(agent), "version", {"text": "x" * (1024 * 1024)}, timeout_s=20)
    assert result.fail_msg == "a call has at most 1048576 bytes"


def test_call_that_is_under_way_is_said(client: AgentClient, new_agent: NewAgent) -> None:
    agent = new_agent()
    agent.behave('{"instance_start": {"delay_s": 1}}')
    first = client.call(node(agent), "instance_start", WEB, timeout_s=0.2, key="a")
    second = client.call(node(agent), "instance_start", WEB, timeout_s=20, key="a")
    assert (first.is_timeout, first.is_under_way) == (True, False)
    assert (second.is_timeout, second.is_under_way, second.fail_msg) == (True, True, "the call is under way")
    wait_until(lambda: not client.call(node(agent), "instance_start", WEB, timeout_s=20, key="a").has_failed)
    assert agent.driver.hypervisor("fake").guests.keys() == {"web"}


def test_calls_that_take_long_do_not_keep_others_from_asking(
    client: AgentClient, new_agent: NewAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.manager.agents.server._MOST_CHANGES", 2)
    agent = new_agent()
    agent.behave('{"instance_shutdown": {"delay_s": 1}}')
    for name in ("web", "mail"):
        shut_down = client.call(node(agent), "instance_shutdown", {"instance": name}, timeout_s=0.2, key=name)
        assert shut_down.is_timeout
    third = client.call(node(agent), "instance_start", WEB, timeout_s=20, key="b")
    assert (third.is_under_way, snapshot(client, agent).fail_msg) == (True, None)
    wait_until(lambda: not client.call(node(agent), "instance_start", WEB, timeout_s=20, key="b").has_failed)


def test_node_that_is_not_there_is_a_failure(client: AgentClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    result = client.call(AgentNode("node1", f"127.0.0.1:{port}"), "version", {}, timeout_s=20)
    assert result.fail_msg == f"cannot connect to 127.0.0.1:{port}: Connection refused"
    assert not result.is_timeout


def test_host_that_is_off_is_as_one_that_refuses(certificates: Certificates) -> None:
    """Its job waits as long as for an agent that cannot be reached, and not as long as its call may take."""
    client = AgentClient(certificates.files(Role.WORKER, "worker1"), connect_timeout_s=0.2)
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        # Whom there is no room for gets no answer.
        for _ in range(3):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(address)
        result = client.call(AgentNode("node1", f"127.0.0.1:{address[1]}"), "version", {}, timeout_s=20)
    assert (result.fail_msg, result.is_timeout) == (f"cannot connect to 127.0.0.1:{address[1]}: no answer", False)


@pytest.mark.parametrize(
    "body",
    [
        b"[true]",
        b"{}",
        b"true",
        b"nothing",
        b"[true, 1, 2]",
        b"[false, 3]",
        b"[" * 100_000,
        b"[true, NaN]",
        b'[true, "\\ud800"]',
        b"\xff",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_malformed_answer_is_a_failure(client: AgentClient, certificates: Certificates, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with answering(certificates, lambda: [head + body]) as port:
        result = client.call(AgentNode("node1", f"127.0.0.1:{port}"), "version", {}, timeout_s=20)
    assert result.fail_msg is not None
    assert result.fail_msg.startswith("RPC layer error: ")


ONE_BODY = [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"]
TRICKLES = {
    "body": [*ONE_BODY, *[b" "] * 999],
    "head": [b"HTTP/1.1 200 OK\r\nName: ", *[b"x"] * 999],
    "heads before the answer": [b"HTTP/1.1 100 Continue\r\n\r\n"] * 999,
}


@pytest.mark.parametrize("parts", TRICKLES.values(), ids=TRICKLES)
def test_answer_that_trickles_ends_at_the_time_limit(
    client: AgentClient, certificates: Certificates, parts: list[bytes]
) -> None:
    with answering(certificates, lambda: parts, pause_s=0.05) as port:
        begun = time.monotonic()
        result = client.call(AgentNode("node1", f"127.0.0.1:{port}"), "version", {}, timeout_s=0.5)
    assert result.fail_msg == "no answer within 0.5 s"
    assert result.is_timeout
    assert time.monotonic() - begun < 5


def test_what_a_node_says_of_its_failure_is_one_short_line(client: AgentClient, certificates: Certificates) -> None:
    body = b'[false, "a\\u0000b\\u001b[2Jc\\n' + b"d" * 100_000 + b'"]'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    with answering(certificates, lambda: [head + body]) as port:
        result = client.call(AgentNode("node1", f"127.0.0.1:{port}"), "version", {}, timeout_s=20)
    assert result.fail_msg is not None
    assert result.fail_msg.startswith("a b [2Jc dddd")
    assert len(result.fail_msg) < 2000


class answering:  # noqa: N801  # reads as a function
    """A server with the certificate of node1 that answers one request with the parts of `answer`."""

    def __init__(self, certificates: Certificates, answer: Callable[[], list[bytes]], *, pause_s: float = 0.0) -> None:
        files = certificates.files(Role.AGENT, "node1")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._answer, self._pause_s = answer, pause_s
        self._thread = Thread(target=self._serve)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._listener.getsockname()[1])

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        self._listener.close()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        with plain, self._context.wrap_socket(plain, server_side=True) as connection:
            asked = b""
            while b"arguments" not in asked:
                asked += connection.recv(65_536)
            try:
                for part in self._answer():
                    connection.sendall(part)
                    select.select([connection], [], [], self._pause_s)  # or until the caller has hung up
            except OSError:
                pass  # the caller has given up


def test_slow_node_costs_its_own_result_only(client: AgentClient, new_agent: NewAgent) -> None:
    """All are called at once, each with its own time limit."""
    agents = [new_agent(f"node{number}") for number in range(3)]
    agents[1].behave('{"node_snapshot": {"delay_s": 2.5}}')
    rpc = NodeRpc(client, NodeStateCache(MemoryStore(600)))
    begun = time.monotonic()
    results = rpc.node_snapshot([node(agent) for agent in agents], {"bootid": True}, timeout_s=2)
    assert time.monotonic() - begun < 6
    assert [result.fail_msg for result in results.values()] == [None, "no answer within 2 s", None]
    rpc.close()
