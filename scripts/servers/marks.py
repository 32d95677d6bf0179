"""Nothing that a run has started stays when the run ends, however it ends. Linux: environments are read from /proc.

What a run starts carries the run's mark in its environment, and so does all that is started by that in turn. Whoever
ends the run ends what carries its mark; and where the run is killed by SIGKILL, its guard does: a process that waits
for nothing but that.
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
_PATIENCE_S = 10.0
_PAUSE_S = 0.05


@contextmanager
def marked_run() -> Iterator[str]:
    """What is started inside, with the environment of this process, ends with it; yields the mark.

    A run inside of another one is part of that.
    """
    outer = os.environ.get(MARK_VARIABLE)
    if outer is not None:
        yield outer
        return
    mark = secrets.token_hex(16)
    # In a session of its own, which no Ctrl-C reaches. It has ended when it has nothing to read any more.
    command = [sys.executable, "-m", "scripts.servers.marks", mark]
    guard = subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, start_new_session=True)
    os.environ[MARK_VARIABLE] = mark
    try:
        yield mark
    finally:
        del os.environ[MARK_VARIABLE]
        end_all(mark)
        guard.communicate()


def end_all(mark: str) -> Collection[str]:
    """Kill every process of a run but this one; returns what they were. What does not end within seconds is left."""
    ended = dict[int, str]()
    deadline = time.monotonic() + _PATIENCE_S
    # More than once: what is not ended yet may have started something in between.
    while (left := _marked(mark)) and time.monotonic() < deadline:
        for pid, name in left.items():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            ended[pid] = name
        time.sleep(_PAUSE_S)
    return ended.values()


def _marked(mark: str) -> dict[int, str]:
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        # Of another user, ended, or ending: of the last, which nobody has waited for yet, the environment is empty.
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
