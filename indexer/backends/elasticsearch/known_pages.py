"""Pages that were requested before, and are answered from memory once Elasticsearch has said that they still hold.

What a page costs Elasticsearch and us is mostly its documents: they are read, written as JSON, and taken apart. Which
documents it has, and which write each of them is from, Elasticsearch finds in its columns in a fifth of the time. A
document that is still from the same write (Elasticsearch, "Optimistic concurrency control") is what it was, so what is
remembered is never older than what the search for the page itself would find (docs/performance.md).
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from msgspec import Struct

from fleetlight.indexer.backends.base import FoundPage, FoundRow
from fleetlight.indexer.backends.elasticsearch.rows import Write

# A page of few rows costs little more than to find which they are.
_MIN_ROWS = 100
# If more of its rows are new, the page itself is less work than those.
_MAX_NEW = 0.25
# A caller that repeats a request does so more often.
_KEPT_S = 60.0
_MAX_NOTES = 4096
_MAX_BYTES = 64 * 1024 * 1024
# What a row takes besides its item: its write, and its entry in a dict.
_ROW_BYTES = 500


class PageSearch(Protocol):
    """The search for one page; raises IndexUnavailableError or IndexRequestError."""

    def page(self) -> FoundPage:
        """The page in the fastest way."""

    def writes(self) -> Sequence[Write]:
        """Which documents the page has, in its order."""

    def rows(self) -> Mapping[Write, FoundRow]:
        """The page, and the write that each row is from, in its order."""

    def rows_of(self, writes: Collection[Write]) -> Mapping[Write, FoundRow]:
        """The documents of `writes`, each as it is now: one that has changed is from another write."""


class _Known(Struct):
    """shown: what it was rendered with besides its documents. size: in bytes, about."""

    items: dict[Write, bytes]
    last: tuple[Any, ...] | None
    shown: object
    size: int
    used_at_s: float


class KnownPages:
    """The pages that were requested last; threads may share one.

    A page is remembered at its second request, so that pages which are requested once cost nothing.
    """

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, _Known] = OrderedDict()
        self._size = 0
        # When pages were requested that are not remembered, by their hashes: keys may be large.
        self._asked_at_s: OrderedDict[int, float] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, key: Hashable, shown: object, search: PageSearch) -> FoundPage:
        """The page that `search` finds now.

        key: all that the rows of the page and their rendering depend on, besides the documents and `shown`, which is
            compared by identity. Raises what `search` raises.
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
            # They have changed meanwhile, and what they are now may belong elsewhere.
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
