"""How many files our processes may have open."""

import resource
from contextlib import suppress

# More than any fleet needs; the hard limit of a container may be a thousand times as much.
_ENOUGH = 2**20


def allow_open_files() -> None:
    """Let the process open as many files as it may: the 1,024 of a shell are used up by fewer than a hundred cells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # Some systems allow less than the hard limit says.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
