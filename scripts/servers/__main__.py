"""Command line of `scripts/services`."""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from scripts.servers import service
from scripts.servers.base import Server
from scripts.servers.errors import ServerError
from scripts.servers.folders import state_folder
from scripts.servers.marks import marked_run
from scripts.servers.service import SERVERS, WHEN_NAMED, FoundServer

_DESCRIPTION = """\
Real servers for tests and development. A server is looked for at the URL in its environment variable, then in Docker
(the services of docker-compose.yml), then in local packages. Those of this checkout use free ports and data folders of
their own. OpenSearch, and the servers called …-secured, start only when they are named. The latter speak TLS and ask
for an account, the one in their URL; the certificate of their authority is {folder}/NAME/ca.crt.
"""

# To tidy up, when it is asked to end.
_TIDY_UP_TIMEOUT_S = 60


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words[words.index("--") + 1 :] if "--" in words else []
    parser = _parser()
    options = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    known = SERVERS | WHEN_NAMED
    unknown = [name for name in options.servers if name not in known]
    if unknown:
        parser.error(f"there is no server {unknown[0]!r}; there are {', '.join(known)}")
    if (options.action == "run") != bool(command):
        parser.error("`run`, and nothing else, takes a command, after `--`")
    servers = [known[name] for name in dict.fromkeys(options.servers or SERVERS)]
    # So that a terminated run still stops what it started.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    match options.action:
        case "start":
            return _start(servers)
        case "stop":
            return _stop(servers)
        case "status":
            return _status(servers)
        case "env":
            return _print_environment(servers)
        case _:
            with marked_run():
                return _run(servers, command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/services",
        description=_DESCRIPTION.format(folder=state_folder()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for name, text in (
        ("start", "start those that are not running, and wait until they answer"),
        ("stop", "stop those that were started here and remove their data"),
        ("status", "say where each one is; ends with status 1 if one is not running"),
        ("env", 'print the variables that tests read: eval "$(scripts/services env)"'),
        ("run", "start what is missing, run a command with the variables set, stop what was started"),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "servers",
            nargs="*",
            metavar="SERVER",
            help=f"{', '.join(SERVERS | WHEN_NAMED)} (unless named: the first six)",
        )
        if name == "run":
            action.usage = "scripts/services run [SERVER ...] -- COMMAND ..."
    return parser


def _start(servers: Iterable[Server]) -> int:
    return 1 if _start_all(servers, found=[]) else 0


def _start_all(servers: Iterable[Server], found: list[FoundServer]) -> list[ServerError]:
    """Start all at once, since each mostly waits; one that fails does not stop the others.

    found: gets each server as soon as it is there, so that the caller knows of them even if it is interrupted.
    Returns what failed, which has been printed.
    """
    failures: list[ServerError] = []

    def start(server: Server) -> None:
        begun = time.monotonic()
        try:
            result = service.start(server)
        except ServerError as error:
            failures.append(error)
        else:
            found.append(result)
            took = f", started in {time.monotonic() - begun:.0f} s" if result.is_new else ""
            print(f"{server.NAME}: {result.url} ({result.origin}{took})", file=sys.stderr, flush=True)

    with ThreadPoolExecutor() as pool:
        list(pool.map(start, servers))
    for failure in failures:
        print(failure, file=sys.stderr)
    return failures


def _stop(servers: Iterable[Server]) -> int:
    for server in servers:
        stopped = service.stop(server)
        print(f"{server.NAME}: {'stopped' if stopped else 'was not started here'}", file=sys.stderr)
    return 0


def _status(servers: Iterable[Server]) -> int:
    status = 0
    for server in servers:
        found = service.find(server)
        print(f"{server.NAME}: {f'{found.url} ({found.origin})' if found else 'not running'}")
        status = status if found else 1
    return status


def _print_environment(servers: Iterable[Server]) -> int:
    for found in filter(None, map(service.find, servers)):
        print(f"export {found.server.VARIABLE}={shlex.quote(found.url)}")
    return 0


def _run(servers: Iterable[Server], command: Sequence[str]) -> int:
    found: list[FoundServer] = []
    try:
        if _start_all(servers, found):
            return 1
        urls = {one.server.VARIABLE: one.url for one in found}
        # Without the path by which Python found us: the command is to import `fleetlight.…`, not the folders.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        child = subprocess.Popen(command, env=inherited | urls)
        try:
            return child.wait()
        except KeyboardInterrupt:
            # It has heard of Ctrl-C as we have, and needs its servers to tidy up.
            return _ended(child, 128 + signal.SIGINT)
        except SystemExit as end:
            for pid in _descendants(child.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)
            return _ended(child, int(end.code or 0))
    finally:
        for one in found:
            if one.is_new:
                service.stop(one.server)


def _ended(child: subprocess.Popen[bytes], status: int) -> int:
    """`status`, when what was asked to end has ended, or could have."""
    print("ending what was started here", file=sys.stderr, flush=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_TIDY_UP_TIMEOUT_S)
    return status


def _descendants(pid: int) -> list[int]:
    """The process and all below it that Ctrl-C in a terminal would reach too: of our own process group."""
    children = dict[int, list[int]]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # proc(5): the name, in parentheses, may hold anything; then state, parent and process group.
                _, parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == os.getpgrp():
                    children.setdefault(int(parent), []).append(int(folder.name))
    found = [pid]
    for known in found:
        found += children.get(known, [])
    return found


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
