"""The seal of the Elasticsearch indexes (fleetlight.indexer.backends.seal). It holds if our writers account for each
number that a shard has given to a write, and the settings, mappings and aliases are as we make them.

A look takes three small requests: what indexes and shards have numbered, and then the accounts of the writers. A number
missing from the accounts may be of a write under way: further looks search for it until every writer that was at work
has reported the end of all it had begun. The seal then held at the moment of the first of these looks.

If a version has moved, the settings, mappings and aliases themselves are checked. A single change from one right state
to another does no harm, but between two changes the state may have been wrong.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.base import HORIZONS
from fleetlight.indexer.backends.elasticsearch.client import Client
from fleetlight.indexer.backends.elasticsearch.documents import NEVER_REMOVED, Kept
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.numbering import Versions, WrittenIndex, numbered, written
from fleetlight.indexer.backends.elasticsearch.shape import Deviations, deviating
from fleetlight.indexer.backends.elasticsearch.write_account import Account, WriteAccount
from fleetlight.indexer.backends.seal import HELD, SEAL, AreRight, Breach
from fleetlight.indexer.errors import IndexAbsentError, IndexerError, IndexRequestError, IndexUnavailableError
from fleetlight.resources.clock import Clock

T = TypeVar("T")

ACCOUNTS = "write accounts"
"""The kind of state with the account of each writer, by its id."""

SEALED = "sealed"
"""The kind of state with what is sealed of each physical index, by its name."""

KNOWN = "known facts"
"""The kind of state with, under its own name, the last facts of NEVER_REMOVED, by kind and name."""

OWN = (ACCOUNTS, SEALED, KNOWN)
"""The kinds of state that make up the seal."""

# The number of indexes behind all names: of instances, items, progress and facts.
_INDEXES = 4
# If there are more, the index is compared as a whole instead of one by one.
_MOST_LOOKED_AT = 2000
_MOST_NAMED = 10_000
# How often the sealed state is saved, with which a process that takes over begins.
_SAVE_INTERVAL_S = 5.0
# How many reports of a writer in another process to await: the next one may date from before the look.
_REPORTS_TO_COME = 2
_FORGET_AFTER_S = 60.0
# How much later a request that got no answer may still be carried out.
_LATE_S = 60.0
# The name of a breach that lasts until the index is created anew.
_FINAL = "shape"


class KeepsState(Protocol):
    """The part of an IndexWriter that the seal uses. Every method raises IndexUnavailableError."""

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None: ...
    def save_fact(self, kind: str, name: str, value: object) -> None: ...
    def load_state(self, kind: str) -> Mapping[str, Any]: ...
    def load_kept(self) -> Kept: ...
    def remove_altered(self, kept: Kept) -> None: ...
    def make_searchable(self) -> None: ...
    def put_right(self, *names: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Look:
    """What the shards had numbered at one moment. at: Unix time in microseconds. since_s: on the monotonic clock.
    until: for each writer that was at work then, its first report after all it had begun has ended.
    """

    at: int
    since_s: float
    given: Mapping[str, WrittenIndex]
    until: dict[str, int] = field(default_factory=dict)


class _UnmendedBreach(msgspec.Struct):
    """A breach as it is saved. uuids: see Breach."""

    reason: str
    uuids: frozenset[str] | None


Missing = dict[tuple[str, str], Numbers]
"""Numbers that no writer accounts for, by physical index and shard."""


def sealed_of(index: WrittenIndex) -> Mapping[str, Any]:
    """What an index has numbered, as a fact to save."""
    found: Mapping[str, Any] = msgspec.to_builtins(index)
    return found


def seal_new(client: Client, state: KeepsState, clock: Clock, names: Names) -> None:
    """Seal those indexes behind a writer's names that nothing was ever written to.

    A change of an index to which nothing was written meanwhile has done no harm: the index is sealed as it is now.
    """
    sealed = load_sealed(state)
    new = {
        name: sealed_of(index)
        for name, index in _counted(client, names, *names.written).items()
        if (
            index.is_new
            if name not in sealed or sealed[name].uuid != index.uuid
            else index.shards == sealed[name].shards and not index.is_new
        )
    }
    state.save_state(SEALED, new)
    if new and HELD not in state.load_state(SEAL):
        state.save_state(SEAL, {HELD: clock()})


def _counted(client: Client, names: Names, *those: str) -> dict[str, WrittenIndex]:
    """What is behind some of these names. Progress and facts come without counts, since they are not accounted for."""
    return {
        name: index.without_counts() if name in (names.progress, names.state) else index
        for name, index in written(client, *those).items()
    }


def load_sealed(state: KeepsState) -> dict[str, WrittenIndex]:
    """What is sealed, by physical index."""
    return _facts(state.load_state(SEALED), WrittenIndex)


def _facts(found: Mapping[str, Any], fact_type: type[T]) -> dict[str, T]:
    """The facts of a kind by name, without those that another version of this program wrote."""
    facts: dict[str, T] = {}
    for name, fact in found.items():
        with suppress(msgspec.ValidationError):
            facts[name] = msgspec.convert(fact, fact_type)
    return facts


class ElasticsearchSeal:
    """fleetlight.indexer.backends.seal.Seal. account: of this process's writer."""

    def __init__(self, client: Client, names: Names, state: KeepsState, account: WriteAccount, clock: Clock) -> None:
        self._client = client
        self._names = names
        self._state = state
        self._account = account
        self._clock = clock
        self.held_at = 0
        self._sealed: dict[str, WrittenIndex] = {}
        self._look: _Look | None = None
        # Writes that were found to agree with the cells.
        self._right: Missing = {}
        self._mended: set[str] = set()
        # By writer: the number of its requests without an answer, and when it last grew.
        self._unanswered: dict[str, tuple[int, float]] = {}
        self._is_loaded = False
        self._save_due_s = 0.0
        # By writer: the number of its last report, and when that was first seen.
        self._seen: dict[str, tuple[int, float]] = {}
        # The facts in KNOWN, of the indexes with these uuids.
        self._known: dict[str, dict[str, Any]] = {}
        self._known_of: set[str] = set()
        # Versions of each index that were checked and found right, by its uuid.
        self._right_versions: dict[str, Versions] = {}

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        try:
            return self._check(are_right, tolerance_s)
        except IndexerError:
            self._look = None
            raise

    def _check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        # Read this before the accounts, so that a number given by now is either in them or under way.
        now = _Look(self._clock(), time.monotonic(), self._given())
        deviations = self._deviations(now.given)
        if final := _says(deviations, lambda each: each.final):
            self._suspect(final, now.given)
        if not self._is_loaded and (breach := self._load()):
            return breach
        if self._flaw(now.given):
            # A rebuild has switched to another index, or a writer has created a missing one.
            self._sealed = load_sealed(self._state)
        if flaw := _says(deviations, lambda each: each.says) or self._flaw(now.given):
            return self._breach(flaw, None, now.given)
        if started := self._started_again(now.given):
            # Nothing that was written before the seal is lost (`translog.durability`). Writes since then are compared
            # by content; if some of those are lost, digests of revisions show it.
            self._right = {}
            written_since = self._missing(now.given, {})
            return self._breach(started, self._uuids(written_since), now.given)
        kept = self._state.load_kept()
        known = self._as_known(kept, now.given)
        if wrong := [each.id for each in kept.altered] + [":".join(each) for each in _gone(kept, known)]:
            return self._restore(wrong, kept, known, now.given)
        if self._look is not None and _numberings(self._look.given) != _numberings(now.given):
            # Another index is current now, so the earlier numbers cannot be compared any more.
            self._look = None
        look = self._look or now
        accounts = self._accounts(kept)
        missing = self._missing(look.given, accounts)
        if not missing:
            self._remember(kept)
            self._hold(look, accounts)
            return None
        if self._look is None:
            look.until.update(self._until(accounts))
            self._look = look
        may_be_of = [writer for writer, until in look.until.items() if _may_be_of(accounts.get(writer), until)]
        # A writer that still reports will account for its writes, however long a request takes.
        heard_s = max([look.since_s, *(self._seen[writer][1] for writer in may_be_of)])
        if may_be_of and time.monotonic() - heard_s <= tolerance_s:
            return None
        may_be_late = any(time.monotonic() - since_s <= _LATE_S for _, since_s in self._unanswered.values())
        return self._judge(look, missing, are_right if may_be_of or may_be_late else None)

    def mend(self, breach: Breach) -> None:
        # It also mends breaches that were found before and never mended.
        self._mended.update(self._state.load_state(SEAL).keys() - {HELD})

    def _load(self) -> Breach | None:
        """Load the sealed state. Returns all unmended breaches, also of earlier processes, joined to one."""
        self._sealed = load_sealed(self._state)
        gone = self._sealed.keys() - written(self._client, *self._sealed).keys() if self._sealed else ()
        self._state.save_state(SEALED, dict.fromkeys(gone))
        facts = _facts(self._state.load_state(SEAL), _UnmendedBreach)
        found = {name: fact for name, fact in facts.items() if name not in self._mended}
        self._is_loaded = not found
        if not found:
            return None
        named = [fact.uuids for fact in found.values() if fact.uuids is not None]
        *_, (name, fact) = found.items()
        uuids: frozenset[str] | None = frozenset[str]().union(*named) if len(named) == len(found) else None
        return Breach(name, fact.reason, uuids, self._sealed)

    def _given(self) -> dict[str, WrittenIndex]:
        """What the indexes have numbered. Raises IndexAbsentError if one is missing or closed."""
        names = self._names
        given = _counted(self._client, names, *names.all)
        if len(given) < _INDEXES:
            raise IndexAbsentError(f"not all of the indexes behind {', '.join(names.all)} are there")
        for name, index in given.items():
            # A server that is starting does not have all of its shards yet, and does not say so.
            sealed = self._sealed.get(name, index)
            if sealed.uuid == index.uuid and index.shards.keys() < sealed.shards.keys():
                raise IndexUnavailableError(f"not all shards of {name} are there")
        return given

    def _deviations(self, given: Mapping[str, WrittenIndex]) -> Mapping[str, Deviations]:
        """The deviations of indexes whose versions have moved since they were last found right."""
        moved = {name: index for name, index in given.items() if self._right_versions.get(index.uuid) != index.versions}
        found = deviating(self._client, self._names, *moved) if moved else {}
        right = [index for name, index in moved.items() if name not in found]
        self._right_versions.update((index.uuid, index.versions) for index in right)
        return found

    def _suspect(self, reason: str, given: Mapping[str, WrittenIndex]) -> None:
        """Make lists do without an index that cannot be corrected; a comparison ends this once the fault is gone.
        Raises IndexRequestError.
        """
        found = self._state.load_state(SEAL)
        if _FINAL not in found or _FINAL in self._mended:
            self._mended.discard(_FINAL)
            self._is_loaded = False
            self._save_breach(_FINAL, reason, None)
            self._state.put_right(*given)
        raise IndexRequestError(f"{reason}: run `fleetlight index rebuild`, or make the index anew")

    def _flaw(self, given: Mapping[str, WrittenIndex]) -> str | None:
        """Why any document may differ from what was written; None if there is no reason."""
        if len(given) > _INDEXES:
            return f"{', '.join(given)} are behind {', '.join(self._names.all)}"
        for name, index in given.items():
            sealed = self._sealed.get(name)
            if sealed is None or sealed.uuid != index.uuid:
                return f"the index {name} was made by another program, or anew"
            for what in ("settings", "mapping"):
                changes = getattr(index.versions, what) - getattr(sealed.versions, what)
                if changes not in (0, 1):
                    return f"the {what} of {name} were changed {changes} times since they were looked at"
            for number, shard in index.shards.items():
                before = sealed.shards.get(number)
                if before is None or before.history != shard.history or before.count > shard.count:
                    return f"the index {name} was restored"
        return None

    def _started_again(self, given: Mapping[str, WrittenIndex]) -> str | None:
        """Which shards have another primary copy than before, or were allocated anew; assumes no flaw."""
        started = [
            f"shard {number} of {name} (primary term {before.term} to {shard.term})"
            for name, index in given.items()
            for number, shard in index.shards.items()
            if (before := self._sealed[name].shards[number]).term != shard.term
        ]
        return f"another copy took over, or it was allocated anew: {', '.join(started)}" if started else None

    def _as_known(self, kept: Kept, given: Mapping[str, WrittenIndex]) -> dict[str, dict[str, Any]]:
        """The facts that must exist: those that this process, or one before it, has seen in these indexes."""
        uuids = {index.uuid for index in given.values()}
        if uuids != self._known_of:
            self._known, self._known_of = {}, uuids
        return self._known or kept.of(KNOWN).get(KNOWN) or {}

    def _remember(self, kept: Kept) -> None:
        self._known = {
            kind: {name: value for (of, name), value in kept.facts.items() if of == kind} for kind in NEVER_REMOVED
        }
        if kept.of(KNOWN).get(KNOWN) != self._known:
            self._state.save_state(KNOWN, {KNOWN: self._known})

    def _restore(
        self,
        wrong: Sequence[str],
        kept: Kept,
        known: Mapping[str, Mapping[str, Any]],
        given: Mapping[str, WrittenIndex],
    ) -> Breach:
        """Restore altered facts, and let indexers save the rest anew; lists may have believed it meanwhile."""
        reason = f"another program has altered or removed what is kept of the index: {', '.join(wrong)}"
        breach = self._breach(reason, self._uuids(self._missing(given, {})), given)
        self._state.remove_altered(kept)
        for kind in NEVER_REMOVED:
            names = [each.removeprefix(f"{kind}:") for each in wrong if each.startswith(f"{kind}:")]
            before = known.get(kind, {})
            # If it is unknown what the index may lack, lists take all deleted rows from the cell.
            unknown = self._clock() if kind == HORIZONS else None
            self._state.save_state(kind, {name: before.get(name, unknown) for name in names})
        return breach

    def _accounts(self, kept: Kept) -> dict[str, Account]:
        accounts = _facts(kept.of(ACCOUNTS), Account) | {self._account.id: self._account.now()}
        now_s = time.monotonic()
        self._seen = {
            writer: seen
            if (seen := self._seen.get(writer, (-1, 0.0)))[0] == account.reports
            else (account.reports, now_s)
            for writer, account in accounts.items()
        }
        for writer, account in accounts.items():
            if account.unanswered > self._unanswered.get(writer, (0, 0.0))[0]:
                self._unanswered[writer] = (account.unanswered, time.monotonic())
        return accounts

    def _missing(self, given: Mapping[str, WrittenIndex], accounts: Mapping[str, Account]) -> Missing:
        missing: Missing = {}
        for name, index in given.items():
            for number, shard in index.shards.items():
                got = self._right.get((name, number), Numbers())
                for account in accounts.values():
                    got = got.union(account.got(shard))
                if not_got := got.missing(self._sealed[name].shards[number].count, shard.count):
                    missing[name, number] = not_got
        return missing

    def _until(self, accounts: Mapping[str, Account]) -> Iterator[tuple[str, int]]:
        for writer, account in accounts.items():
            if account.is_at_work:
                to_come = 0 if writer == self._account.id else _REPORTS_TO_COME
                yield writer, account.reports + to_come

    def _judge(self, look: _Look, missing: Missing, are_right: AreRight | None) -> Breach | None:
        """Decide whose the missing writes are.

        are_right: None if they can be no writer's of ours. Otherwise they are accepted as those of a writer that was
        killed or got no answer, if all are found and agree with the cells.
        """
        count = sum(map(len, missing.values()))
        found = dict(self._numbered(missing)) if are_right and count <= _MOST_LOOKED_AT else {}
        is_all = sum(map(len, found.values())) == count
        if are_right and is_all and are_right(_by_cell(found.values())):
            for place, numbers in missing.items():
                self._right[place] = self._right.get(place, Numbers()).union(numbers)
            return None
        where = ", ".join(f"{len(numbers)} to shard {number} of {name}" for (name, number), numbers in missing.items())
        who = "another program" if are_right is None else "another program, or an indexer that was killed,"
        reason = f"{who} has written to the index: {where}"
        return self._breach(reason, self._uuids(missing), look.given)

    def _uuids(self, written: Missing) -> frozenset[str] | None:
        """The documents with these numbers; None if there are too many."""
        if sum(map(len, written.values())) > _MOST_NAMED:
            return None
        return frozenset(uuid for _, documents in self._numbered(written) for uuid, _ in documents)

    def _numbered(self, missing: Missing) -> Iterator[tuple[tuple[str, str], list[tuple[str, str]]]]:
        if missing:
            self._state.make_searchable()
        for (name, number), numbers in missing.items():
            yield (name, number), numbered(self._client, name, number, numbers, _MOST_NAMED)

    def _breach(self, reason: str, uuids: frozenset[str] | None, given: Mapping[str, WrittenIndex]) -> Breach:
        breach = Breach(uuid4().hex, reason, uuids, given)
        self._save_breach(breach.id, reason, uuids)
        # Anything later is another breach. Writers learn the current histories from this.
        self._state.save_state(SEALED, {name: sealed_of(index) for name, index in given.items()})
        self._account.learn()
        self._is_loaded = False
        self._look = None
        self._right = {}
        # Correct only after saving that it was wrong, in case the process ends here.
        self._state.put_right(*given)
        return breach

    def _save_breach(self, breach_id: str, reason: str, uuids: frozenset[str] | None) -> None:
        try:
            self._state.save_state(SEAL, {breach_id: msgspec.to_builtins(_UnmendedBreach(reason, uuids))})
        except IndexerError:
            # The deviation may be the reason why nothing can be saved there.
            self._state.put_right(self._names.state)
            raise

    def _hold(self, look: _Look, accounts: Mapping[str, Account]) -> None:
        """Record that the seal held: all numbers given by that look are accounted for."""
        is_judged = bool(self._right)
        has_moved = any(
            name not in self._sealed or self._sealed[name].versions != index.versions
            for name, index in look.given.items()
        )
        self._look = None
        self._right = {}
        # The seal of an index that a rebuild fills, or has replaced, is kept.
        self._sealed = {**self._sealed, **look.given}
        if self._mended:
            self._state.save_state(SEAL, {HELD: look.at, **dict.fromkeys(self._mended)})
        else:
            self._state.save_fact(SEAL, HELD, look.at)
        self.held_at = look.at
        self._mended.clear()
        # Save at once if accounts do not show what was judged right, or if versions have moved.
        if is_judged or has_moved or time.monotonic() >= self._save_due_s:
            self._state.save_state(SEALED, {name: sealed_of(index) for name, index in look.given.items()})
            # Include an index that a rebuild has begun to fill.
            self._sealed = {**load_sealed(self._state), **self._sealed}
            self._forget_accounts(accounts)
            self._save_due_s = time.monotonic() + _SAVE_INTERVAL_S

    def _forget_accounts(self, accounts: Mapping[str, Account]) -> None:
        """Forget the accounts of writers that have ended; a writer that was only halted saves its account again."""
        now_s = time.monotonic()
        silent = [writer for writer, (_, since_s) in self._seen.items() if now_s - since_s > _FORGET_AFTER_S]
        forgotten = [writer for writer in silent if not self._has_more(accounts[writer])]
        self._state.save_state(ACCOUNTS, dict.fromkeys(forgotten))

    def _has_more(self, account: Account) -> bool:
        """Whether an account has more than what is sealed, for indexes that still exist."""
        return any(
            account.got(shard).beyond(shard.count).ranges
            for index in self._sealed.values()
            for shard in index.shards.values()
        )


