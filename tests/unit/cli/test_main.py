"""How the program begins, ends, and says what went wrong."""

import errno
import gc
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy.exc import OperationalError
from typer.testing import CliRunner

import fleetlight.cli.app
import fleetlight.cli.main
from fleetlight.cli.errors import INTERRUPTED
from fleetlight.cli.options import program


@pytest.fixture
def handlers() -> Iterator[None]:
    """What the program does about signals and garbage ends with the test."""
    numbers, threshold = (signal.SIGTERM, signal.SIGALRM), gc.get_threshold()
    before = [signal.getsignal(number) for number in numbers]
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    gc.set_threshold(*threshold)


def interrupted() -> None:
    raise KeyboardInterrupt


def terminated() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("end", [interrupted, terminated])
def test_ctrl_c_and_sigterm_show_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], end: Callable[[], None]
) -> None:
    monkeypatch.setattr(fleetlight.cli.app, "app", end)
    with pytest.raises(SystemExit) as ended:
        fleetlight.cli.main.main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


_DROPS_A_SIGNAL = """
import os, signal
import fleetlight.cli.app, fleetlight.cli.main

class Signalled:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def work():
    signalled = Signalled()
    del signalled
    print("dropped", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        signal.pause()  # until the next alarm, which leaves this alone
        print("interrupted", flush=True)
        raise

fleetlight.cli.app.app = work
fleetlight.cli.main.main()
"""


def test_signal_that_comes_in_a_finalizer_ends_a_command_which_then_ends_its_work_undisturbed() -> None:
    command = [sys.executable, "-c", _DROPS_A_SIGNAL]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout) == (130, "dropped\ninterrupted\n")
    assert "Exception ignored in: <function Signalled.__del__" in ended.stderr


@pytest.mark.usefixtures("handlers")
def test_garbage_is_looked_for_seldom_while_commands_are_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.set_threshold(700)
    thresholds: list[int] = []
    monkeypatch.setattr(fleetlight.cli.app, "app", lambda: thresholds.append(gc.get_threshold()[0]))
    fleetlight.cli.main.main()
    assert thresholds[0] > 10_000


def test_interrupted_command_says_so() -> None:
    app = typer.Typer(cls=fleetlight.cli.app.FleetlightGroup)
    app.command("work")(interrupted)
    app.command("other")(interrupted)
    result = CliRunner().invoke(app, ["work"])
    assert (result.exit_code, result.stderr) == (130, "stopped\n")


def failing_with(error: Exception) -> Callable[[], Any]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OperationalError("INSERT INTO x", {}, sqlite3.OperationalError("database or disk is full")),
            "error: a database failed: database or disk is full\n",
        ),
        (PermissionError(13, "Permission denied", "/data/lock"), "error: /data/lock: Permission denied\n"),
        (OSError("no file in particular"), "error: no file in particular\n"),
    ],
)
def test_failures_are_told_in_words(error: Exception, text: str) -> None:
    app = typer.Typer(cls=fleetlight.cli.app.FleetlightGroup)
    app.command("fail")(failing_with(error))
    app.command("other")(failing_with(error))
    result = CliRunner().invoke(app, ["fail"])
    assert (result.exit_code, result.stderr) == (1, text)


def test_reader_of_the_output_that_has_seen_enough_is_told_nothing() -> None:
    app = typer.Typer(cls=fleetlight.cli.app.FleetlightGroup)
    app.command("list")(failing_with(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    app.command("other")(interrupted)
    result = CliRunner().invoke(app, ["list"])
    assert (result.exit_code, result.stderr) == (1, "")


@pytest.mark.parametrize(
    ("argv", "on_path", "expected"),
    [
        ("/usr/bin/fleetlight", "/usr/bin/fleetlight", "fleetlight"),
        ("{cwd}/.venv/bin/fleetlight", None, ".venv/bin/fleetlight"),
        ("{cwd}/.venv/bin/fleetlight", "/usr/bin/fleetlight", ".venv/bin/fleetlight"),
        ("/opt/fleet light/bin/fleetlight", None, "'/opt/fleet light/bin/fleetlight'"),
        ("/opt/checkout/cli/__main__.py", None, "python -m fleetlight.cli"),
    ],
)
def test_the_program_is_named_so_that_it_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, empty_place: object, argv: str, on_path: str | None, expected: str
) -> None:
    monkeypatch.setattr("sys.argv", [argv.format(cwd=empty_place)])
    monkeypatch.setattr("sys.executable", "python")
    monkeypatch.setattr("shutil.which", lambda _: on_path)
    assert program() == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_the_api_is_loaded_shows_no_traceback(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import os, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == "fleetlight.api.app":
            os.kill(os.getpid(), {int(number)})

sys.meta_path.insert(0, Interruption())
sys.argv = ["fleetlight", "up", "--data-dir", "data", "--port", "0", "--cells", "1", "--auth", "none"]
from fleetlight.cli.main import main
main()
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True, timeout=60)
    assert ended.returncode in (0, INTERRUPTED)
    assert "Traceback" not in ended.stderr
