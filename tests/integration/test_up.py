"""`fleetlight up` as users run it: a process of its own, killed and started again."""

import os
import random
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.commands import Command
from tests.support.terminal import terminal
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

_KILLS = 3
_START_TIMEOUT_S = 60
_HOLD_DATA = {"fleet.db", "index.db", "cell1.db", "identity.json", "clouds.yaml"}
_STRONG = {"Fleetlight-Consistency": "strong"}


class Up:
    """One `fleetlight up` on a free port, which can be killed and started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self._log = folder / "up.log"
        self._process: Command | None = None
        self.port = free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)
        self.monitoring_port = free_port()
        self.monitoring = httpx.Client(base_url=f"http://127.0.0.1:{self.monitoring_port}", timeout=60)

    def start(self, *arguments: str, auth: str = "none") -> None:
        """Start it, and return when it answers lists. auth: who says who is calling; most tests do not care."""
        command = ("up", "--data-dir", str(self.data_dir), "--port", str(self.port), "--auth", auth)
        environment = os.environ | {"FLEETLIGHT_MONITORING_PORT": str(self.monitoring_port)}
        self._process = Command(*command, *arguments, log=self._log, environment=environment)
        wait_until(self._is_ready, _START_TIMEOUT_S)

    def kill(self) -> None:
        process = self._running()
        process.kill()
        process.wait(timeout=10)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; returns its exit code."""
        process = self._running()
        process.send_signal(number)
        return process.wait(timeout=30)

    def clean_up(self) -> None:
        self.http.close()
        self.monitoring.close()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=10)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def listed(self, headers: dict[str, str], **parameters: str | int) -> tuple[list[object], str]:
        """Every row of the detailed list, page by page, and the routes of all pages."""
        rows: list[object] = []
        routes: set[str] = set()
        url = "/v2.1/servers/detail"
        query: dict[str, str | int] | None = {"all_tenants": 1, "limit": 60, **parameters}
        while True:
            response = self.http.get(url, params=query, headers=headers)
            assert response.status_code == 200, response.text
            assert response.headers["Fleetlight-Complete"] == "true"
            routes.add(response.headers["Fleetlight-Route"])
            document = response.json()
            rows += document["servers"]
            if "servers_links" not in document:
                return rows, " ".join(sorted(routes))
            url, query = document["servers_links"][0]["href"], None

    def _running(self) -> Command:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended by itself: {self.log[-3000:]}"
        return self._process

    def _is_ready(self) -> bool:
        self._running()
        try:
            return self.http.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    process = Up(tmp_path)
    yield process
    process.clean_up()


