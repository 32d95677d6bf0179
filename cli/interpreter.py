"""What our processes set before they begin to work."""

import gc
import sys

# A list, and a page of rows on its way to the index, make some thousand objects that live as long as they do, and none
# of them in a cycle.
_YOUNG_OBJECTS = 50_000
_TURN_OF_A_THREAD_S = 0.000_1


def keep_collector_out_of_the_way() -> None:
    """Look for garbage seldom, and never in what is there by now.

    Otherwise the collector walks through all modules again and again: half of the processor's time of a list, and a
    quarter of that of a sync.
    """
    gc.collect()
    gc.freeze()
    look_for_garbage_seldom()


def look_for_garbage_seldom() -> None:
    """For the start as well: what is imported stays, and to look for garbage in it takes a tenth of a second."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


def share_among_threads(count: int) -> None:
    """Let each of `count` threads, of which few work at any time, keep the interpreter for longer.

    All that wait for it are woken each time that they may ask for it, by default each 5 ms: a worker of a thousand
    cells spent two thirds of its time in the kernel. With fifty cells or fewer it stays as it is.
    """
    sys.setswitchinterval(max(sys.getswitchinterval(), count * _TURN_OF_A_THREAD_S))
