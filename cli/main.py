"""Where the `fleetlight` command begins: before anything is imported that takes a moment."""

import signal
import sys
from types import FrameType

from fleetlight.cli.errors import INTERRUPTED
from fleetlight.cli.interpreter import look_for_garbage_seldom
from fleetlight.cli.open_files import allow_open_files


def main() -> None:
    """Run the command line; ends the process.

    SIGTERM ends a command as Ctrl-C does, so that it saves what it has done; processes that serve end in their own way.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    look_for_garbage_seldom()
    allow_open_files()
    try:
        from fleetlight.cli.app import app  # noqa: PLC0415 -- Ctrl-C while this is imported is no reason for a traceback

        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
