"""Where the `fleetlight` command begins: before anything is imported that takes a moment."""

import sys

_INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended


def main() -> None:
    """Run the command line; ends the process."""
    try:
        from cli.app import app  # noqa: PLC0415 -- Ctrl-C while this is imported is no reason for a traceback

        app()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
