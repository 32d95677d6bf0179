"""Shows the progress of long work for each cell: bars on a terminal, otherwise a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock

from fleetlight.cli.output import print_notice, progress_bar

_LINE_INTERVAL_S = 10.0

Show = Callable[[int], None]


@contextmanager
def shown_progress(what: str) -> Iterator[Callable[[str, int | None], Show]]:
    """Yield a function (name, expected) that returns a callback, to be called with the number done so far.

    what: a plural noun. expected: the expected number, which may be exceeded; None if unknown.
    """
    with progress_bar() as bar:

        def start_bar(name: str, expected: int | None) -> Show:
            task = bar.add_task(name, total=expected)
            return lambda done: bar.update(
                task, completed=done, total=None if expected is None else max(expected, done)
            )

        def start_lines(name: str, expected: int | None) -> Show:
            lock, began_s = Lock(), time.monotonic()
            due_s = began_s + _LINE_INTERVAL_S

            def show(done: int) -> None:
                nonlocal due_s
                with lock:
                    now_s = time.monotonic()
                    if now_s >= due_s:
                        of_all = "" if expected is None else f" of {max(expected, done)}"
                        print_notice(f"{name}: {done}{of_all} {what}{_pace(done, expected, now_s - began_s)}")
                        due_s = now_s + _LINE_INTERVAL_S

            return show

        yield start_lines if bar.disable else start_bar


def _pace(done: int, expected: int | None, took_s: float) -> str:
    """The speed since the beginning, and the time that the rest will take at that speed."""
    if not done or took_s <= 0:
        return ""
    rate = done / took_s
    missing = 0 if expected is None else expected - done
    left = f", {timedelta(seconds=round(missing / rate))} left" if missing > 0 else ""
    return f", {rate:,.0f} a second{left}"