def run_fleetlight(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleetlight.cli", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def index_equals_cells(up: Up) -> bool:
    """Same rows, in the same order, from the index alone and from the cells alone; deleted rows too."""
    # `deleted` alone may ask for what the index has forgotten, so the cells answer that.
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for parameters in ({}, {"changes-since": yesterday}, {"sort_key": "display_name", "sort_dir": "asc"}):
        from_index, routes = up.listed({}, **parameters)
        from_cells, live_routes = up.listed(_STRONG, **parameters)
        assert "live" not in routes
        assert "index" not in live_routes
        assert from_index == from_cells
    return True


@pytest.mark.night
def test_nothing_is_lost_or_doubled_by_kill_9_at_any_moment(up: Up) -> None:
    generator = random.Random(11)
    pause = threading.Event()
    up.start("--simulate", "--instances", "120", "--rate", "150")
    for _ in range(_KILLS):
        # The moment of the kill is what is random here; nothing is waited for.
        pause.wait(generator.uniform(0.1, 2.5))
        up.kill()
        up.start("--simulate", "--instances", "120", "--rate", "150")
    pause.wait(1)
    up.kill()
    up.start("--simulate", "--instances", "120", "--rate", "0")
    wait_until(lambda: index_equals_cells(up), timeout_s=60)

    rows, _ = up.listed({})
    assert len({row["id"] for row in rows if isinstance(row, dict)}) == len(rows) >= 100
    status = run_fleetlight("index", "status", "--output", "json", "--data-dir", str(up.data_dir))
    assert status.returncode == 0, status.stdout + status.stderr
    assert up.stop() == 0


@pytest.mark.night
def test_each_process_is_started_again_and_nothing_is_lost(up: Up) -> None:
    up.start("--simulate", "--instances", "60", "--rate", "100")
    for name in ("api-1", "background", "monitoring"):
        wait_until(lambda: all_processes_run(up), timeout_s=30)
        os.kill(newest_process(up, name), signal.SIGKILL)
        wait_until(partial(is_in_log, up, f'"process.ended", "name": "{name}", "reason": "SIGKILL"'), timeout_s=30)
    wait_until(lambda: all_processes_run(up), timeout_s=30)
    assert up.stop() == 0
    up.start("--simulate", "--instances", "60", "--rate", "0")
    wait_until(lambda: index_equals_cells(up), timeout_s=60)
    assert len(up.listed({})[0]) >= 50
    assert up.stop() == 0


@pytest.mark.night
def test_work_on_the_index_is_ordered_and_that_of_a_command_stopped_over_http(up: Up, tmp_path: Path) -> None:
    up.start("--simulate", "--instances", "40", "--rate", "0")

    def newest() -> Any:
        return next(iter(up.http.get("/fleetlight/index/work").json()["work"]), {"ended_at": None})

    for kind in ("verify", "rebuild"):
        assert up.http.post("/fleetlight/index/work", json={"kind": kind}).status_code == 202
        wait_until(lambda: newest()["ended_at"] is not None, timeout_s=60)
        assert (newest()["kind"], newest()["state"], newest()["done"]) == (kind, "done", newest()["total"])

    slow = os.environ | {"FLEETLIGHT_INDEXER_SYNC_BATCH_SIZE": "1"}
    words = ("index", "sync", "--rate", "2", "--data-dir", str(up.data_dir))
    command = Command(*words, log=tmp_path / "sync.log", environment=slow)
    wait_until(lambda: newest()["kind"] == "sync" and newest()["done"] > 0, timeout_s=30)
    assert (newest()["state"], newest()["by"].endswith(", by a command")) == ("running", True)
    assert up.http.delete(f"/fleetlight/index/work/{newest()['id']}").status_code == 202
    assert command.wait(timeout=30) == 130
    assert newest()["state"] == "stopped"
    assert "stopped; the same command goes on from here" in (tmp_path / "sync.log").read_text()
    assert up.stop() == 0


def is_in_log(up: Up, text: str) -> bool:
    return text in up.log


def newest_process(up: Up, name: str) -> int:
    return int(re.findall(rf'"process.started", "name": "{name}", "process": (\d+)', up.log)[-1])


def all_processes_run(up: Up) -> bool:
    try:
        states = up.monitoring.get("/readyz").json()["processes"]
        lists = up.http.get("/v2.1/servers?limit=1").status_code == 200
    except httpx.TransportError:
        return False
    return lists and all(state in {"ok", "ready", "degraded"} for state in states.values())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(up: Up, number: signal.Signals) -> None:
    up.start("--simulate", "--instances", "20", "--rate", "50")
    assert up.stop(number) == 0
    assert '"event": "stopped"' in up.log
    assert "Traceback" not in up.log


@pytest.mark.night
def test_cells_stay_and_more_can_be_asked_for(up: Up) -> None:
    for asked, there in ((2, 2), (1, 2), (4, 4)):
        up.start("--cells", str(asked))
        assert len(up.monitoring.get("/readyz").json()["cells"]) == there
        assert up.stop() == 0
    assert "has 2 cells; none is removed because of --cells 1" in up.log


@pytest.mark.night
def test_one_folder_belongs_to_one_process(up: Up) -> None:
    up.start("--cells", "1")
    second = run_fleetlight("up", "--data-dir", str(up.data_dir), "--port", "0")
    assert second.returncode == 1
    assert f"is in use by process {(up.data_dir / 'lock').read_text()}" in second.stderr
    assert "Traceback" not in second.stderr


def test_taken_port_is_a_clear_error(up: Up, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_fleetlight("up", "--data-dir", str(tmp_path / "other"), "--port", str(port))
    assert result.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "other").exists()


def test_emitted_notification_is_in_the_index_within_moments(up: Up, samples_dir: Path) -> None:
    up.start("--cells", "2", "--simulate", "--instances", "0", "--rate", "0")
    sample = samples_dir / "nova" / "notifications" / "instance-create-end.json"
    sent = run_fleetlight("notifications", "emit", "--cell", "cell2", "--data-dir", str(up.data_dir), str(sample))
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout == f"{sample}: instance.create.end sent to cell cell2\n"

    def is_listed() -> bool:
        rows, _ = up.listed({}, name="^some-server$")
        return len(rows) == 1

    wait_until(is_listed, timeout_s=30)


def test_cells_of_a_fleet_that_is_not_simulated_take_no_announcements(up: Up, samples_dir: Path) -> None:
    up.start("--cells", "1")
    sample = samples_dir / "nova" / "notifications" / "instance-create-end.json"
    refused = run_fleetlight("notifications", "emit", "--data-dir", str(up.data_dir), str(sample))
    assert refused.returncode == 1
    assert "cell cell1 takes no announcements of instances" in refused.stderr


def test_lists_go_on_while_the_index_is_away_and_use_it_when_it_is_back(up: Up) -> None:
    arguments = ("--simulate", "--instances", "90", "--rate", "0")
    up.start(*arguments)
    wait_until(lambda: index_equals_cells(up), timeout_s=60)
    expected, _ = up.listed(_STRONG)
    assert up.stop() == 0

    # A folder in place of the file: the index can neither be opened nor made.
    for file in up.data_dir.glob("index.db*"):
        file.unlink()
    (up.data_dir / "index.db").mkdir()
    up.start(*arguments)
    rows, routes = up.listed({})
    assert rows == expected
    assert "index" not in routes
    wait_until(lambda: up.monitoring.get("/readyz").json()["indexer"]["status"] == "unavailable", timeout_s=60)
    assert up.monitoring.get("/readyz").json()["status"] == "degraded"
    assert up.http.get("/healthz").status_code == 200, "starting it again would not bring the index back"
    assert up.stop() == 0
    assert "Traceback" not in up.log

    (up.data_dir / "index.db").rmdir()
    up.start(*arguments)
    wait_until(lambda: index_equals_cells(up), timeout_s=60)
    rows, _ = up.listed({})
    assert rows == expected
    wait_until(lambda: up.monitoring.get("/readyz").json()["indexer"]["status"] == "ready", timeout_s=60)
    assert up.stop() == 0


@pytest.mark.night
def test_index_that_breaks_under_way_costs_no_answer(up: Up) -> None:
    up.start("--simulate", "--instances", "90", "--rate", "20")

    def is_filled() -> bool:
        rows, routes = up.listed({})
        return "index" in routes and len(rows) >= 70

    wait_until(is_filled, timeout_s=60)
    with (up.data_dir / "index.db").open("r+b") as file:
        file.write(b"no longer a database" * 1000)
    for _ in range(20):
        rows, _ = up.listed({})
        assert len(rows) >= 70
    assert up.stop() == 0


@pytest.mark.night
def test_metrics_show_the_indexer_too(up: Up) -> None:
    up.start("--cells", "1")
    wait_until(lambda: "\nfleetlight_indexer_complete{" in up.monitoring.get("/metrics").text, timeout_s=30)
    names = [line.split()[2] for line in up.monitoring.get("/metrics").text.splitlines() if line.startswith("# TYPE")]
    assert "fleetlight_list_duration_seconds" in names
    assert "process_open_fds" in names
    assert len(names) == len(set(names))


@pytest.mark.night
def test_requests_are_logged_when_the_configuration_says_so(up: Up, tmp_path: Path) -> None:
    config = tmp_path / "fleetlight.toml"
    config.write_text("[api]\naccess_log = true\n", encoding="utf-8")
    up.start("--cells", "1", "--config", str(config))
    assert up.http.get("/v2.1/servers?limit=1").status_code == 200
    wait_until(lambda: '"path": "/v2.1/servers", "query": "limit=1", "status": 200' in up.log)


@pytest.mark.night
def test_the_command_that_the_banner_names_can_be_pasted(up: Up, tmp_path: Path) -> None:
    config = tmp_path / "my settings.toml"
    config.write_text("[search]\nstaleness_limit_s = 30\n", encoding="utf-8")
    up.start("--cells", "1", "--config", str(config))
    named = next(line for line in up.log.splitlines() if " index status" in line)

    def works() -> bool:
        result = subprocess.run(shlex.split(named), capture_output=True, text=True, timeout=60, check=False)
        return result.returncode == 0 and "cell1" in result.stdout

    wait_until(works, timeout_s=30)


def test_what_is_made_in_a_folder_that_others_can_look_into_is_for_its_owner_alone(up: Up) -> None:
    up.data_dir.mkdir()
    up.data_dir.chmod(0o755)
    up.start("--simulate", "--instances", "5", auth="tokens")
    files = [path for path in up.data_dir.rglob("*") if path.name.split("-")[0] in _HOLD_DATA]
    assert {path.name for path in files} >= _HOLD_DATA
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in files} == {path.name: 0o600 for path in files}


