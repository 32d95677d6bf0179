"""`fleetlight` in processes that are forked from one which has imported it: to start Python takes one to two seconds.

Whether the command starts as users start it is for those tests that run it by its name.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fleetlight.cli import __file__ as package

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [f"fleetlight.cli.processes.{name}" for name in ("up", "api", "agent", "processes")] + ["fleetlight.api.app"]
)


class Command:
    """A process of `fleetlight`, as `subprocess.Popen` has them.

    log: what it writes is added to this file. environment: all variables; those of the tests, if it is not said.
    """

    def __init__(self, *arguments: str, log: Path, environment: Mapping[str, str] = os.environ) -> None:
        log.touch()
        self._process = _FORKS.Process(target=_run, args=(arguments, log, dict(environment)))
        self._process.start()
        self._arguments = arguments

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(arguments: tuple[str, ...], log: Path, environment: dict[str, str]) -> None:
    """What the process does, in which nothing is left of the one that it was forked from."""
    from fleetlight.cli.main import main  # noqa: PLC0415 -- it is the child that runs it

    with log.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.argv = [str(Path(package).with_name("__main__.py")), *arguments]
    main()
