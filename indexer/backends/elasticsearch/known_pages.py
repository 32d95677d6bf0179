"""Answers repeated requests for a page from memory, once Elasticsearch has confirmed that the page still holds.

Most of the cost of a page is its documents, which are read, written as JSON and parsed. Elasticsearch finds in its
columns, in a fifth of that time, which documents a page has, and which write each is from. A document from the same
write is unchanged (Elasticsearch, "Optimistic concurrency control"), so the remembered page is never older than the
result of a new search (docs/performance.md).
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from msgspec import Struct

from fleetlight.indexer.backends.base import FoundPage, FoundRow
from fleetlight.indexer.backends.elasticsearch.rows import Write

# Below this a page costs little more than finding out which rows it has.
_MIN_ROWS = 100
# If more of its rows are new, searching for the whole page is less work.
_MAX_NEW = 0.25
# A caller that repeats a request usually does so within this time.
_KEPT_S = 60.0
_MAX_NOTES = 4096
_MAX_BYTES = 64 * 1024 * 1024
# The memory of a row besides its item: its write, and its entry in a dict.
_ROW_BYTES = 500


class PageSearch(Protocol):
    """The search for one page. Every method raises IndexUnavailableError or IndexRequestError."""

    def page(self) -> FoundPage:
        """The page, by the fastest way."""

    def writes(self) -> Sequence[Write]:
        """Which documents the page has, in order."""

    def rows(self) -> Mapping[Write, FoundRow]:
        """The rows of the page by the write that each is from, in order."""

    def rows_of(self, writes: Collection[Write]) -> Mapping[Write, FoundRow]:
        """The current documents of `writes`; one that has changed has another write."""


class _Known(Struct):
    """shown: what its items were rendered with besides documents. size: approximate, in bytes."""

    items: dict[Write, bytes]
    last: tuple[Any, ...] | None
    shown: object
    size: int
    used_at_s: float


class KnownPages:
    """The most recently requested pages; threads may share one.

    A page is remembered at its second request, so that pages requested only once cost nothing.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, _Known] = OrderedDict()
        self._size = 0
        # When other pages were requested, by the hashes of their keys, since keys may be large.
        self._asked_at_s: OrderedDict[int, float] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, key: Hashable, shown: object, search: PageSearch) -> FoundPage:
        """The page that `search` finds now.

        key: everything that the rows and their rendering depend on, except the documents and `shown`, which is compared
            by identity. Raises what `search` raises.
        """
        known = self._get(key)
        if known is None and not self._was_requested(key):
            page = search.page()
            if page.rows >= _MIN_ROWS:
                self._note(key)
            return page
        if known is None or known.shown is not shown:
            return self._search_anew(key, shown, search)
        writes = search.writes()
        if writes == list(known.items):
            return _page(known.items, known.last)
        new = [write for write in writes if write not in known.items]
        if writes and writes[-1] not in new and writes[-1] != next(reversed(known.items)):
            new.append(writes[-1])  # for its position
        if len(new) > _MAX_NEW * len(writes):
            return self._search_anew(key, shown, search)
        found = search.rows_of(new) if new else {}
        if not found.keys() >= set(new):
            # These rows have changed meanwhile, and may now belong elsewhere.
            return self._search_anew(key, shown, search)
        items = {write: found[write].item if write in found else known.items[write] for write in writes}
        last = found[writes[-1]].position if writes and writes[-1] in found else known.last
        return self._remember(key, shown, items, last)

    def _search_anew(self, key: Hashable, shown: object, search: PageSearch) -> FoundPage:
        rows = search.rows()
        items = {write: row.item for write, row in rows.items()}
        return self._remember(key, shown, items, rows[next(reversed(items))].position if items else None)

    def _get(self, key: Hashable) -> _Known | None:
        with self._guard:
            self._forget_old()
            known = self._pages.get(key)
            if known is not None:
                known.used_at_s = monotonic()
                self._pages.move_to_end(key)
            return known

    def _was_requested(self, key: Hashable) -> bool:
        with self._guard:
            asked_at_s = self._asked_at_s.get(hash(key))
            return asked_at_s is not None and asked_at_s >= monotonic() - _KEPT_S

    def _note(self, key: Hashable) -> None:
        with self._guard:
            self._asked_at_s[hash(key)] = monotonic()
            self._asked_at_s.move_to_end(hash(key))
            if len(self._asked_at_s) > _MAX_NOTES:
                self._asked_at_s.popitem(last=False)

    def _remember(
        self, key: Hashable, shown: object, items: dict[Write, bytes], last: tuple[Any, ...] | None
    ) -> FoundPage:
        size = sum(map(len, items.values())) + _ROW_BYTES * len(items)
        with self._guard:
            self._asked_at_s.pop(hash(key), None)
            before = self._pages.pop(key, None)
            self._size += size - (0 if before is None else before.size)
            self._pages[key] = _Known(items, last, shown, size, monotonic())
            self._forget_old()
        return _page(items, last)

    def _forget_old(self) -> None:
        oldest_s = monotonic() - _KEPT_S
        while self._pages:
            known = next(iter(self._pages.values()))
            if known.used_at_s >= oldest_s and self._size <= _MAX_BYTES:
                break
            self._pages.popitem(last=False)
            self._size -= known.size


def _page(items: dict[Write, bytes], last: tuple[Any, ...] | None) -> FoundPage:
    return FoundPage(b",".join(items.values()), len(items), last if items else None)