def test_first_users_are_made_once_and_are_let_in_with_the_passwords_of_clouds_yaml(up: Up) -> None:
    up.start("--simulate", "--instances", "20", "--rate", "0", auth="tokens")
    clouds = up.data_dir / "clouds.yaml"
    passwords = re.findall(r'password: "(\w{20})"', clouds.read_text())
    assert len(passwords) == 2
    for file in (clouds, up.data_dir / "identity.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert up.http.get("/v2.1/servers").status_code == 401
    assert up.stop() == 0
    assert f"The passwords of admin and demo are in {clouds}." in up.log

    up.start("--rate", "0", "--simulate", auth="tokens")
    assert up.log.count("The passwords of") == 1
    assert not [password for password in passwords if password in up.log], "it is a file that somebody may keep"
    for name, password, status in (("admin", passwords[0], 200), ("demo", passwords[1], 403)):
        token = logged_in(up, name, password)
        rows = up.http.get("/v2.1/servers?all_tenants=1", headers={"X-Auth-Token": token})
        assert rows.status_code == status
        own = up.http.get("/v2.1/servers", headers={"X-Auth-Token": token})
        assert (own.status_code, bool(own.json()["servers"])) == (200, True)


@pytest.mark.night
def test_first_passwords_are_shown_once_and_on_a_terminal_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "fleetlight.cli", "up", "--data-dir", str(data), "--port", "0", "--cells", "1"]
    shown = []
    for _ in range(2):
        with terminal() as screen, (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=screen.stream, stderr=log)
            try:
                wait_until(lambda: screen.shows("Stop it with Ctrl-C."), _START_TIMEOUT_S)
                process.terminate()
                assert process.wait(timeout=30) == 0
            finally:
                process.kill()
                process.wait(timeout=10)
        shown.append(screen.text)
    passwords = re.findall(r'password: "(\w{20})"', (data / "clouds.yaml").read_text())
    for name, password in zip(("admin", "demo"), passwords, strict=True):
        assert [text.count(f"user {name}, password {password}") for text in shown] == [1, 0]
        assert [text.count(password) for text in shown] == [1, 0]
        assert password not in (tmp_path / "log").read_text()


