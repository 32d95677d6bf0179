"""A fleet whose relays, bus and indexers are real and whose cells, messages and index fail, and what was true of it.

Whether an answer is right is told from what was true of each cell, and when: in a complete one each instance is as it
was, or was not, at some moment of the time that the staleness limit and the request leave. They need not be the same
moments: of a change that the index had to fetch, later ones may be known.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import SEQUENCE_HEADER
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, ComputeFleet, searching
from tests.contract.faulty_cells import Faults, open_faulty
from tests.support.fleets.indexer_worlds import INDEXER, indexing, relaying

LIMIT_S = 2
# An API remembers for a second what the index says.
LISTS_DELAY_S = 2
LISTS = ("/v2.1/servers?all_tenants=1", "/v2.1/servers?all_tenants=1&deleted=1")

State = dict[str, tuple[int, bool]]
"""By uuid, the number that an instance is called by, and whether it is deleted."""


@dataclass
class Truth:
    """What was true of one cell: the states, and between which moments (microseconds) each one began."""

    now: State = field(default_factory=dict)
    states: list[tuple[int, int, State]] = field(default_factory=lambda: [(0, 0, {})])

    def add(self, began: int, uuid: str, number: int, *, deleted: bool) -> None:
        self.become(began, {**self.now, uuid: (number, deleted)})

    def become(self, began: int, state: State) -> None:
        """What is true from a moment between `began` and now on."""
        self.now = state
        self.states.append((began, system_clock(), state))

    def between(self, first: int, last: int) -> list[State]:
        """Every state that may have been at some moment of that time."""
        ends = [ended for _, ended, _ in self.states[1:]] + [last + 1]
        return [
            state for (began, _, state), end in zip(self.states, ends, strict=True) if began <= last and end >= first
        ]


def unruly(generator: random.Random, message: Message) -> Message | None:
    """What comes of a message: some of changes are lost or damaged."""
    if SEQUENCE_HEADER not in message.headers:
        return message
    match generator.randrange(8):
        case 0:
            return None
        case 1:
            return replace(message, body=b"damaged on the way")
    return message


class World:
    def __init__(self, fleet: ComputeFleet, generator: random.Random) -> None:
        self.fleet = fleet
        self._generator = generator
        self.faults = Faults()
        self.pool = CellPool(
            fleet.fleet.cells,
            lambda cell: open_faulty(cell, self.faults),
            refresh_interval_s=LIMIT_S / 2,
            deadline_s=0.2,
            list_timeout_s=60,
            probe_interval_s=0.01,
            threads_per_cell=6,
        )
        self.api = fleet.api(search=searching(staleness_limit_s=LIMIT_S, cell_timeout_s=60), pool=self.pool)
        self.truth = {cell: Truth() for cell in CELLS}
        self.tokens: dict[str, tuple[str, int]] = {}
        self._indexer = ExitStack()
        self._relays: dict[str, ExitStack] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.callback(self.fleet.close_pool, self.pool)
            for name in self.fleet.cells:
                stack.callback(self.stop_relay, name)
                self.start_relay(name)
            stack.callback(self.stop_indexer)
            stack.callback(self.faults.heal)
            self.start_indexer()
            yield

    def start_relay(self, name: str) -> None:
        arrives = partial(unruly, random.Random(self._generator.random()))
        relay = self._relays[name] = ExitStack()
        relay.enter_context(relaying(self.fleet.engine(name), self.fleet.cells[name], self.fleet.fleet, arrives))

    def stop_relay(self, name: str) -> None:
        self._relays.pop(name).close()

    def start_indexer(self) -> None:
        settings = INDEXER.model_copy(update={"comparison_interval_s": LIMIT_S / 5})
        self._indexer.enter_context(
            indexing(self.fleet.fleet, self.fleet.index_settings, settings, lists_delay_s=LISTS_DELAY_S)
        )

    def stop_indexer(self) -> None:
        self._indexer.close()

    def create(self, cell: str, number: int) -> None:
        began = system_clock()
        uuid = self.fleet.create(cell, display_name=str(number))
        self.truth[cell].add(began, uuid, number, deleted=False)
        self.tokens[uuid] = (f"{uuid}:1", number)

    def change(self, cell: str, number: int) -> None:
        known = [uuid for uuid, (_, is_deleted) in self.truth[cell].now.items() if not is_deleted]
        if not known:
            return
        uuid, began = self._generator.choice(known), system_clock()
        if self._generator.random() < 0.2:
            self.fleet.operations(cell).delete(uuid)
            self.tokens.pop(uuid, None)  # one of a cell that was removed has none
            self.truth[cell].add(began, uuid, self.truth[cell].now[uuid][0], deleted=True)
        else:
            row = self.fleet.operations(cell).update(uuid, {"display_name": str(number)})
            self.tokens[uuid] = (f"{uuid}:{row.revision}", number)
            self.truth[cell].add(began, uuid, number, deleted=False)

    def heal(self) -> None:
        self.faults.heal()
        self.fleet.searcher.is_broken = False
        self.api.request("POST", "/fleetlight/safe-connect/reset")
        for cell in self.fleet.fleet.cells():
            self.fleet.fleet.set_disabled(cell.uuid, False)

    def fail(self, cell: str) -> None:
        match self._generator.choice(["cell", "cell", "index", "disabled", "restart"]):
            case "cell":
                self.faults.of[cell] = self._generator.choice(["down", "hang", "slow"])
            case "index":
                self.fleet.searcher.is_broken = True
            case "disabled":
                self.fleet.fleet.set_disabled(self.fleet.fleet.cell(cell).uuid, True)
            case "restart":
                self.stop_indexer()
                self.start_indexer()

    def check_lists(self) -> int:
        """How many answers were complete; asserts that they were."""
        wanted = self._generator.sample(sorted(self.tokens), min(len(self.tokens), self._generator.randrange(3)))
        consistency = self._generator.choice(["any", "bounded", "bounded", "strong"])
        if wanted:
            consistency = "at-least " + ",".join(self.tokens[uuid][0] for uuid in wanted)
        return sum(self._check(url, consistency, wanted) for url in LISTS)

    def is_all_indexed(self) -> bool:
        """Whether the list comes whole from the index, and that of deleted ones is complete; asserts that both are."""
        for url in LISTS:
            began = system_clock()
            response = self.api.get(url)
            if not self._is_right(url, response, began):
                return False
            # After a purge the index cannot answer for all that were ever deleted.
            if url == LISTS[0] and response.headers["Fleetlight-Route"].count("=index;") < len(self.truth):
                return False
        return True

    def _check(self, url: str, consistency: str, wanted: Sequence[str]) -> bool:
        began = system_clock()
        response = self.api.get(url, {"Fleetlight-Consistency": consistency, "Fleetlight-Cell-Timeout": "0.2"})
        is_complete = self._is_right(url, response, began)
        if is_complete and url == LISTS[0]:
            shown = _shown(response)
            for uuid in wanted:
                cell = next(cell for cell, truth in self.truth.items() if uuid in truth.now)
                route = response.headers["Fleetlight-Route"]
                assert shown.get(uuid, 0) >= self.tokens[uuid][1], (cell, self.tokens[uuid], route)
        return is_complete

    def _is_right(self, url: str, response: httpx.Response, began: int) -> bool:
        """Whether the answer says that it is complete; asserts that it is then."""
        assert response.status_code == 200, response.text
        if response.headers["Fleetlight-Complete"] != "true":
            return False
        ended, shown = system_clock(), _shown(response)
        for cell, truth in self.truth.items():
            possible = truth.between(began - LIMIT_S * 1_000_000, ended)
            for uuid in {uuid for state in possible for uuid in state}:
                listed = {_listed(state.get(uuid), deleted=url == LISTS[1]) for state in possible}
                assert shown.get(uuid) in listed, (cell, url, response.headers["Fleetlight-Route"])
        return True


def _listed(instance: tuple[int, bool] | None, *, deleted: bool) -> int | None:
    """How a list of those that are, or are not, deleted shows an instance; None if it does not."""
    return instance[0] if instance is not None and instance[1] is deleted else None


def _shown(response: httpx.Response) -> dict[str, int]:
    servers: list[dict[str, Any]] = response.json()["servers"]
    return {server["id"]: int(server["name"]) for server in servers}
