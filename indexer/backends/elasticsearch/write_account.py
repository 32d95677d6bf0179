"""The account of one writer: the numbers that the store gave to its writes, saved for the process that checks the seal.

It is saved each half second while the writer works, so writes need not wait for it, except the first one after a pause:
that waits until the account says that the writer is at work. So a number that no account has yet can only belong to a
writer at work.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from threading import Condition, Thread
from typing import Any
from uuid import uuid4

import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch.numbering import (
    NumberedWrite,
    Routing,
    Written,
    WrittenIndex,
    numbering_of,
)
from fleetlight.indexer.errors import IndexerError

_INTERVAL_S = 0.5
# A writer that has not written for this long is not at work.
_WORKS_S = 2.0

Add = Callable[[str, Iterable[NumberedWrite]], None]
"""Adds documents that were written to a physical index to the account."""


class Account(msgspec.Struct):
    """The report of a writer. numbers: of its writes, by their scope (`Written.numbering`).

    reports: how many there were so far. oldest: how many there were when the oldest request under way began; equal to
    `reports` if none is. is_at_work: whether further requests may have begun since. unanswered: the number of requests
    without an answer, whose writes are unknown.
    """

    reports: int
    oldest: int
    unanswered: int
    is_at_work: bool
    numbers: dict[str, list[tuple[int, int]]]

    def got(self, shard: Written) -> Numbers:
        return Numbers(self.numbers.get(shard.numbering, ()))


class WriteAccount:
    """The account of this process's writer; threads may share it.

    save: saves a report under the id of this account. routing_of: returns the routing of a physical index. sealed:
    returns what is sealed, by physical index. All raise IndexerError.
    """

    def __init__(
        self,
        save: Callable[[str, Mapping[str, Any]], None],
        routing_of: Callable[[str], Routing],
        sealed: Callable[[], Mapping[str, WrittenIndex]],
    ) -> None:
        self.id = uuid4().hex
        self._save = save
        self._routing_of = cache(routing_of)
        self._load_sealed = sealed
        self._sealed: Mapping[str, WrittenIndex] = {}
        # By history and term.
        self._got: dict[tuple[str, int], Numbers] = {}
        self._changed = Condition()
        # The number of reports when each request began.
        self._under_way: dict[object, int] = {}
        self._reports = self._unanswered = 0
        self._is_at_work = self._is_closed = False
        self._written_at_s = 0.0
        self._thread: Thread | None = None

    @contextmanager
    def writing(self) -> Iterator[Add]:
        """Enclose each request that writes; yields the function that takes the result.

        Raises IndexerError before the request is sent.
        """
        request = object()
        with self._changed:
            if not self._is_at_work:
                self._save(self.id, self._report(is_at_work=True))
                self.learn()
                self._is_at_work = True
                self._start()
            self._under_way[request] = self._reports
            # If a copy is restored meanwhile, writes from before do not belong to its history.
            sealed = self._sealed
        has_answer = False
        try:
            yield partial(self._add, sealed)
            has_answer = True
        finally:
            with self._changed:
                del self._under_way[request]
                self._unanswered += not has_answer
                self._written_at_s = time.monotonic()

    def learn(self) -> None:
        """Load the current histories; forget numbers of other histories, and sealed ones. Raises IndexerError.

        Numbers of a later term are kept: a writer may learn of it before it is sealed.
        """
        sealed = self._load_sealed()
        floors = {shard.history: shard for index in sealed.values() for shard in index.shards.values()}
        with self._changed:
            self._sealed = sealed
            self._got = {
                (history, term): numbers.beyond(floors[history].count) if term == floors[history].term else numbers
                for (history, term), numbers in self._got.items()
                if history in floors and term >= floors[history].term
            }

    def now(self) -> Account:
        """The current account, for the process that checks the seal."""
        with self._changed:
            return msgspec.convert(self._report(is_at_work=bool(self._under_way)), Account)

    def report(self) -> None:
        """Save the account if the writer is at work; after a while without writes, and at the end, it no longer is."""
        with self._changed:
            if not self._is_at_work:
                return
            is_idle = self._is_closed or time.monotonic() - self._written_at_s > _WORKS_S
            if is_idle and not self._under_way:
                # A request that begins meanwhile waits for the lock, and then reports the writer as at work again.
                self._is_at_work = not self._saved(self._report(is_at_work=False)) and not self._is_closed
                return
            report = self._report(is_at_work=True)
        self._saved(report)
        with suppress(IndexerError):
            self.learn()

    def close(self) -> None:
        """Save the account a last time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _add(self, sealed: Mapping[str, WrittenIndex], index: str, written: Iterable[NumberedWrite]) -> None:
        if index not in sealed:
            self.learn()
            sealed = self._sealed
        # An index that is not sealed needs no account: it counts as a breach.
        if index in sealed:
            shard_of, shards = self._routing_of(index).shard_of, sealed[index].shards
            found: dict[tuple[str, int], list[int]] = {}
            for document_id, term, number in written:
                found.setdefault((shards[str(shard_of(document_id))].history, term), []).append(number)
            with self._changed:
                for numbering, numbers in found.items():
                    self._got.setdefault(numbering, Numbers()).add(numbers)

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
            # The index is down, and the account is about nothing else.
            return False
        return True

    def _report(self, *, is_at_work: bool) -> Mapping[str, Any]:
        self._reports += 1
        numbers = {numbering_of(*numbering): list(numbers.ranges) for numbering, numbers in self._got.items()}
        oldest = min(self._under_way.values(), default=self._reports)
        return {
            "reports": self._reports,
            "oldest": oldest,
            "unanswered": self._unanswered,
            "is_at_work": is_at_work,
            "numbers": numbers,
        }
