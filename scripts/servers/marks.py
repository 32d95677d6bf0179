"""Nothing that a run has started stays when the run ends, however it ends. Linux: environments are read from /proc.

What a run starts carries the run's mark in its environment, and so does all that is started by that in turn. When the
run ends it ends what carries its mark; where it is killed by SIGKILL, its guard does: a process that waits for nothing
but that. What a run inside of another one starts carries the marks of both.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.servers.folders import CHECKOUT

MARK_VARIABLE = "RUN_OF_FLEETLIGHT"
_SEPARATOR = ":"
_KILL_TIMEOUT_S = 10.0
_PAUSE_S = 0.05


@contextmanager
def marked_run() -> Iterator[str]:
    """What is started inside, with the environment of this process, ends with it; yields the mark."""
    outer = os.environ.get(MARK_VARIABLE)
    mark = secrets.token_hex(16)
    # In a session of its own, which no Ctrl-C reaches. It has ended when it has nothing to read any more.
    command = [sys.executable, "-m", "scripts.servers.marks", mark]
    guard = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, start_new_session=True)
    os.environ[MARK_VARIABLE] = mark if outer is None else f"{outer}{_SEPARATOR}{mark}"
    try:
        yield mark
    finally:
        if outer is None:
            del os.environ[MARK_VARIABLE]
        else:
            os.environ[MARK_VARIABLE] = outer
        end_all(mark)
        guard.communicate()


def end_all(mark: str) -> Collection[str]:
    """Kill every process of a run but this one; returns what they were. What does not end within seconds is left."""
    ended = dict[int, str]()
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    # More than once: what is not ended yet may have started something in between.
    while (left := _marked(mark)) and time.monotonic() < deadline:
        for pid, name in left.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            ended[pid] = name
        time.sleep(_PAUSE_S)
    return ended.values()


def _marked(mark: str) -> dict[int, str]:
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        # Of another user, ended, or ending: of the last, which its parent has not waited for, the environment is empty.
        with suppress(OSError):
            if mark in _marks((folder / "environ").read_bytes()):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


def _marks(environ: bytes) -> list[str]:
    """The marks in an environment, as /proc has it."""
    start = f"{MARK_VARIABLE}=".encode()
    entry = next((entry for entry in environ.split(b"\0") if entry.startswith(start)), start)
    return entry.removeprefix(start).decode(errors="replace").split(_SEPARATOR)


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
