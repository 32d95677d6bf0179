"""What logs show, and what they never show."""

import io
import json
import logging
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from cli.logging import LogSettings, configure_logging, mask_url_passwords
from tests.unit.cli.conftest import Run


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    return stream


def test_events_are_json_when_nobody_watches(output: io.StringIO) -> None:
    structlog.get_logger("cells.kinds.native.relay").info("relay.waiting", cell="cell1", attempt=3)
    event = json.loads(output.getvalue())
    assert event["event"] == "relay.waiting"
    assert (event["cell"], event["attempt"], event["level"], event["logger"]) == (
        "cell1",
        3,
        "info",
        "cells.kinds.native.relay",
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


def test_what_the_api_logs_before_it_serves_is_json_too(run: Run, empty_place: Path) -> None:
    (empty_place / "users").write_text("nonsense\n")
    (empty_place / "fleetlight.toml").write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/none.db"\n'
        f'[api]\nauth = "basic"\n[identity]\nhtpasswd_file = "{empty_place}/users"\n'
    )
    result = run("api")
    assert result.exit_code != 0
    assert not result.stdout
    assert json.loads(result.stderr.splitlines()[0])["event"] == "htpasswd.line_ignored"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql+psycopg://a:b@h/d and amqp://c:d@i//", "postgresql+psycopg://a:***@h/d and amqp://c:***@i//"),
        ("amqp://:pw@host", "amqp://:***@host"),
        ("http://host:9200/path", "http://host:9200/path"),
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
