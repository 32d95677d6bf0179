"""What the API sets in its process before it serves."""

import gc

# A list makes some thousand objects that live as long as its request, and none of them in a cycle.
_YOUNG_OBJECTS = 50_000


def keep_collector_out_of_the_way() -> None:
    """Look for garbage seldom, and never in what was there before the first request.

    Otherwise the collector walks through all modules again and again: half of the processor's time of a list.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
