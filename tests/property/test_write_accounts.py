"""No write of another program is ever taken for ours, and ours for another's only where it cannot be known.

Random interleavings of writers, lost answers, kills, rebuilds, restored copies, nodes that lose writes, changes of the
process that checks the seal, and writes of other programs, over shards in memory that number writes. Time is a number.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from fleetlight.indexer.backends.accounts import Numbers
from fleetlight.indexer.backends.elasticsearch import seal as sealing
from fleetlight.indexer.backends.elasticsearch import write_account
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.numbering import NumberedWrite
from fleetlight.indexer.backends.elasticsearch.seal import ACCOUNTS, ElasticsearchSeal, load_sealed, seal_new
from fleetlight.indexer.backends.elasticsearch.write_account import Add, WriteAccount
from fleetlight.indexer.backends.seal import SEAL, Breach, SealState
from fleetlight.indexer.errors import IndexUnavailableError
from tests.support.examples import examples
from tests.support.memory.numbered_index import CELL, NumberedIndex, PhysicalIndex, Write

NAMES = Names.of("p")
SHARDS = 2
IDS = [f"id{number}" for number in range(8)]
TOLERANCE_S = 1.0
# A request that got no answer, or whose writer was killed, may still be carried out for so long.
LATE_S = 10.0
LONG_S = 100.0

ids = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True)
some = st.integers(min_value=0, max_value=1_000_000)
targets = st.sampled_from([NAMES.write] * 4 + [NAMES.items, NAMES.next])
between = st.sampled_from([None] * 4 + ["carry out", "answer", "report", "other"])


class NoThread:
    """Accounts are reported by rules."""

    def __init__(self, **_: object) -> None: ...
    def start(self) -> None: ...
    def join(self) -> None: ...


@dataclass
class Writer:
    account: WriteAccount
    is_alive: bool = True


@dataclass
class Request:
    """A bulk request under way. until_s: when it is not carried out any more, once nobody waits for it."""

    writer: Writer
    alias: str
    documents: Collection[str]
    removes: bool
    around: AbstractContextManager[Add]
    add: Add
    until_s: float = float("inf")
    got: dict[str, list[NumberedWrite]] | None = None

    @property
    def is_waited_for(self) -> bool:
        return self.writer.is_alive and self.until_s == float("inf")


@dataclass(frozen=True, slots=True)
class Act:
    """What another program did at a moment (microseconds). place: shard and number; None for a restored copy."""

    moment: int
    index: PhysicalIndex
    place: tuple[int, NumberedWrite] | None = None

    def is_known_by(self, breach: Breach) -> bool:
        """Whether it had been done when that was found."""
        found = breach.mark.get(self.index.name)
        if found is None or found.uuid != self.index.uuid:
            return False
        if self.place is None:
            return True
        shard, write = self.place
        known = found.shards[str(shard)]
        return (write.term, write.number) < (known.term, known.count)


@dataclass
class Time:
    """What stands in for the module of this name."""

    now_s: float = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def clock(self) -> int:
        """Microseconds. No two moments are the same."""
        self.now_s += 0.000_01
        return int(self.now_s * 1_000_000)


class WriteAccountMachine(RuleBasedStateMachine):
    """Two writers besides that of the process that checks the seal."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.index, self.time = NumberedIndex(), Time()
        for module in (sealing, write_account):
            self.patch.setattr(module, "time", self.time)
        self.patch.setattr(write_account, "Thread", NoThread)
        self.patch.setattr(sealing, "numbered", self.index.numbered)
        self.patch.setattr(sealing, "written", self.written)
        self.patch.setattr(sealing, "deviating", lambda *_: {})
        self.meanwhile: Callable[[], None] | None = None
        self.index.create("instances-0", SHARDS, NAMES.read, NAMES.write)
        self.index.create("items-0", 1, NAMES.items)
        self.index.create(NAMES.progress, 1)
        self.index.create(NAMES.state, 1)
        self.requests: list[Request] = []
        self.acts: list[Act] = []
        self.snapshots: list[PhysicalIndex] = []
        self.accounted: set[tuple[str, int]] = set()
        self.breach: Breach | None = None
        self.generation = 0
        seal_new(*self.sealed(), NAMES)
        self.writers = [self.new_writer(), self.new_writer()]
        self.checker = self.new_writer()
        self.take_over()

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.patch.undo()

    def sealed(self) -> tuple[Any, NumberedIndex, Callable[[], int]]:
        return None, self.index, self.time.clock

    def new_writer(self) -> Writer:
        return Writer(
            WriteAccount(
                self.save_account,
                lambda name: self.index.physical[name].routing,
                lambda: load_sealed(self.index),
            )
        )

    def save_account(self, writer: str, account: Mapping[str, Any]) -> None:
        self.index.save_state(ACCOUNTS, {writer: account})
        for numbering, ranges in account["numbers"].items():
            self.accounted |= {(numbering, number) for number in Numbers(ranges)}

    def written(self, client: object, *names: str) -> Mapping[str, Any]:
        """Things happen between this answer and what is asked next."""
        found = self.index.written(client, *names)
        if self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            happen()
        return found

    # Our writers.

    @rule(step=st.sampled_from(["begin"] * 3 + ["carry out"] * 4 + ["answer"] * 3 + ["report"] * 3), pick=some)
    def work(self, step: str, pick: int) -> None:
        """One rule with weights: chosen evenly, steps that belong together would seldom meet."""
        match step:
            case "begin":
                removes = pick % 5 == 0
                alias = [NAMES.write, NAMES.write, NAMES.items, NAMES.next][pick % 4]
                self.begin(self.all_writers()[pick % 3], alias, [IDS[pick // 8 % len(IDS)]], removes=removes)
            case "carry out":
                self.carry_out(pick)
            case "answer":
                self.answer(pick)
            case _:
                self.report(pick)

    @rule(pick=some, alias=targets, documents=ids)
    def write(self, pick: int, alias: str, documents: list[str]) -> None:
        """A whole request."""
        if request := self.begin(self.all_writers()[pick % 3], alias, documents, removes=pick % 5 == 0):
            self.carry_out_one(request)
            self.answer_one(request)

    @rule(pick=some)
    def lose(self, pick: int) -> None:
        """A request gets no answer; it may have been carried out, or be so soon, or never."""
        if waited := [each for each in self.requests if each.is_waited_for]:
            request = waited[pick % len(waited)]
            self._fail(request)
            request.until_s = self.time.now_s + LATE_S
            if request.got is not None:
                self.requests.remove(request)

    def _fail(self, request: Request) -> None:
        error = IndexUnavailableError("no answer")
        assert not request.around.__exit__(type(error), error, None)

    @rule(pick=some)
    def kill(self, pick: int) -> None:
        number = pick % len(self.writers)
        self._die(self.writers[number])
        self.writers[number] = self.new_writer()

    @rule(seconds=st.sampled_from([0.5, 0.5, 1.1, 3.0, LONG_S]), reports=st.booleans())
    def wait(self, seconds: float, *, reports: bool) -> None:
        """All report meanwhile, or all are late."""
        self.time.now_s += seconds
        self.requests = [each for each in self.requests if each.until_s > self.time.now_s]
        if reports:
            for writer in self.writers:
                writer.account.report()

    def all_writers(self) -> list[Writer]:
        return [*self.writers, self.checker]

    def begin(self, writer: Writer, alias: str, documents: Collection[str], *, removes: bool) -> Request | None:
        if alias not in self.index.aliases:
            return None
        around = writer.account.writing()
        request = Request(writer, alias, documents, removes, around, around.__enter__())
        self.requests.append(request)
        return request

    def carry_out(self, pick: int) -> None:
        if waiting := [each for each in self.requests if each.got is None]:
            self.carry_out_one(waiting[pick % len(waiting)])

    def carry_out_one(self, request: Request) -> None:
        if request.alias not in self.index.aliases:
            return
        index = self.index.behind(request.alias)
        request.got = {index.name: []}
        for each in request.documents:
            write = Write(each, removes=request.removes, is_ours=True)
            request.got[index.name].append(index.write(write)[1])
        if not request.is_waited_for:
            self.requests.remove(request)

    def answer(self, pick: int) -> None:
        if carried_out := [each for each in self.requests if each.got is not None and each.is_waited_for]:
            self.answer_one(carried_out[pick % len(carried_out)])

    def answer_one(self, request: Request) -> None:
        for name, got in (request.got or {}).items():
            request.add(name, got)
        request.around.__exit__(None, None, None)
        self.requests.remove(request)

    def report(self, pick: int) -> None:
        self.writers[pick % len(self.writers)].account.report()

    def _die(self, writer: Writer) -> None:
        writer.is_alive = False
        for request in [each for each in self.requests if each.writer is writer]:
            request.until_s = min(request.until_s, self.time.now_s + LATE_S)
            if request.got is not None:
                self.requests.remove(request)

    # Other programs.

    @rule(document=st.sampled_from([*IDS, "a new one"]), alias=targets, removes=st.booleans())
    def other_program_writes(self, document: str, alias: str, *, removes: bool) -> None:
        if alias in self.index.aliases:
            index = self.index.behind(alias)
            place = index.write(Write(document, removes=removes, is_ours=False))
            self.acts.append(Act(self.time.clock(), index, place))

    @rule()
    def other_program_takes_snapshot(self) -> None:
        self.snapshots = [self.index.behind(NAMES.write).restored()]

    @rule()
    def other_program_restores(self) -> None:
        while self.snapshots:
            index = self.snapshots.pop()
            if index.name == self.index.aliases[NAMES.write]:
                self.index.physical[index.name] = index
                self.acts.append(Act(self.time.clock(), index))

    @rule(pick=some)
    def node_is_killed(self, pick: int) -> None:
        """Another copy takes over; without the last writes, where its node was told not to keep each at once."""
        index = self.index.behind([NAMES.write, NAMES.items][pick % 2])
        place = pick % len(index.shards)
        shard, lost = index.shards[place], pick % 3
        if lost:
            index.versions = replace(index.versions, settings=index.versions.settings + 2)
        shard.start_again(min(lost, len(shard.writes)))
        self.acts.append(Act(self.time.clock(), index, (place, NumberedWrite("", shard.term, -1))))

    # A rebuild.

    @precondition(lambda self: NAMES.next not in self.index.aliases)
    @rule()
    def begin_rebuild(self) -> None:
        self.generation += 1
        self.index.create(f"instances-{self.generation}", SHARDS, NAMES.next)
        seal_new(*self.sealed(), replace(NAMES, write=NAMES.next))

    @precondition(lambda self: NAMES.next in self.index.aliases)
    @rule()
    def switch_to_rebuilt(self) -> None:
        name = self.index.aliases.pop(NAMES.next)
        self.index.aliases |= {NAMES.read: name, NAMES.write: name}
        moment = self.time.clock()
        # Nobody has read it before.
        self.acts = [Act(moment, each.index, each.place) if each.index.name == name else each for each in self.acts]

    # The process that checks the seal.

    @rule()
    def take_over(self) -> None:
        """Another process checks it from now on; the one before was killed."""
        self._die(self.checker)
        self.checker = self.new_writer()
        self.seal = ElasticsearchSeal(*self.sealed()[:1], NAMES, self.index, self.checker.account, self.time.clock)
        self.was_broken, self.breach = bool(self.reasons()), None

    @precondition(lambda self: self.breach is None)
    @rule(times=st.integers(1, 3), meanwhile=between, pick=some)
    def check(self, times: int, meanwhile: str | None, pick: int) -> None:
        if meanwhile is not None:
            self.meanwhile = lambda: self._happen(meanwhile, pick)
        for _ in range(times):
            if self.breach is None:
                self.check_once()
        self.meanwhile = None

    def check_once(self) -> None:
        may_be_unknown = self.is_ours_unknown()
        self.breach = self.seal.check(self.are_right, TOLERANCE_S)
        if self.breach is not None:
            known = [each for each in self.acts if each.is_known_by(self.breach)]
            # What was given out before a copy was restored is gone with what the copy replaced.
            is_restored = any(each.place is None for each in self.acts)
            assert known or is_restored or self.was_broken or may_be_unknown or self.is_ours_unknown(), self.breach
            assert self.reasons()
            assert self.breach.uuids is None or self.altered(known) <= self.breach.uuids
            self.was_broken = True
        self.held_is_right()

    @precondition(lambda self: self.breach is not None)
    @rule(is_compared=st.sampled_from([True, True, False]))
    def mend(self, *, is_compared: bool) -> None:
        assert self.breach is not None
        if is_compared:
            self.seal.mend(self.breach)
            self.acts = [each for each in self.acts if not each.is_known_by(self.breach)]
            self.was_broken = False
        self.breach = None

    def _happen(self, what: str, pick: int) -> None:
        match what:
            case "other":
                self.other_program_writes(IDS[pick % len(IDS)], NAMES.write, removes=pick % 2 == 0)
            case "report":
                self.report(pick)
            case "answer":
                self.answer(pick)
            case _:
                self.carry_out(pick)

    def are_right(self, documents: Mapping[str, Collection[str]]) -> bool:
        """Whether all were written by us."""
        assert documents.keys() <= {CELL}
        asked = {each for found in documents.values() for each in found}
        for alias in (NAMES.write, NAMES.items):
            for shard in self.index.behind(alias).shards:
                if any(uuid in asked and not shard.writes[number].is_ours for uuid, number in shard.documents.items()):
                    return False
        return True

    # What has to be so.

    def reasons(self) -> Collection[str]:
        return self.facts().reasons

    def facts(self) -> SealState:
        return SealState.of({(SEAL, name): value for name, value in self.index.load_state(SEAL).items()})

    def held_is_right(self) -> None:
        """It held up to no moment at which a write of another program was there that was not found."""
        read = {self.index.behind(alias).uuid for alias in (NAMES.write, NAMES.items)}
        held_at = self.facts().held_at
        assert held_at is not None
        hidden = [each for each in self.acts if each.index.uuid in read and each.moment <= held_at]
        assert not hidden, "another program's writes were taken for ours"

    def altered(self, acts: Collection[Act]) -> set[str]:
        """What was written by these, and is still there."""
        found = set()
        for each in acts:
            if each.place is not None and self.index.physical[each.index.name] is each.index:
                place, write = each.place
                shard = each.index.shards[place]
                if shard.term == write.term:
                    found |= {uuid for uuid, number in shard.documents.items() if number == write.number}
        return found

    def is_ours_unknown(self) -> bool:
        """Whether there is a write of ours of which nothing shows any more whose it was: no account ever had it, and it
        was a deletion, or the document was written again.
        """
        sealed = load_sealed(self.index)
        for index, place, number, write in self.index.all_writes():
            shard = index.shards[place]
            is_there = shard.documents.get(write.document_id) == number
            floor = sealed[index.name].shards[str(place)].count if index.name in sealed else 0
            is_accounted = (shard.written.numbering, number) in self.accounted
            if write.is_ours and not is_there and number >= floor and not is_accounted:
                return True
        return False

    def comes_to_rest(self) -> None:
        """When all has ended, the seal holds."""
        for request in list(self.requests):
            if request.is_waited_for:
                self.carry_out_one(request)
                if request.got is not None:
                    self.answer_one(request)
                else:
                    # There is nothing any more that it could be written to.
                    self._fail(request)
                    self.requests.remove(request)
        at_rest = self.time.clock()
        for _ in range(12):
            self.wait(1.1, reports=True)
            if self.breach is not None:
                self.mend(is_compared=True)
            self.check_once()
        assert not self.reasons()
        held_at = self.facts().held_at
        assert held_at is not None
        assert held_at > at_rest


def test_no_write_of_another_program_is_taken_for_ours() -> None:
    run_state_machine_as_test(
        WriteAccountMachine, settings=settings(max_examples=examples(150), stateful_step_count=40)
    )


@pytest.fixture
def machine() -> Iterator[WriteAccountMachine]:
    """At its end, nothing may have been taken for another program's that was ours."""
    machine = WriteAccountMachine()
    machine.check_once()
    yield machine
    machine.teardown()


def pass_time(machine: WriteAccountMachine, seconds: float) -> None:
    machine.wait(seconds, reports=True)
    for _ in range(2):
        machine.check_once()


def test_request_without_answer_is_ours_when_it_is_carried_out_later(machine: WriteAccountMachine) -> None:
    machine.begin(machine.writers[0], NAMES.write, ["id1"], removes=False)
    machine.lose(0)
    for _ in range(2):
        pass_time(machine, 3.0)
    machine.carry_out(0)


def test_request_that_takes_long_is_waited_for_while_its_writer_reports(machine: WriteAccountMachine) -> None:
    """As on a machine that is busy. Nothing shows of its write what it was: the document was written again."""
    machine.begin(machine.writers[0], NAMES.write, ["id1"], removes=False)
    machine.carry_out(0)
    machine.write(1, NAMES.write, ["id1"])
    for _ in range(5):
        pass_time(machine, 3.0)
        assert machine.breach is None
    machine.answer(0)


def test_what_was_judged_ours_stays_ours_after_a_rebuild(machine: WriteAccountMachine) -> None:
    machine.begin_rebuild()
    machine.begin(machine.writers[0], NAMES.items, ["id1"], removes=False)
    machine.carry_out(0)
    machine.lose(0)
    for _ in range(2):
        pass_time(machine, 1.1)
    machine.time.now_s += LONG_S
    machine.switch_to_rebuilt()


def test_accounts_of_a_rebuild_are_kept_until_it_is_read(machine: WriteAccountMachine) -> None:
    machine.begin_rebuild()
    machine.write(1, NAMES.next, ["id1", "id2"])
    for seconds in (3.0, 3.0, LONG_S, LONG_S):
        pass_time(machine, seconds)
    machine.switch_to_rebuilt()


def test_number_that_a_restored_copy_gives_again_is_not_ours(machine: WriteAccountMachine) -> None:
    machine.other_program_takes_snapshot()
    machine.write(1, NAMES.write, ["id1", "id2", "id3"])
    pass_time(machine, 1.1)
    machine.other_program_restores()
    machine.check_once()
    machine.mend(is_compared=True)
    machine.other_program_writes("id1", NAMES.write, removes=True)


def test_shard_that_is_not_there_yet_has_no_other_history(machine: WriteAccountMachine) -> None:
    """As while a server starts."""
    machine.write(0, NAMES.write, ["id1", "id2", "id3"])
    pass_time(machine, 1.1)
    machine.index.absent = frozenset({"0"})
    with pytest.raises(IndexUnavailableError, match="not all shards"):
        machine.check_once()
    machine.index.absent = frozenset()
    machine.check_once()
    assert machine.breach is None


def test_breach_is_mended_though_the_first_comparison_failed(machine: WriteAccountMachine) -> None:
    machine.other_program_writes("id1", NAMES.write, removes=False)
    machine.check_once()
    machine.mend(is_compared=False)
    machine.take_over()
    machine.other_program_writes("id2", NAMES.write, removes=False)
