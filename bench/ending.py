"""How a run ends that is not let finish: with nothing of it left running, and saying so."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from scripts.servers.marks import end_all, marked_run

_MOMENT_S = 0.01


def run_to_its_end(run: Callable[[], int]) -> int:
    """What `run` returns. With SIGTERM or SIGINT (Ctrl-C) this process ends, with 128 and the number of the signal.

    Before that it tidies up, which takes some seconds where servers are away, unless there is a second signal.
    """
    stopped_by: signal.Signals | None = None
    with marked_run() as mark:

        def on_signal(number: int, _frame: FrameType | None) -> None:
            nonlocal stopped_by
            if stopped_by is not None:
                end_all(mark)
                os._exit(128 + number)
            stopped_by = signal.Signals(number)
            _say(f"{stopped_by.name}: ending what this run has started; once more ends it without tidying up")
            raise KeyboardInterrupt

        def on_lost(lost: Any) -> None:
            # It came in the middle of a finalizer, which nothing gets out of: then once more, a moment later.
            if lost.exc_type is KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, _MOMENT_S)
            else:
                sys.__unraisablehook__(lost)

        handlers = {signal.SIGTERM: on_signal, signal.SIGINT: on_signal, signal.SIGALRM: signal.default_int_handler}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        sys.unraisablehook = on_lost
        try:
            return run()
        except BaseException as error:
            # While it is tidied up something else may fail: what a fault had taken away stays away.
            if stopped_by is None:
                raise
            if not isinstance(error, KeyboardInterrupt):
                _say(f"while tidying up: {type(error).__name__}: {error}")
        finally:
            left = end_all(mark)
            sys.unraisablehook = sys.__unraisablehook__
            for number, handler in before.items():
                signal.signal(number, handler)
    _say(f"{stopped_by.name}: nothing of this run is left running{f'; ended {_listed(left)}' if left else ''}")
    # Not `return`: a thread that waits for a server which is not there any more would be waited for.
    os._exit(128 + stopped_by)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(set(names)))


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
