"""The entry point of the `fleetlight` command; it runs before any slow import."""

import resource
import signal
import sys
from contextlib import suppress
from types import FrameType

from fleetlight.cli.errors import INTERRUPTED
from fleetlight.cli.interpreter import look_for_garbage_seldom

# More than any fleet needs; the hard limit of a container may be a thousand times as high.
_ENOUGH_FILES = 2**20


def main() -> None:
    """Run the command line, then end the process.

    SIGTERM ends a command as Ctrl-C does, so that it saves its progress; servers install handlers of their own.
    """
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupt)
    look_for_garbage_seldom()
    allow_open_files()
    try:
        from fleetlight.cli.app import app  # noqa: PLC0415 -- Ctrl-C while this is imported is no reason for a traceback

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        # Python takes its handlers away before the process ends, and an alarm without one kills it.
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt each second until a command handles it: Python drops what is raised in a finalizer."""
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    if number != signal.SIGALRM or sys.exception() is None:
        raise KeyboardInterrupt


def go_on_after_interrupt() -> None:
    """For a command that handled KeyboardInterrupt, and still has work to do."""
    if signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


def allow_open_files() -> None:
    """Raise the limit of open files: a shell's default of 1,024 is used up by fewer than a hundred cells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # Some systems allow less than their hard limit says.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
