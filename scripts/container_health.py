"""Health check of a container: asks /healthz, and ends a process that hangs, which the restart policy starts again.

Docker itself only shows that a container is unhealthy. What is asked says that it is stuck when work has not got done
for as long as its settings allow; what says nothing at all within ANSWER_TIMEOUT_S hangs.

    FLEETLIGHT_MONITORING_PORT=9100 python health.py
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

ANSWER_TIMEOUT_S = 20.0
"""The check of docker-compose.yml has to wait for longer."""
_INIT = 1
_PROC = Path("/proc")


def is_well(url: str, timeout_s: float = ANSWER_TIMEOUT_S) -> bool | None:
    """What the process says of itself; None while it cannot be asked yet."""
    try:
        with urlopen(url, timeout=timeout_s):  # noqa: S310 -- of this container
            return True
    except HTTPError:
        return False
    except TimeoutError:
        return False
    except URLError as error:
        return False if isinstance(error.reason, TimeoutError) else None


def processes_of_fleetlight(proc: Path = _PROC) -> Iterator[int]:
    """Those that the init of the container has started."""
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if parent == _INIT and any(word.endswith(b"/fleetlight") for word in words):
            yield int(folder.name)


def main(url: str) -> int:
    answer = is_well(url)
    if answer is False:
        for process in processes_of_fleetlight():
            os.kill(process, signal.SIGKILL)
    return 0 if answer else 1


if __name__ == "__main__":
    sys.exit(main(f"http://127.0.0.1:{os.environ['FLEETLIGHT_MONITORING_PORT']}/healthz"))