@pytest.mark.night
def test_the_console_comes_first_with_a_login_for_one_browser_on_a_terminal(up: Up, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleetlight.cli", "up", "--data-dir", str(up.data_dir), "--cells", "1"]
    command += ["--port", str(up.port)]
    with (tmp_path / "log").open("wb") as log, terminal() as screen:
        process = subprocess.Popen(command, stdout=screen.stream, stderr=log)
        try:
            wait_until(lambda: screen.shows("Stop it with Ctrl-C"), _START_TIMEOUT_S)
            page, link = re.findall(r"http://127.0.0.1:(\d+/console/)#login=(\S+)", screen.text)[0]
            assert page == f"{up.port}/console/"
            assert screen.text.index("/console/") < screen.text.index("/v2.1")
            console = {"Fleetlight-Request": "console"}  # the client keeps the cookie of the first login
            begun = [up.http.post("/fleetlight/session", json={"link": link}, headers=console) for _ in range(2)]
        finally:
            process.terminate()
            process.wait(timeout=30)
    assert [response.status_code for response in begun] == [200, 401]
    assert begun[0].json()["is_admin"]


def test_no_login_of_the_console_is_written_to_a_file(up: Up) -> None:
    up.start("--cells", "1", auth="tokens")
    assert f"The console is at http://127.0.0.1:{up.port}/console/" in up.log
    assert "#login=" not in up.log


@pytest.mark.night
def test_clouds_yaml_follows_the_address_and_keeps_what_people_wrote(up: Up) -> None:
    up.start("--cells", "1", auth="tokens")
    assert up.stop() == 0
    clouds = up.data_dir / "clouds.yaml"
    first = clouds.read_text()
    assert first.count(f"auth_url: http://127.0.0.1:{up.port}/identity\n") == 2
    clouds.write_text("# mine\n" + first)
    old, up.port = up.port, free_port()
    up.http.base_url = httpx.URL(f"http://127.0.0.1:{up.port}")
    up.start("--cells", "1", auth="tokens")
    assert clouds.read_text() == "# mine\n" + first.replace(f":{old}/", f":{up.port}/")


@pytest.mark.parametrize("auth", ["none", "tokens"])
def test_banner_has_three_commands_that_need_nothing_but_curl_and_us(up: Up, auth: str) -> None:
    up.start("--cells", "1", auth=auth)
    tried = up.log.partition("Try:\n\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in tried[:2]] == ["curl", "curl"]
    assert tried[2].endswith("index status --data-dir " + str(up.data_dir))
    assert len(tried) == 3
    for line in tried[:2]:
        (url,) = [word for word in shlex.split(line) if word.startswith("http://")]
        assert up.http.get(url).status_code == (200 if auth == "none" else 401)


@pytest.mark.night
def test_the_token_command_of_the_banner_lets_curl_in(up: Up) -> None:
    up.start("--cells", "1", auth="tokens")
    (named,) = {found[1] for found in re.finditer(r'X-Auth-Token: \$\(([^"]*)\)"', up.log)}
    printed = subprocess.run(shlex.split(named), capture_output=True, text=True, timeout=60, check=True)
    assert up.http.get("/v2.1/servers", headers={"X-Auth-Token": printed.stdout.strip()}).status_code == 200


@pytest.mark.night
def test_banner_says_that_curl_needs_a_user_of_the_file(up: Up, tmp_path: Path) -> None:
    users, config = tmp_path / "users", tmp_path / "fleetlight.toml"
    users.write_text("# nobody yet\n", encoding="utf-8")
    config.write_text(f"[identity]\nhtpasswd_file = '{users}'\n", encoding="utf-8")
    up.start("--cells", "1", "--config", str(config), auth="basic")
    assert up.log.count("curl -si -u USER 'http://") == 2


def logged_in(up: Up, name: str, password: str) -> str:
    """A token for the user's default project."""
    user = {"name": name, "domain": {"id": "default"}, "password": password}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    response = up.http.post("/identity/v3/auth/tokens", json=body)
    assert response.status_code == 201, response.text
    token: str = response.headers["X-Subject-Token"]
    return token
