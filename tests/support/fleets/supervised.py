"""A command of some children that only say what happens to them: `python -m tests.support.fleets.supervised STORY`.

Each writes lines to standard output: `NAME begins PID`, and `NAME ends` after SIGTERM.
"""

import os
import signal
import sys
from functools import partial
from threading import Event

import typer
from prometheus_client import CollectorRegistry

from fleetlight.cli.endings import end_in_words
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.logging import LogSettings, configure_logging
from fleetlight.cli.processes import supervising
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.signals import signals_answered
from fleetlight.cli.processes.supervising import Child, ChildContext, supervise
from fleetlight.cli.settings import MonitoringSettings
from fleetlight.indexer.stream.liveness import ALIVE, Probe


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def wait(name: str, context: ChildContext) -> None:
    stop = Event()
    with (
        signals_answered(lambda _: stop.set(), [signal.SIGTERM]),
        context.answering(CollectorRegistry(), CellHeartbeats()),
    ):
        say(f"{name} begins {os.getpid()}")
        context.is_ready()
        stop.wait()
    say(f"{name} ends")


def stall(name: str, context: ChildContext) -> None:
    """Answers, and says of the first one that its work hangs."""
    stop = Event()
    with (
        signals_answered(lambda _: stop.set(), [signal.SIGTERM]),
        context.answering(CollectorRegistry(), _Stuck()),
    ):
        say(f"{name} begins {os.getpid()}")
        context.is_ready()
        stop.wait()
    say(f"{name} ends")


class _Stuck:
    def healthz(self) -> Probe:
        return Probe(False, {"status": "stuck"})

    def readyz(self) -> Probe:
        return ALIVE


def fail(error: Exception, _inside: ChildContext) -> None:
    raise error


def hang(name: str, context: ChildContext) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(f"{name} begins {os.getpid()}")
    context.is_ready()
    while True:
        signal.pause()


def main(story: str) -> None:
    first, second = (Child(name, partial(wait, name), answers_lists=True) for name in ("first", "second"))
    stages = {
        "waits": [[first], [second]],
        "fails": [[first], [Child("second", partial(fail, ConfigurationError("no such thing")))]],
        "errs": [[first], [Child("second", partial(fail, RuntimeError("a mistake")))]],
        "hangs": [[first], [Child("second", partial(hang, "second"))]],
        "is-late": [[first], [Child("second", partial(hang, "second"), ends_within_s=0.5)]],
        "stalls": [[first], [Child("second", partial(stall, "second"))]],
    }[story]
    supervising._SIGN_INTERVAL_S = 0.1
    configure_logging(LogSettings())
    try:
        supervise(stages, MonitoringSettings(), lambda: say("ready"))
    except CommandError as error:
        try:
            end_in_words(error)
        except typer.Exit as ending:
            sys.exit(ending.exit_code)
    say("stopped")


if __name__ == "__main__":
    main(sys.argv[1])
