"""`fleetlight compare` as operators call it, over small compute APIs that a test plays, and over a real one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cli.app import app
from fleetlight.cli.compare.differences import Answer
from tests.integration.test_up import free_port
from tests.support.played.compute_api import ServedApi, served_api, server
from tests.support.played.planted_faults import PLANTED
from tests.support.servers.live_api import live_api
from tests.support.waiting import wait_until

TOKEN = "gAAAAABl-a-token-that-no-report-may-show"
ROWS = [server(number, "http://somewhere:8774") for number in range(12)]
Serve = Callable[..., ServedApi]
QUICKLY = ("--rate", "1000", "--settle", "0.1")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda fault=None: stack.enter_context(
            served_api(ROWS, token=TOKEN) if fault is None else served_api(ROWS, token=TOKEN, fault=fault)
        )


def compare(nova: str, ours: str, *arguments: str | Path, token: str = TOKEN) -> Result:
    words = ["compare", "--nova", nova, "--fleetlight", ours, *QUICKLY, *map(str, arguments)]
    return CliRunner().invoke(app, words, env={"OS_TOKEN": token})


def test_apis_that_agree_end_with_0_and_were_only_read(serve: Serve) -> None:
    nova, ours = serve(), serve()
    result = compare(nova.url, ours.url, "--requests", "300")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("No difference in 300 requests: 300 the same.\n")
    assert "/servers/detail" in result.stdout
    assert len(ours.requests) >= 300
    assert {method for method, _ in [*nova.requests, *ours.requests]} == {"GET"}


def test_difference_ends_with_1_and_is_in_every_form_of_the_report_without_the_token(
    serve: Serve, tmp_path: Path
) -> None:
    fault, (class_, _) = PLANTED["a value is changed"]
    nova, ours = serve(), serve(fault)
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    results = [
        compare(nova.url, ours.url, "--requests", "40", *more)
        for more in (("--report", page), ("--report", document, "--output", "json"), ("--output", "csv"))
    ]
    assert [result.exit_code for result in results] == [1, 1, 1]
    found = json.loads(results[1].stdout)
    assert found == json.loads(document.read_text())
    assert [each["class"] for each in found["differences"]] == [class_]
    texts = [*(result.output for result in results), page.read_text(), document.read_text()]
    for text in texts:
        assert class_ in text
        assert "curl -s" in text
        assert TOKEN not in text


@pytest.mark.parametrize("token", ["", "another"])
def test_login_that_is_refused_is_wrong_usage(serve: Serve, token: str) -> None:
    nova, ours = serve(), serve()
    result = compare(nova.url, ours.url, token=token)
    assert result.exit_code == 2
    assert f"--nova: {nova.url} refuses the login: status 401" in result.stderr


def test_login_that_ends_while_it_compares_ends_with_2_and_the_report(serve: Serve) -> None:
    def ended(answer: Answer) -> Answer:
        return Answer(401, {"error": {"code": 401}}) if len(nova.requests) > 20 else answer

    nova, ours = serve(ended), serve()
    result = compare(nova.url, ours.url)
    assert result.exit_code == 2, result.output
    assert "requests: " in result.stdout.partition("\n")[0]
    assert f"--nova: {nova.url} refuses the login: status 401" in result.stderr


def test_apis_that_both_fail_end_with_3(serve: Serve) -> None:
    def failed(answer: Answer) -> Answer:
        return Answer(500, {"computeFault": {"code": 500}}) if len(nova.requests) > 4 else answer

    nova, ours = serve(failed), serve(failed)
    result = compare(nova.url, ours.url, "--requests", "9")
    assert result.exit_code == 3, result.output
    assert result.stdout.startswith("Nothing was compared.")
    assert "nova answers nothing that can be compared" in result.stderr


def test_api_that_cannot_be_reached_ends_with_3(serve: Serve) -> None:
    nova = serve()
    result = compare(nova.url, f"http://127.0.0.1:{free_port()}/v2.1")
    assert result.exit_code == 3
    assert "cannot be reached" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--for", "soon"), "'soon' is no duration such as 90s, 30m, 12h or 7d"),
        (("--report", "report.pdf"), "'report.pdf' ends neither with .html nor with .json"),
        (("--report", "nowhere/report.html"), "there is no folder nowhere"),
        (("--log", "nowhere.log"), "--log: there is no file nowhere.log"),
        (("--clouds-file", "nowhere.yaml"), "cannot read nowhere.yaml"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_end(serve: Serve, arguments: tuple[str, str], said: str) -> None:
    nova, ours = serve(), serve()
    place = "east" if "--clouds-file" in arguments else nova.url
    result = compare(place, ours.url, *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not [target for _, target in ours.requests if "marker" in target]


def test_access_log_is_asked_once_for_each_request(serve: Serve, tmp_path: Path) -> None:
    nova, ours = serve(), serve()
    lines = [
        '10.0.0.4 - - [29/Nov/2026:12:00:00 +0000] "GET /v2.1/servers/detail?limit=3 HTTP/1.1" 200 2750 "-" "x"',
        '10.0.0.4 - - [29/Nov/2026:12:00:01 +0000] "GET /v2.1/servers/detail?limit=3 HTTP/1.1" 200 2750 "-" "x"',
        '10.0.0.4 - - [29/Nov/2026:12:00:02 +0000] "POST /v2.1/servers HTTP/1.1" 202 275 "-" "x"',
        f'10.0.0.4 "GET /v2.1/servers/{ROWS[2]["id"]}" status: 200 len: 512 microversion: 2.96 time: 0.1',
    ]
    (tmp_path / "access.log").write_text("\n".join(lines) + "\n")
    result = compare(nova.url, ours.url, "--log", tmp_path / "access.log", "--output", "json")
    found = json.loads(result.stdout)
    assert (found["requests"], found["same"], found["skipped_lines"]) == (3, 3, 2)
    assert [target for _, target in ours.requests[2:]] == [
        "/v2.1/servers/detail?limit=3",
        "/v2.1/servers/detail?limit=3",
        f"/v2.1/servers/{ROWS[2]['id']}",
    ]


def ends_by_signal(arguments: list[str], lines: str, ours: ServedApi, number: signal.Signals) -> tuple[int, str, str]:
    """What `fleetlight compare` says that reads a log without an end, when it is told to end."""
    program = Path(sys.executable).with_name("fleetlight")
    with subprocess.Popen(
        [program, *arguments, "--log", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OS_TOKEN": TOKEN},
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(lines)
            process.stdin.flush()
            wait_until(lambda: sum("/servers/detail" in target for _, target in ours.requests) == 2)
            process.send_signal(number)
            process.wait(60)
            assert process.stdout is not None
            assert process.stderr is not None
            return process.returncode, process.stdout.read(), process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_log_that_goes_on_is_followed_until_a_signal_ends_it_with_the_report(
    serve: Serve, number: signal.Signals
) -> None:
    nova, ours = serve(), serve()
    arguments = ["compare", "--nova", nova.url, "--fleetlight", ours.url, *QUICKLY]
    line = '10.0.0.4 - - [29/Nov/2026:12:00:00 +0000] "GET /v2.1/servers/detail?limit=3 HTTP/1.1" 200 2750\n'
    code, said, notice = ends_by_signal(arguments, line, ours, number)
    assert code == 0, notice
    assert "in 2 requests" in said or "in 1 requests" in said
    assert notice == "stopped; the report is of what was seen until then\n"


@pytest.mark.night
def test_clouds_are_found_by_their_names_with_login_and_address(tmp_path: Path, monkeypatch: Any) -> None:
    """A real API is compared with itself, by the logins and the catalogue that it has."""
    with live_api(tmp_path, "--simulate", "--rate", "0", "--cells", "2", "--instances", "30") as api:
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(api.clouds_file))
        result = compare("fleetlight", "fleetlight", "--requests", "150", "--output", "json")
        found = json.loads(result.stdout)
        assert (found["nova"], found["differences"]) == (f"{api.url}/v2.1", [])
        assert (result.exit_code, found["same"], found["complete"] > 100) == (0, 150, True)
