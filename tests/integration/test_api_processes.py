"""`fleetlight api --processes`: several processes at one address, as one."""

import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.integration.test_up import free_port, run_fleetlight
from tests.support.commands import Command
from tests.support.loopback import get
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.night]

_PROCESSES = 2
_REQUESTS = 24


class ApiProcesses:
    """An API of a fleet of one empty cell."""

    def __init__(self, place: Path) -> None:
        folder = DataFolder(place / "data")
        folder.create()
        fleet = set_up_fleet(folder)
        for cell in set_up_cells(folder, fleet, 1):
            cell.engine.dispose()
        fleet.close()
        self.listed = 0
        self.port, self.monitoring_port = free_port(), free_port()
        self.arguments = ["api", "--data-dir", str(folder.path), "--port", str(self.port), "--auth", "none"]
        self.arguments += ["--processes", str(_PROCESSES)]
        self._log = place / "api.log"
        environment = os.environ | {"FLEETLIGHT_MONITORING_PORT": str(self.monitoring_port)}
        self.parent = Command(*self.arguments, log=self._log, environment=environment)
        wait_until(lambda: "api.ready" in self.log, 60)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def process(self, name: str) -> int:
        """The id of the newest one of this name."""
        return int(re.findall(rf'"process.started", "name": "{name}", "process": (\d+)', self.log)[-1])

    def list_some(self) -> None:
        """Each over a connection of its own."""
        for _ in range(_REQUESTS):
            answer = get(f"http://127.0.0.1:{self.port}/v2.1/servers", timeout_s=30)
            assert (answer.status_code, answer.headers["Fleetlight-Complete"]) == (200, "true")
            self.listed += 1

    def monitored(self, path: str) -> httpx.Response:
        return get(f"http://127.0.0.1:{self.monitoring_port}{path}")

    def counted(self) -> float:
        """How many lists there were, as the metrics have it."""
        text = self.monitored("/metrics").text
        return sum(map(float, re.findall(r"^fleetlight_list_duration_seconds_count\{.*\} (.*)$", text, re.MULTILINE)))

    def worked(self, name: str) -> float:
        """How long it has used a processor, in ticks."""
        user, system = Path(f"/proc/{self.process(name)}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return float(user) + float(system)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiProcesses]:
    api = ApiProcesses(tmp_path)
    yield api
    api.parent.kill()
    api.parent.wait(10)


def test_processes_serve_one_address_and_are_started_again_one_by_one(api: ApiProcesses) -> None:
    assert len(os.listdir(f"/proc/{api.parent.pid}/task")) == 1, "threads are not forked"
    before = {name: api.worked(name) for name in ("api-1", "api-2")}

    def have_all_worked() -> bool:
        api.list_some()
        return all(api.worked(name) > took for name, took in before.items())

    wait_until(have_all_worked, 30)
    assert api.counted() == api.listed

    for name in ("api-1", "api-2"):
        os.kill(api.process(name), signal.SIGKILL)
        # What waits at its socket is answered by the one that is started in its place.
        api.list_some()
        assert api.counted() == api.listed
    wait_until(lambda: api.monitored("/readyz").json()["processes"].keys() == {"monitoring", "api-1", "api-2"}, 30)
    assert api.monitored("/healthz").json() == {"status": "ok"}

    second = run_fleetlight(*api.arguments)
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{api.port}: address already in use" in second.stderr

    api.parent.terminate()
    assert api.parent.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        get(f"http://127.0.0.1:{api.port}/", timeout_s=10)
    assert "Traceback" not in api.log


def test_process_that_hangs_is_replaced(api: ApiProcesses) -> None:
    hanging = api.process("api-1")
    os.kill(hanging, signal.SIGSTOP)
    # They answer, whatever they say of it.
    assert {api.monitored(path).status_code for path in ("/healthz", "/readyz")} <= {200, 503}
    wait_until(lambda: api.process("api-1") != hanging, 30)
    api.list_some()
    os.kill(api.process("api-2"), signal.SIGSTOP)
    began = time.monotonic()
    api.parent.terminate()
    assert api.parent.wait(60) == 0
    assert time.monotonic() - began < 30
    assert "Traceback" not in api.log


@pytest.mark.parametrize("consistency", ["any", "strong"])
def test_lists_under_way_are_answered_when_the_api_is_stopped(api: ApiProcesses, consistency: str) -> None:
    request = f"GET /v2.1/servers/detail HTTP/1.1\r\nHost: 127.0.0.1\r\nFleetlight-Consistency: {consistency}\r\n\r\n"
    with ExitStack() as opened:
        clients = [
            opened.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=60)) for _ in range(120)
        ]
        for client in clients:
            client.sendall(request.encode())
        clients[0].recv(1)
        api.parent.terminate()
        answers = [b"".join(iter(partial(client.recv, 1 << 16), b"")) for client in clients]
    assert api.parent.wait(60) == 0
    statuses = Counter(answer.partition(b" ")[2][:3] if answer.startswith(b"H") else b"first" for answer in answers)
    assert statuses.keys() <= {b"200", b"503", b"first"}, statuses
    assert statuses[b"200"] > 0
    assert all(answer.endswith(b"}") for answer in answers)
    assert '"level": "error"' not in api.log
    assert "Traceback" not in api.log