def _may_be_of(account: Account | None, until: int) -> bool:
    """Whether writes begun before a look may still be under way, or not be accounted for yet."""
    return account is not None and account.is_at_work and not (account.reports >= until and account.oldest >= until)


def _gone(kept: Kept, known: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Facts that are gone, and horizons that went back, which ours never do."""
    gone = [(kind, name) for kind, before in known.items() for name in before if (kind, name) not in kept.facts]
    horizons, before = kept.of(HORIZONS), known.get(HORIZONS, {})
    return gone + [(HORIZONS, name) for name in horizons if horizons[name] < (before.get(name) or 0)]


def _says(found: Mapping[str, Deviations], which: Callable[[Deviations], Sequence[str]]) -> str:
    """The faults of some indexes as a clause; empty if there are none."""
    return "; ".join(f"{name}: {', '.join(which(each))}" for name, each in found.items() if which(each))


def _numberings(given: Mapping[str, WrittenIndex]) -> set[str]:
    return {shard.numbering for index in given.values() for shard in index.shards.values()}


def _by_cell(found: Iterable[list[tuple[str, str]]]) -> dict[str, list[str]]:
    by_cell: dict[str, list[str]] = {}
    for documents in found:
        for uuid, cell_uuid in documents:
            by_cell.setdefault(cell_uuid, []).append(uuid)
    return by_cell
