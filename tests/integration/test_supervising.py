"""A parent and its children, as processes: who starts, who ends, and in which order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(60), pytest.mark.night]


class Supervised:
    """The processes of a story of tests.support.fleets.supervised. folder: also for what they keep while they run."""

    def __init__(self, folder: Path, story: str) -> None:
        self._output, self._log = folder / "output", folder / "log"
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self.parent = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fleets.supervised", story],
                stdout=output,
                stderr=log,
                env=os.environ | {"TMPDIR": str(folder)},
                process_group=0,
            )

    @property
    def said(self) -> Sequence[str]:
        return self._output.read_text().splitlines()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ids(self, name: str) -> Sequence[int]:
        """Of the processes that had this name, the newest last."""
        return [int(line.split()[2]) for line in self.said if line.startswith(f"{name} begins ")]

    def wait_for(self, name: str, count: int = 1) -> int:
        """The id of the `count`th process of this name."""
        wait_until(lambda: len(self.ids(name)) >= count, 30)
        return self.ids(name)[count - 1]

    def events(self) -> Sequence[str]:
        """What was said, without ids."""
        return [" ".join(line.split()[:2]) for line in self.said]


@contextmanager
def supervised(folder: Path, story: str) -> Iterator[Supervised]:
    command = Supervised(folder, story)
    try:
        yield command
    finally:
        command.parent.kill()
        command.parent.wait(10)


def is_running(process: int) -> bool:
    try:
        # One that has ended and was not asked for is there as a zombie.
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


IN_ORDER = ["first begins", "ready", "second begins", "first ends", "second ends", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_children_start_and_end_in_order_also_when_all_get_the_signal(tmp_path: Path, number: signal.Signals) -> None:
    with supervised(tmp_path, "waits") as command:
        command.wait_for("second")
        if number is signal.SIGINT:
            # As a terminal sends Ctrl-C.
            os.killpg(command.parent.pid, number)
        else:
            command.parent.send_signal(number)
        assert command.parent.wait(30) == 0
        assert command.events() == IN_ORDER
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_parent_forks_without_threads(tmp_path: Path) -> None:
    with supervised(tmp_path, "waits") as command:
        command.wait_for("second")
        assert len(os.listdir(f"/proc/{command.parent.pid}/task")) == 1


def test_child_that_is_killed_is_started_again_and_named_in_the_log(tmp_path: Path) -> None:
    with supervised(tmp_path, "waits") as command:
        other = command.wait_for("second")
        for count in (1, 2):
            os.kill(command.wait_for("first", count), signal.SIGKILL)
        command.wait_for("first", 3)
        assert command.ids("second") == [other]
        assert command.said.count("ready") == 1
        for wait_s in (0.1, 0.2):
            assert (
                f'"event": "process.ended", "name": "first", "reason": "SIGKILL", "again_in_s": {wait_s}' in command.log
            )
        command.parent.terminate()
        assert command.parent.wait(30) == 0


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, "hangs") as command:
        children = [command.wait_for("first"), command.wait_for("second")]
        command.parent.kill()
        wait_until(lambda: not any(map(is_running, children)), 10)
        wait_until(lambda: not [path for path in tmp_path.iterdir() if path.is_dir()], 10)


@pytest.mark.parametrize(
    ("story", "exit_code", "words"),
    [("fails", 2, "no such thing"), ("errs", 1, "the process second failed; the log says why")],
)
def test_child_that_fails_ends_the_command_with_its_words(
    tmp_path: Path, story: str, exit_code: int, words: str
) -> None:
    with supervised(tmp_path, story) as command:
        assert command.parent.wait(30) == exit_code
        assert command.events() == ["first begins", "ready", "first ends"]
        assert words in command.log.splitlines()[-1]
        assert ("RuntimeError: a mistake" in command.log) == (story == "errs")


def test_second_signal_kills_what_does_not_end(tmp_path: Path) -> None:
    with supervised(tmp_path, "hangs") as command:
        command.wait_for("second")
        command.parent.terminate()
        wait_until(lambda: "first ends" in command.said, 10)
        command.parent.terminate()
        assert command.parent.wait(10) == 0


def test_child_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, "waits") as command:
        hanging, other = command.wait_for("first"), command.wait_for("second")
        os.kill(hanging, signal.SIGSTOP)
        command.wait_for("first", 2)
        assert not is_running(hanging)
        assert '"event": "process.killed", "name": "first", "reason": "it gives no sign of life"' in command.log
        assert command.ids("second") == [other]
        command.parent.terminate()
        assert command.parent.wait(30) == 0
        assert command.events()[-3:] == ["first ends", "second ends", "stopped"]


def test_child_whose_work_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    with supervised(tmp_path, "stalls") as command:
        command.wait_for("second", 2)
        assert len(command.ids("first")) == 1
        command.parent.terminate()
        assert command.parent.wait(30) == 0


def test_processes_that_are_halted_together_are_not_silent(tmp_path: Path) -> None:
    with supervised(tmp_path, "waits") as command:
        processes = [command.parent.pid, command.wait_for("first"), command.wait_for("second")]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        # The halt itself, as of a suspended machine: longer than a child that is silent alone would live.
        time.sleep(1.5)
        for process in processes:
            os.kill(process, signal.SIGCONT)
        os.kill(processes[2], signal.SIGKILL)
        command.wait_for("second", 2)
        assert command.ids("first") == [processes[1]]
        assert "process.killed" not in command.log


@pytest.mark.parametrize("hangs", [False, True])
def test_child_that_does_not_end_in_time_is_killed(tmp_path: Path, hangs: bool) -> None:
    with supervised(tmp_path, "is-late") as command:
        late = command.wait_for("second")
        if hangs:
            os.kill(late, signal.SIGSTOP)
        command.parent.terminate()
        assert command.parent.wait(30) == 0
        assert not is_running(late)
        assert command.events()[-2:] == ["first ends", "stopped"]
        assert "process.killed" in command.log
