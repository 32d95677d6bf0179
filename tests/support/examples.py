"""How many examples Hypothesis tries of a property, and which."""

import os

from hypothesis import settings

NIGHT_VARIABLE = "FLEETLIGHT_TEST_NIGHT"
"""When set to 1, every property is tried with more examples (`scripts/test --night`)."""

# Of a property whose test does not say how many.
_USUAL = 100


def load_profile() -> None:
    """Deadlines measure the machine, not the code, so there are none.

    By day CI draws the same examples every time, so that a change is not red for what it did not touch. By night the
    examples are new ones, four times as many; a failure prints what repeats it.
    """
    settings.register_profile("dev", deadline=None)
    settings.register_profile("day", deadline=None, derandomize=True, print_blob=True)
    settings.register_profile("night", deadline=None, max_examples=4 * _USUAL, derandomize=False, print_blob=True)
    if os.environ.get(NIGHT_VARIABLE) == "1":
        settings.load_profile("night")
    else:
        settings.load_profile("day" if os.environ.get("CI") else "dev")


def examples(by_day: int) -> int:
    """How many of a property in this run, of which there are `by_day` by day."""
    return by_day * settings().max_examples // _USUAL
