"""Admission of the work of one request: a page, a count or a list of items, and its queries to cells.

The code that serves a request passes its admission to the listers. Programs that serve no requests pass none, and have
no limit.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol


class Slot(Protocol):
    """The slot that a page holds while the process makes it."""

    async def ask_cells(self) -> None:
        """Wait until the page may ask cells, and exchange its slot for one of the pages that ask cells.

        Listers call it before they ask cells; a second call returns at once. Raises the errors of `Admission.page`.
        """


class Admission(Protocol):
    """The limits that the pages of one request wait for."""

    def page(self, *, is_small: bool = False) -> AbstractAsyncContextManager[Slot]:
        """Wait until the caller may make a page in the block. A page inside of another one shares its slot.

        is_small: the page needs a slot only if it asks cells. Raises an error of the face that serves the request.
        """

    def handing_over(self, size: int) -> AbstractContextManager[None]:
        """Count `size` bytes of an answer as kept in memory while the caller reads them in the block."""


@dataclass(frozen=True, slots=True)
class OneItem:
    """The admission of pages that a request makes to find one item: they do not wait behind large pages."""

    admission: Admission

    def page(self, *, is_small: bool = True) -> AbstractAsyncContextManager[Slot]:
        """See Admission."""
        del is_small
        return self.admission.page(is_small=True)

    def handing_over(self, size: int) -> AbstractContextManager[None]:
        """See Admission."""
        return self.admission.handing_over(size)


class _Unlimited:
    @asynccontextmanager
    async def page(self, *, is_small: bool = False) -> AsyncIterator[Slot]:
        del is_small
        yield self

    async def ask_cells(self) -> None:
        """Return at once: cells may be asked without limit."""

    @contextmanager
    def handing_over(self, size: int) -> Iterator[None]:
        del size
        yield


NO_LIMIT: Admission = _Unlimited()
