"""Admission of what one request makes: a page, a count, or a list of items, and the cells that are asked for it.

The code that serves a request passes its admission along with what the request wants. Programs that serve no requests
pass none: then there is no limit.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol


class Slot(Protocol):
    """What a page holds while it is made."""

    async def ask_cells(self) -> None:
        """Wait until cells may be asked for the page, and hold a slot among those pages instead.

        To be called before cells are asked; once it has returned, it returns at once. Raises what `Admission` raises.
        """


class Admission(Protocol):
    """What admits the pages of one request."""

    def page(self, *, is_small: bool = False) -> AbstractAsyncContextManager[Slot]:
        """Wait until a page may be made; it is made in the block. A page inside of another one shares its slot.

        is_small: it needs no slot, unless cells are asked for it. Raises an error of the face that serves the request.
        """

    def handing_over(self, size: int) -> AbstractContextManager[None]:
        """In the block the caller takes an answer of so many bytes, which are kept until then."""
        ...


@dataclass(frozen=True, slots=True)
class OneItem:
    """The admission of pages that a request makes for the sake of one item: they do not wait behind large ones."""

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
        """They may be asked."""

    @contextmanager
    def handing_over(self, size: int) -> Iterator[None]:
        del size
        yield


NO_LIMIT: Admission = _Unlimited()
