"""Settings of the Python interpreter that our processes make at the start."""

import gc
import sys

# A list, or a page of rows on its way to the index, creates some thousand objects, which live as long as it and have
# no cycles.
_YOUNG_OBJECTS = 50_000
_TURN_OF_A_THREAD_S = 0.000_1


def keep_collector_out_of_the_way() -> None:
    """Run the garbage collector seldom, and never over objects that exist by now.

    Otherwise it walks through all modules again and again: this takes half of the processor time of a list, and a
    quarter of that of a sync.
    """
    gc.collect()
    gc.freeze()
    look_for_garbage_seldom()


def look_for_garbage_seldom() -> None:
    """Run the collector seldom, also during imports, where it would find nothing and take a tenth of a second."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def share_among_threads(count: int) -> None:
    """Let each of `count` threads, of which few work at any time, keep the interpreter for longer.

    Whenever a thread may ask for the interpreter, by default each 5 ms, the system wakes all that wait: a worker of a
    thousand cells spent two thirds of its time in the kernel. With fifty cells or fewer nothing changes.
    """
    sys.setswitchinterval(max(sys.getswitchinterval(), count * _TURN_OF_A_THREAD_S))
