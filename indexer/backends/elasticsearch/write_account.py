"""The account of one writer: which numbers the store gave to its writes, kept where the process that checks the seal
reads it.

It is saved each half second while the writer works, so no write waits for it but the first one after a pause: that one
waits until the account says that the writer is at work. So a number that nobody has accounted for yet may be one of a
writer at work, and of no other.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Condition, Thread
from typing import Any
from uuid import uuid4

import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch.numbering import Routing
from fleetlight.indexer.errors import IndexerError

_INTERVAL_S = 0.5
# A writer that has written nothing for so long is not at work.
_WORKS_S = 2.0
# What is sealed is left out of an account that has so many ranges; they come of several writers at once.
_MANY_RANGES = 100

Got = dict[str, dict[str, Numbers]]
"""Numbers by the uuid of a physical index, and shard."""

Floors = Mapping[str, Mapping[str, int]]
"""By the uuid of a physical index, and shard, the number below which all are sealed."""


class Account(msgspec.Struct):
    """What a writer says of itself.

    reports: how often it has done so. oldest: how often it had when the oldest request that is under way began; as
    `reports` where none is. is_at_work: whether other requests may have begun since. unanswered: how many requests had
    no answer, so that it is not known what they have written.
    """

    reports: int
    oldest: int
    unanswered: int
    is_at_work: bool
    numbers: dict[str, dict[str, list[tuple[int, int]]]]

    def got(self, index_uuid: str, shard: str) -> Numbers:
        return Numbers(self.numbers.get(index_uuid, {}).get(shard, ()))


class WriteAccount:
    """Threads may share one.

    save: keeps what it is given under the id of this account. routing_of: that of a physical index. floors: what is
    sealed. All raise IndexerError.
    """

    def __init__(
        self,
        save: Callable[[str, Mapping[str, Any]], None],
        routing_of: Callable[[str], Routing],
        floors: Callable[[], Floors],
    ) -> None:
        self.id = uuid4().hex
        self._save = save
        self._routing_of = cache(routing_of)
        self._floors = floors
        self._got: Got = {}
        self._changed = Condition()
        # By request, the number of reports when it began.
        self._under_way: dict[object, int] = {}
        self._reports = self._unanswered = 0
        self._is_at_work = self._is_closed = False
        self._written_at_s = 0.0
        self._thread: Thread | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around each request that writes, and the `add` of what came of it; raises IndexerError before it is sent."""
        request = object()
        with self._changed:
            if not self._is_at_work:
                self._save(self.id, self._report(is_at_work=True))
                self._is_at_work = True
                self._start()
            self._under_way[request] = self._reports
        has_answer = False
        try:
            yield
            has_answer = True
        finally:
            with self._changed:
                del self._under_way[request]
                self._unanswered += not has_answer
                self._written_at_s = time.monotonic()

    def add(self, index: str, written: Iterable[tuple[str, int]]) -> None:
        """Account for documents of a physical index, by id, with the number of each."""
        routing = self._routing_of(index)
        by_shard: dict[int, list[int]] = {}
        for document_id, number in written:
            by_shard.setdefault(routing.shard_of(document_id), []).append(number)
        with self._changed:
            shards = self._got.setdefault(routing.uuid, {})
            for shard, numbers in by_shard.items():
                shards.setdefault(str(shard), Numbers()).add(numbers)

    def look_again(self) -> None:
        """Another index may have taken the name of one."""
        self._routing_of.cache_clear()

    def now(self) -> Account:
        """As of now, for the process that checks the seal."""
        with self._changed:
            return msgspec.convert(self._report(is_at_work=bool(self._under_way)), Account)

    def report(self) -> None:
        """Save it; where nothing was written for a while, and at the end, as that of a writer that is not at work."""
        with self._changed:
            is_idle = self._is_closed or time.monotonic() - self._written_at_s > _WORKS_S
            if is_idle and not self._under_way:
                # A request that begins meanwhile waits, and then says that the writer is at work again.
                self._is_at_work = not self._saved(self._report(is_at_work=False)) and not self._is_closed
                return
            report = self._report(is_at_work=True)
        self._saved(report)
        self._forget_what_is_sealed()

    def close(self) -> None:
        """Save it a last time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._keep, name="index-account", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _keep(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._changed.wait_for(lambda: self._is_at_work or self._is_closed)
                self._changed.wait_for(lambda: self._is_closed, _INTERVAL_S)
            self.report()

    def _saved(self, report: Mapping[str, Any]) -> bool:
        try:
            self._save(self.id, report)
        except IndexerError:
            # The index is away, and with it all that the account is about.
            return False
        return True

    def _report(self, *, is_at_work: bool) -> Mapping[str, Any]:
        self._reports += 1
        numbers = {
            index: {shard: list(numbers.ranges) for shard, numbers in shards.items()}
            for index, shards in self._got.items()
        }
        oldest = min(self._under_way.values(), default=self._reports)
        return {
            "reports": self._reports,
            "oldest": oldest,
            "unanswered": self._unanswered,
            "is_at_work": is_at_work,
            "numbers": numbers,
        }

    def _forget_what_is_sealed(self) -> None:
        if sum(len(numbers.ranges) for shards in self._got.values() for numbers in shards.values()) < _MANY_RANGES:
            return
        try:
            floors = self._floors()
        except IndexerError:
            return
        with self._changed:
            self._got = {
                index: {shard: numbers.beyond(floors.get(index, {}).get(shard, 0)) for shard, numbers in shards.items()}
                for index, shards in self._got.items()
            }
