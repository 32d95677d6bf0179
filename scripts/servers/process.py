"""Start, watch and stop one server process that outlives us. Linux: processes are told apart through /proc."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.servers.errors import ServerError, StartError
from scripts.servers.marks import MARK_VARIABLE

UNPRIVILEGED_USER = "nobody"
"""The user of the servers when we are root: Elasticsearch and PostgreSQL refuse to run as root."""

_TAIL_LINES = 40
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Process:
    """The first process of a session of its own.

    started_ticks: when it started, in clock ticks since boot; a process id that was given out again differs in it.
    """

    pid: int
    started_ticks: int

    def is_alive(self) -> bool:
        return _started_ticks(self.pid) == self.started_ticks


def free_port() -> int:
    """A TCP port of the loopback address that no process listens on right now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def hand_over(folder: Path) -> None:
    """Make the user of the servers the owner of `folder` and of all below it."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, user=UNPRIVILEGED_USER)


def run(server: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, timeout_s: float) -> None:
    """Run `command` to its end as the servers' user. Raises StartError with its output if it fails."""
    output = folder / "setup.log"
    with output.open("wb") as log:
        child = _popen(command, environment, folder, log.fileno())
    try:
        status = child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        raise StartError(server, f"{command[0]} took longer than {timeout_s:.0f} s", tail(output)) from None
    if status != 0:
        raise StartError(server, f"{command[0]} ended with status {status}", tail(output))


def spawn(
    server: str, command: Sequence[str], environment: Mapping[str, str], folder: Path, *, as_root: bool = False
) -> Process:
    """Start a server whose output goes to `folder`/output.log and which goes on when we end.

    as_root: whether it keeps the rights that we have.
    """
    with (folder / "output.log").open("wb") as log:
        child = _popen(command, environment, folder, log.fileno(), as_root=as_root)
    # The server outlives this script, so it is not waited for: without this, Popen warns about it when collected.
    child.returncode = 0
    started_ticks = _started_ticks(child.pid)
    if started_ticks is None:
        raise StartError(server, "it ended before it was ready", tail(folder / "output.log"))
    return Process(child.pid, started_ticks)


def wait_until_ready(
    server: str, process: Process, is_ready: Callable[[], bool], folder: Path, timeout_s: float
) -> None:
    """Raises StartError when the process has ended, or has not become ready within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not is_ready():
        if not process.is_alive():
            raise StartError(server, "it ended before it was ready", tail(folder / "output.log"))
        if time.monotonic() > deadline:
            raise StartError(server, f"it was not ready after {timeout_s:.0f} s", tail(folder / "output.log"))
        time.sleep(_POLL_S)


def stop(server: str, process: Process, how: signal.Signals, timeout_s: float = 20) -> None:
    """Ask the whole session to end with the signal `how`; kill what is left after `timeout_s`."""
    for attempt, deadline_s in ((how, timeout_s), (signal.SIGKILL, 5.0)):
        if not process.is_alive():
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, attempt)
        deadline = time.monotonic() + deadline_s
        while process.is_alive() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    if process.is_alive():
        raise ServerError(server, f"process {process.pid} does not end")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


def _popen(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, output: int, *, as_root: bool = False
) -> subprocess.Popen[bytes]:
    """Start `command` in `folder`, in a session of its own; as the unprivileged user if we are root, not `as_root`."""
    account = pwd.getpwnam(UNPRIVILEGED_USER) if os.geteuid() == 0 and not as_root else None
    return subprocess.Popen(
        command,
        env={**_inherited(), "LANG": "C.UTF-8", "HOME": str(folder), **environment},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=[] if account else None,
    )


def _inherited() -> dict[str, str]:
    """What servers have of our environment."""
    mark = os.environ.get(MARK_VARIABLE)
    return {"PATH": os.environ.get("PATH", os.defpath), **({MARK_VARIABLE: mark} if mark else {})}


def _started_ticks(pid: int) -> int | None:
    """When the process started, or None if there is none (a zombie has ended)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the name, in parentheses, may hold anything; state is field 3 and starttime field 22.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
