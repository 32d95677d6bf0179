"""What logs show, and what they never show."""

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr
from structlog.testing import capture_logs

from fleetlight.cli.logging import LogSettings, configure_logging, mask_url_passwords
from tests.support.terminal import terminal
from tests.unit.cli.conftest import Run

SECRET = "hunter2"


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    return stream


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, log: Callable[[], object]) -> str:
    """What a terminal shows of what `log` logs."""
    with terminal() as shown:
        monkeypatch.setattr(sys, "stderr", shown.stream)
        configure_logging(LogSettings())
        log()
        logging.getLogger().handlers.clear()
    return shown.text


def log_failure_with_secrets() -> None:
    """Logs an error as the API logs one that nobody expected, from functions that have a secret as they run."""

    def change_password(body: dict[str, Any]) -> None:
        new_password = body["changePassword"]["adminPass"]
        raise RuntimeError(f"postgresql://fleet:{SECRET}@host/fleet is away") from LookupError(len(new_password))

    try:
        change_password({"changePassword": {"adminPass": SECRET}})
    except RuntimeError:
        structlog.get_logger("test").exception("request_failed")


def test_terminal_shows_where_it_failed_and_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(monkeypatch, log_failure_with_secrets)
    assert "in change_password" in shown
    assert "LookupError" in shown
    assert "fleet:***@host" in shown, "the text of an error is masked as any other text"
    assert "hunter2" not in shown


def test_no_variable_is_shown_as_json(output: io.StringIO) -> None:
    log_failure_with_secrets()
    assert "in change_password" in json.loads(output.getvalue())["exception"]
    assert "hunter2" not in output.getvalue()


def test_errors_of_libraries_show_no_variable_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        try:
            password = SECRET
            int(password[:0])
        except ValueError:
            logging.getLogger("some.library").exception("it failed")

    shown = shown_on_a_terminal(monkeypatch, fail)
    assert "ValueError" in shown
    assert "hunter2" not in shown


def test_command_that_fails_unexpectedly_shows_no_variable() -> None:
    script = """
import fleetlight.cli.cells.cell, fleetlight.cli.main, sys
def fail(*arguments, **options):
    password = "hunter" + str(2)
    raise RuntimeError("unexpected")
fleetlight.cli.settings.load_settings = fail
sys.argv = ["fleetlight", "cell", "list"]
fleetlight.cli.main.main()
"""
    command = [sys.executable, "-c", script]
    with terminal() as shown:
        # By itself Python 3.13 colours what it says.
        plain = os.environ | {"PYTHON_COLORS": "0"}
        ended = subprocess.run(command, env=plain, stdout=shown.stream, stderr=shown.stream, check=False, timeout=60)
    assert ended.returncode == 1
    assert "RuntimeError: unexpected" in shown.text
    assert "in fail" in shown.text
    assert "hunter2" not in shown.text


def test_secrets_deep_inside_of_values_are_not_logged(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    def log() -> None:
        structlog.get_logger("test").info(
            "asked",
            body={"server": [{"adminPassword": "hunter2", "url": "amqp://guest:hunter2@host//"}]},
            cell=LookupError("postgresql://fleet:hunter2@host"),
            given=SecretStr("hunter2"),
        )

    log()
    for text in (output.getvalue(), shown_on_a_terminal(monkeypatch, log)):
        assert "guest:***@host" in text
        assert "hunter2" not in text


def test_events_are_json_when_nobody_watches(output: io.StringIO) -> None:
    structlog.get_logger("fleetlight.cells.kinds.native.relay").info("relay.waiting", cell="cell1", attempt=3)
    event = json.loads(output.getvalue())
    assert event["event"] == "relay.waiting"
    assert (event["cell"], event["attempt"], event["level"], event["logger"]) == (
        "cell1",
        3,
        "info",
        "fleetlight.cells.kinds.native.relay",
    )
    assert list(event)[:3] == ["timestamp", "level", "event"]


def test_logger_that_is_kept_follows_what_is_configured_later(output: io.StringIO) -> None:
    kept = structlog.get_logger("kept")
    kept.info("before")
    structlog.reset_defaults()
    with capture_logs() as events:
        kept.info("afterwards")
    assert [event["event"] for event in events] == ["afterwards"]


def test_records_of_libraries_look_the_same(output: io.StringIO) -> None:
    logging.getLogger("some.library").warning("only %d left", 3)
    assert json.loads(output.getvalue())["event"] == "only 3 left"


def test_secrets_are_not_logged(output: io.StringIO) -> None:
    logger = structlog.get_logger("test")
    logger.info("connecting", url="amqp://guest:hunter2@host//", api_key="hunter2", password="hunter2")
    try:
        int("postgresql://fleet:hunter2@host/fleet")
    except ValueError:
        logger.exception("failed")
    assert "hunter2" not in output.getvalue()
    assert "amqp://guest:***@host//" in output.getvalue()


def test_what_the_api_logs_before_it_serves_is_json_too(empty_place: Path) -> None:
    (empty_place / "users").write_text("nonsense\n")
    (empty_place / "fleetlight.toml").write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/none.db"\n'
        f'[api]\nauth = "basic"\n[identity]\nhtpasswd_file = "{empty_place}/users"\n'
    )
    # The API logs from children that it forks, so it gets a process of its own.
    command = [sys.executable, "-m", "fleetlight.cli", "api", "--port", "0", "--processes", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode != 0
    assert not result.stdout
    *logged, _words = result.stderr.splitlines()
    assert "htpasswd.line_ignored" in [json.loads(line)["event"] for line in logged]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql+psycopg://a:b@h/d and amqp://c:d@i//", "postgresql+psycopg://a:***@h/d and amqp://c:***@i//"),
        ("amqp://:pw@host", "amqp://:***@host"),
        ("http://host:9200/path", "http://host:9200/path"),
        ("http://host:9200/path?to=a@b and http://[::1]:8774", "http://host:9200/path?to=a@b and http://[::1]:8774"),
        ("never quoted: mysql://a:b/c@h/d, amqp://a:b@c@h//", "never quoted: mysql://a:***@h/d, amqp://a:***@h//"),
        ("memory://", "memory://"),
    ],
)
def test_only_passwords_of_urls_are_masked(text: str, masked: str) -> None:
    assert mask_url_passwords(text) == masked


def test_commands_do_not_print_what_libraries_warn_of(run: Run, empty_place: Path) -> None:
    """Python prints it where nobody has said how to log; psycopg warns of each error in a pipeline, which it raises."""
    library = logging.getLogger("psycopg")
    library.setLevel(logging.NOTSET)
    assert run("cell", "list").exit_code == 2
    assert not library.isEnabledFor(logging.WARNING)


def test_long_texts_are_masked_in_a_time_that_grows_with_their_length_alone() -> None:
    text = "://a:b" * 20_000
    began = time.process_time()
    assert mask_url_passwords(f"@ {text}") == f"@ {text}"
    assert time.process_time() - began < 2, "it took many times as long when each URL was followed to the end"
