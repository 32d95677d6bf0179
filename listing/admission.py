"""What a page, a count, or a list of items asks before any work is done for it: whether it may be made now.

The code that serves requests says what admits those of one request (`admit_by`), in the task that serves it. Where
nothing was said, as in programs that serve no requests, there is no limit.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Protocol


class Place(Protocol):
    """The place of one page in the making."""

    async def ask_cells(self) -> None:
        """Wait until cells may be asked for the page, and hold the other place no longer.

        To be called before cells are asked; once it has returned, it returns at once. Raises what `Admission` raises.
        """

    def leave(self) -> None:
        """The page is made, or has failed."""


class Admission(Protocol):
    """What admits the pages of one request."""

    async def enter(self, *, is_small: bool) -> Place:
        """Wait until a page may be made. is_small: it needs no place, unless cells are asked for it.

        Raises an error of the face that serves the request when it may not be made.
        """


class _NoLimit:
    async def ask_cells(self) -> None:
        """They may be asked."""

    def leave(self) -> None:
        """There was no place."""


_NO_LIMIT = _NoLimit()
_admission: ContextVar[Admission | None] = ContextVar("admission", default=None)
_held: ContextVar[Place | None] = ContextVar("held", default=None)
_is_small: ContextVar[bool] = ContextVar("is_small", default=False)


def admit_by(admission: Admission | None) -> None:
    """Let `admission` decide about what this task makes from now on, and the tasks that it starts; None: no limit."""
    _admission.set(admission)


def current_admission() -> Admission | None:
    """What decides about what this task makes."""
    return _admission.get()


@contextmanager
def for_one_item() -> Iterator[None]:
    """In this block a page is made for the sake of one item: it is not behind large ones."""
    before = _is_small.set(True)
    try:
        yield
    finally:
        _is_small.reset(before)


@asynccontextmanager
async def page_in_the_making() -> AsyncIterator[Place]:
    """Wait until a page may be made; it is made in the block. Raises what `Admission` raises.

    What is made for the sake of a page, in a block inside of this one, has its place.
    """
    admission, held = _admission.get(), _held.get()
    if held is not None or admission is None:
        yield held or _NO_LIMIT
        return
    place = await admission.enter(is_small=_is_small.get())
    within = _held.set(place)
    try:
        yield place
    finally:
        _held.reset(within)
        place.leave()
