"""The health check of containers ends what hangs, and nothing else."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path

import pytest

from scripts import container_health as health
from tests.support.serving import QuietHandler, serving


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(status)

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}/healthz"


@pytest.mark.parametrize(("status", "says"), [(200, True), (503, False)])
def test_process_says_itself_how_it_is(status: int, says: bool) -> None:
    with answering(status) as url:
        assert health.is_well(url) is says


def test_process_that_says_nothing_is_not_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert health.is_well(f"http://127.0.0.1:{silent.getsockname()[1]}/healthz", timeout_s=0.2) is False


def test_process_that_has_not_begun_to_listen_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "processes_of_fleetlight", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert health.main(f"http://127.0.0.1:{port}/healthz") == 1


def test_only_what_is_stuck_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(health, "processes_of_fleetlight", lambda: [4711])
    monkeypatch.setattr(os, "kill", lambda process, number: killed.append((process, number)))
    with answering(200) as url:
        assert health.main(url) == 0
    assert killed == []
    with answering(503) as url:
        assert health.main(url) == 1
    assert killed == [(4711, signal.SIGKILL)]


def test_processes_are_those_that_the_init_of_the_container_has_started(tmp_path: Path) -> None:
    def process(number: int, parent: int, *words: str) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in (*words, "")))
        (folder / "stat").write_text(f"{number} (python (3)) S {parent} 1 1 0")

    process(1, 0, "/sbin/docker-init", "--", "fleetlight", "api")
    process(7, 1, "/opt/fleetlight/bin/python", "/opt/fleetlight/bin/fleetlight", "api")
    process(8, 7, "/opt/fleetlight/bin/python", "/opt/fleetlight/bin/fleetlight", "api")
    process(9, 1, "sleep", "10")
    (tmp_path / "self").mkdir()
    assert list(health.processes_of_fleetlight(tmp_path)) == [7]
