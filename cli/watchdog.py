"""Reports signs of life to systemd, for units with WatchdogSec= (sd_notify(3), sd_watchdog_enabled(3)).

A process that hangs cannot end itself, but systemd can restart it. A process counts as alive if its /healthz says so.
"""

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from fleetlight.indexer.stream.liveness import Probes
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_TIMES_PER_LIMIT = 3
"""So that one sign may get lost or come late."""


def wants_signs(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether systemd expects signs of life from this process or its parent."""
    asked = environment.get("WATCHDOG_PID")
    is_ours = asked is None or int(asked) in {os.getpid(), os.getppid()}
    return is_ours and bool(environment.get("NOTIFY_SOCKET") and environment.get("WATCHDOG_USEC"))


@contextmanager
def watched(probes: Probes, environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Report signs of life during the block while `probes` are healthy, if systemd expects them."""
    if not wants_signs(environment):
        yield
        return
    stop = threading.Event()
    address = environment["NOTIFY_SOCKET"]
    interval_s = int(environment["WATCHDOG_USEC"]) / MICROSECONDS_PER_SECOND / _TIMES_PER_LIMIT
    # A daemon thread, since a probe may hang and must not keep the process from ending.
    threading.Thread(target=_give_signs, args=(probes, address, interval_s, stop), name="watchdog", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _give_signs(probes: Probes, address: str, interval_s: float, stop: threading.Event) -> None:
    # "@" stands for a zero byte, with which the name of a socket without a file begins.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        while True:
            if probes.healthz().is_well:
                with suppress(OSError):  # systemd may be down for a moment, for example during its upgrade
                    sender.sendto(b"WATCHDOG=1", name)
            if stop.wait(interval_s):
                return
