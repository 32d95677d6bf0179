"""Ganeti's local queries at the sockets of running processes: `fleetlight up`, and `fleetlight luxi` beside it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import INSTANCES
from tests.support.servers.live_api import LiveApi
from tests.support.waiting import wait_until


@pytest.fixture
def beside(live: LiveApi, tmp_path: Path) -> Iterator[Path]:
    """The socket of a process of its own."""
    path, log = tmp_path / "luxi.sock", tmp_path / "log"
    command = [sys.executable, "-m", "fleetlight.cli", "luxi", "--data-dir", str(live.data_dir), "--socket", str(path)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ)
    try:
        wait_until(lambda: path.exists() or process.poll() is not None, timeout_s=60)
        assert process.poll() is None, log.read_text()
        yield path
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert not path.exists()
    finally:
        process.kill()


def ask(path: Path, method: str, *arguments: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(json.dumps({"method": method, "args": arguments}).encode() + b"\3")
        said = b""
        while not said.endswith(b"\3"):
            received = connection.recv(65536)
            assert received, said
            said += received
    answer = json.loads(said[:-1])
    assert answer["success"], answer
    return answer["result"]


def test_sockets_of_both_processes_answer_alike(live: LiveApi, beside: Path) -> None:
    for path in (live.data_dir / "luxi.sock", beside):
        names = ask(path, "QueryInstances", [], ["name"], False)
        assert len(names) == INSTANCES
        [[found]] = ask(path, "Query", "instance", ["name"], ["==", "name", names[0][0]])["data"]
        assert found == [0, names[0][0]]
        assert sum(row[0] for row in ask(path, "QueryNodes", [], ["pinst_cnt"], False)) == INSTANCES


def test_socket_that_is_served_is_not_taken(live: LiveApi) -> None:
    command = [sys.executable, "-m", "fleetlight.cli", "luxi", "--data-dir", str(live.data_dir)]
    served = str(live.data_dir / "luxi.sock")
    ended = subprocess.run([*command, "--socket", served], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"another process serves the socket {served}" in ended.stderr
    nowhere = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert nowhere.returncode == 2
    assert "give --socket PATH" in nowhere.stderr
