"""The seal of the Elasticsearch indexes (fleetlight.indexer.backends.seal): a writer of ours accounts for each number
that a shard has given to a write.

A look is two small requests: what the shards have given out, and then the accounts. What is missing in them may be
under way: it is looked for again, up to the same numbers, until every writer that was at work has said that all it had
begun by then has ended. The seal held as of the moment of the first of these looks.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch.client import Client
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.numbering import WrittenIndex, numbered, written
from fleetlight.indexer.backends.elasticsearch.write_account import Account, WriteAccount
from fleetlight.indexer.backends.seal import HELD, SEAL, AreRight, Breach
from fleetlight.indexer.errors import IndexAbsentError, IndexerError, IndexUnavailableError
from fleetlight.resources.clock import Clock

T = TypeVar("T")

ACCOUNTS = "write accounts"
"""The kind of state that has the account of each writer, by its id."""

SEALED = "sealed"
"""The kind of state that has, by the name of each physical index, what of it is sealed."""

# More are not looked at one by one: the index is compared as a whole.
_MOST_LOOKED_AT = 2000
_MOST_NAMED = 10_000
# What is sealed is saved so often; a process that takes over begins with it.
_SAVE_INTERVAL_S = 5.0
# Reports that a writer of another process has to make: the next one may have been made before the look.
_REPORTS_TO_COME = 2
_FORGET_AFTER_S = 60.0
# A request that got no answer may be carried out so much later.
_LATE_S = 60.0


class KeepsState(Protocol):
    """The part of an IndexWriter that is needed; raises IndexUnavailableError."""

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None: ...
    def save_fact(self, kind: str, name: str, value: object) -> None: ...
    def load_state(self, kind: str) -> Mapping[str, Any]: ...
    def make_searchable(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Look:
    """What the shards had given out at one moment. at: microseconds. since_s: on the monotonic clock. until: of each
    writer that was at work then, the report by which all it had begun has ended.
    """

    at: int
    since_s: float
    given: Mapping[str, WrittenIndex]
    until: dict[str, int] = field(default_factory=dict)


class _UnmendedBreach(msgspec.Struct):
    """As state. uuids: see Breach."""

    reason: str
    uuids: frozenset[str] | None


Missing = dict[tuple[str, str], Numbers]
"""Numbers by physical index and shard."""


def sealed_of(index: WrittenIndex) -> Mapping[str, Any]:
    """The fact that all which an index has given out is sealed."""
    shards = {number: {"history": each.history, "count": each.count} for number, each in index.shards.items()}
    return {"uuid": index.uuid, "shards": shards}


def seal_new(client: Client, state: KeepsState, clock: Clock, *names: str) -> None:
    """Seal the indexes behind these names that nothing was ever written to."""
    sealed = load_sealed(state)
    new = {
        name: sealed_of(index)
        for name, index in written(client, *names).items()
        if index.is_new and (name not in sealed or sealed[name].uuid != index.uuid)
    }
    state.save_state(SEALED, new)
    if new and HELD not in state.load_state(SEAL):
        state.save_state(SEAL, {HELD: clock()})


def load_sealed(state: KeepsState) -> dict[str, WrittenIndex]:
    """What is sealed, by the names of physical indexes."""
    return _facts(state, SEALED, WrittenIndex)


def _facts(state: KeepsState, kind: str, fact_type: type[T]) -> dict[str, T]:
    """The facts of a kind, by name. What another program has written there is none."""
    facts: dict[str, T] = {}
    for name, fact in state.load_state(kind).items():
        with suppress(msgspec.ValidationError):
            facts[name] = msgspec.convert(fact, fact_type)
    return facts


class ElasticsearchSeal:
    """fleetlight.indexer.backends.seal.Seal. account: of the writer of this process."""

    def __init__(self, client: Client, names: Names, state: KeepsState, account: WriteAccount, clock: Clock) -> None:
        self._client = client
        self._names = names
        self._state = state
        self._account = account
        self._clock = clock
        self.held_at = 0
        self._sealed: dict[str, WrittenIndex] = {}
        self._look: _Look | None = None
        # Writes of which it was seen that they say what the cells say.
        self._right: Missing = {}
        self._mended: set[str] = set()
        # By writer: how many requests had no answer, and when it was seen that there was one more.
        self._unanswered: dict[str, tuple[int, float]] = {}
        self._is_loaded = False
        self._save_due_s = 0.0
        # When each account was last seen to be another one.
        self._seen: dict[str, tuple[int, float]] = {}

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        try:
            return self._check(are_right, tolerance_s)
        except IndexerError:
            self._look = None
            raise

    def _check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        if not self._is_loaded and (breach := self._load()):
            return breach
        # Before the accounts: what was given out by now they have, or it is under way.
        look = self._look or _Look(self._clock(), time.monotonic(), self._given())
        if self._reason(look.given):
            # A rebuild has put another one in place, or a writer has made one that was missing.
            self._sealed = load_sealed(self._state)
            if reason := self._reason(look.given):
                return self._breach(reason, None, look.given)
        accounts = self._load_accounts()
        missing = self._missing(look, accounts)
        if not missing:
            self._hold(look, accounts)
            return None
        if self._look is None:
            look.until.update(self._until(accounts))
            self._look = look
        may_be_ours = any(_may_be_of(accounts.get(writer), until) for writer, until in look.until.items())
        if may_be_ours and time.monotonic() - look.since_s <= tolerance_s:
            return None
        if _histories(self._given()) != _histories(look.given):
            # Another index is read by now, and what was given out there can be compared no more.
            self._look = None
            return None
        may_be_late = any(time.monotonic() - since_s <= _LATE_S for _, since_s in self._unanswered.values())
        return self._judge(look, missing, are_right if may_be_ours or may_be_late else None)

    def mend(self, breach: Breach) -> None:
        # With it those that were found before, and were never mended.
        self._mended.update(self._state.load_state(SEAL).keys() - {HELD})

    def _load(self) -> Breach | None:
        """What a process that checked it before has left, or this one: all breaches that are not mended, as one."""
        self._sealed = load_sealed(self._state)
        gone = self._sealed.keys() - written(self._client, *self._sealed).keys() if self._sealed else ()
        self._state.save_state(SEALED, dict.fromkeys(gone))
        facts = _facts(self._state, SEAL, _UnmendedBreach)
        found = {name: fact for name, fact in facts.items() if name not in self._mended}
        self._is_loaded = not found
        if not found:
            return None
        named = [fact.uuids for fact in found.values() if fact.uuids is not None]
        *_, (name, fact) = found.items()
        uuids: frozenset[str] | None = frozenset[str]().union(*named) if len(named) == len(found) else None
        return Breach(name, fact.reason, uuids, self._sealed)

    def _given(self) -> dict[str, WrittenIndex]:
        """Raises IndexAbsentError where one of our indexes is not there, or closed: it is known to be away then."""
        names = self._names
        given = written(self._client, names.read, names.write, names.items)
        if len(given) < len((names.write, names.items)):
            raise IndexAbsentError(f"not all of the indexes behind {names.write} and {names.items} are there")
        for name, index in given.items():
            # A server that starts has not all of its shards yet, and does not say so.
            sealed = self._sealed.get(name, index)
            if sealed.uuid == index.uuid and index.shards.keys() < sealed.shards.keys():
                raise IndexUnavailableError(f"not all shards of {name} are there")
        return given

    def _reason(self, given: Mapping[str, WrittenIndex]) -> str | None:
        """Why it is no question of numbers."""
        if len(given) > len((self._names.write, self._names.items)):
            return f"{', '.join(given)} are behind {self._names.read}, {self._names.write} and {self._names.items}"
        for name, index in given.items():
            sealed = self._sealed.get(name)
            if sealed is None or sealed.uuid != index.uuid:
                return f"the index {name} was made by another program, or anew"
            for number, shard in index.shards.items():
                before = sealed.shards.get(number)
                if before is None or before.history != shard.history or before.count > shard.count:
                    return f"the index {name} was restored"
        return None

    def _load_accounts(self) -> dict[str, Account]:
        accounts = _facts(self._state, ACCOUNTS, Account) | {self._account.id: self._account.now()}
        for writer, account in accounts.items():
            if account.unanswered > self._unanswered.get(writer, (0, 0.0))[0]:
                self._unanswered[writer] = (account.unanswered, time.monotonic())
        return accounts

    def _missing(self, look: _Look, accounts: Mapping[str, Account]) -> Missing:
        missing: Missing = {}
        for name, index in look.given.items():
            for number, shard in index.shards.items():
                got = self._right.get((name, number), Numbers())
                for account in accounts.values():
                    got = got.union(account.got(shard.history))
                if not_got := got.missing(self._sealed[name].shards[number].count, shard.count):
                    missing[name, number] = not_got
        return missing

    def _until(self, accounts: Mapping[str, Account]) -> Iterator[tuple[str, int]]:
        for writer, account in accounts.items():
            if account.is_at_work:
                to_come = 0 if writer == self._account.id else _REPORTS_TO_COME
                yield writer, account.reports + to_come

    def _judge(self, look: _Look, missing: Missing, are_right: AreRight | None) -> Breach | None:
        """Whose writes are missing.

        are_right: None where they are no writer's of ours. Else they are those of one that was killed, or got no
        answer, if all of them are there and say what the cells say.
        """
        count = sum(map(len, missing.values()))
        found = dict(self._numbered(missing)) if count <= _MOST_NAMED else {}
        is_all = sum(map(len, found.values())) == count
        if are_right and is_all and count <= _MOST_LOOKED_AT and are_right(_by_cell(found.values())):
            for place, numbers in missing.items():
                self._right[place] = self._right.get(place, Numbers()).union(numbers)
            return None
        uuids = frozenset(uuid for documents in found.values() for uuid, _ in documents)
        where = ", ".join(f"{len(numbers)} to shard {number} of {name}" for (name, number), numbers in missing.items())
        reason = f"another program has written to the index: {where}"
        return self._breach(reason, uuids if count <= _MOST_NAMED else None, look.given)

    def _numbered(self, missing: Missing) -> Iterator[tuple[tuple[str, str], list[tuple[str, str]]]]:
        self._state.make_searchable()
        for (name, number), numbers in missing.items():
            yield (name, number), numbered(self._client, name, number, numbers, _MOST_NAMED)

    def _breach(self, reason: str, uuids: frozenset[str] | None, given: Mapping[str, WrittenIndex]) -> Breach:
        breach = Breach(uuid4().hex, reason, uuids, given)
        self._state.save_state(SEAL, {breach.id: msgspec.to_builtins(_UnmendedBreach(reason, uuids))})
        # What comes after it is another one. Writers learn from it which histories there are.
        self._state.save_state(SEALED, {name: msgspec.to_builtins(index) for name, index in given.items()})
        self._account.learn()
        self._is_loaded = False
        self._look = None
        return breach

    def _hold(self, look: _Look, accounts: Mapping[str, Account]) -> None:
        """All that the shards had given out by that look is accounted for."""
        is_judged = bool(self._right)
        self._look = None
        self._right = {}
        # Of an index that a rebuild fills, or has replaced, the seal stays.
        self._sealed = {**self._sealed, **look.given}
        if self._mended:
            self._state.save_state(SEAL, {HELD: look.at, **dict.fromkeys(self._mended)})
        else:
            self._state.save_fact(SEAL, HELD, look.at)
        self.held_at = look.at
        self._mended.clear()
        # What was judged right has no account that would show it again.
        if is_judged or time.monotonic() >= self._save_due_s:
            self._state.save_state(SEALED, {name: msgspec.to_builtins(look.given[name]) for name in look.given})
            # With an index that a rebuild fills since.
            self._sealed = {**load_sealed(self._state), **self._sealed}
            self._forget_accounts(accounts)
            self._save_due_s = time.monotonic() + _SAVE_INTERVAL_S

    def _forget_accounts(self, accounts: Mapping[str, Account]) -> None:
        """Those of writers that have ended; one that has not, and was only stopped, saves its account again."""
        now_s = time.monotonic()
        self._seen = {
            writer: seen
            if (seen := self._seen.get(writer, (0, 0.0)))[0] == account.reports
            else (account.reports, now_s)
            for writer, account in accounts.items()
        }
        silent = [writer for writer, (_, since_s) in self._seen.items() if now_s - since_s > _FORGET_AFTER_S]
        forgotten = [writer for writer in silent if not self._has_more(accounts[writer])]
        self._state.save_state(ACCOUNTS, dict.fromkeys(forgotten))

    def _has_more(self, account: Account) -> bool:
        """Whether it accounts for more than what is sealed; of an index that is not there any more it does not."""
        return any(
            account.got(shard.history).beyond(shard.count).ranges
            for index in self._sealed.values()
            for shard in index.shards.values()
        )


def _may_be_of(account: Account | None, until: int) -> bool:
    """Whether writes that had begun by a look may still be under way, or not be accounted for yet."""
    return account is not None and account.is_at_work and not (account.reports >= until and account.oldest >= until)


def _histories(given: Mapping[str, WrittenIndex]) -> set[str]:
    return {shard.history for index in given.values() for shard in index.shards.values()}


def _by_cell(found: Iterable[list[tuple[str, str]]]) -> dict[str, list[str]]:
    by_cell: dict[str, list[str]] = {}
    for documents in found:
        for uuid, cell_uuid in documents:
            by_cell.setdefault(cell_uuid, []).append(uuid)
    return by_cell
