"""Where `scripts/bench` begins: before anything is imported that takes a moment."""

import sys

from bench.ending import run_to_its_end


def _main() -> int:
    from bench.command import main  # noqa: PLC0415 -- Ctrl-C while this is imported is no reason for a traceback

    return main()


if __name__ == "__main__":
    sys.exit(run_to_its_end(_main))
