"""No answer claims to be complete when it is not, and every token is honoured, whatever fails meanwhile.

Time is a clock of the test: each step takes a second, and the index may be up to `LIMIT_S` seconds behind.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.cell_removal import remove_cell
from fleetlight.indexer.reconcile.reconcile import WarnedLists
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.writing.epoch_history import History
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.query.page import PageRequest
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, Api, ComputeFleet, compute_fleet, searching
from tests.contract.faulty_cells import Faults, FaultyAdapter
from tests.contract.paging import page_through
from tests.support.fleets.indexer_worlds import indexing
from tests.support.servers.backups import Backup
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

LIMIT_S = 5
STEPS = 50


class World:
    """A fleet, what was true of each cell at each moment, and an API whose cells and index can fail."""

    def __init__(self, fleet: ComputeFleet, timeout_s: float) -> None:
        self.fleet = fleet
        self._timeout_s = timeout_s
        self.faults = Faults()
        self.pool = CellPool(
            fleet.fleet.cells,
            lambda cell: FaultyAdapter(cell, self.faults),
            deadline_s=timeout_s,
            list_timeout_s=60,
            probe_interval_s=0.01,
            threads_per_cell=6,
        )
        self._started = system_clock()
        self.now_s = 0
        self.names: dict[str, dict[str, int]] = {cell: {} for cell in CELLS}
        self.history: dict[str, list[dict[str, int]]] = {cell: [] for cell in CELLS}
        self.api = self.new_api()

    def new_api(self, *, has_index: bool = True) -> Api:
        return self.fleet.api(
            search=searching(enabled=has_index, staleness_limit_s=LIMIT_S, cell_timeout_s=60),
            pool=self.pool,
            native=self.fleet.native,
            clock=self.clock,
        )

    def get(self, url: str, consistency: str = "bounded") -> httpx.Response:
        """A list. Cells alone have little time for it: the fleet database is not what fails here."""
        timeout = {"Fleetlight-Cell-Timeout": f"{self._timeout_s:g}"}
        return self.api.get(url, {"Fleetlight-Consistency": consistency}, timeout)

    def clock(self) -> int:
        return self._started + self.now_s * 1_000_000

    def tick(self) -> None:
        self.now_s += 1
        for cell in CELLS:
            self.history[cell].append(dict(self.names[cell]))

    def index(self, cell: str) -> None:
        self.fleet.number_changes()
        self.fleet.index(cell, fresh_as_of=self.clock(), watermark=published(self.fleet.cells[cell]))

    def recently(self, cell: str) -> list[dict[str, int]]:
        """What was true of a cell within the time that the index may be behind; each step counts to its end."""
        return [*self.history[cell][-LIMIT_S - 1 :], self.names[cell]]


def published(cell: Cell) -> int:
    adapter = NativeAdapter(cell)
    sequence = adapter.published_sequence()
    adapter.close()
    return sequence


@contextmanager
def world(folder: Path, timeout_s: float) -> Iterator[World]:
    with compute_fleet(folder) as fleet, world_of(fleet, timeout_s) as made:
        yield made


@contextmanager
def world_of(fleet: ComputeFleet, timeout_s: float) -> Iterator[World]:
    made = World(fleet, timeout_s)
    try:
        yield made
    finally:
        made.faults.heal()
        fleet.close_pool(made.pool)


def check_answer(world: World, response: httpx.Response, tokens: dict[str, int]) -> bool:
    """tokens: the number that each named server has to have at least. Returns whether the answer was complete."""
    assert response.status_code == 200, response.text
    if response.headers["Fleetlight-Complete"] != "true":
        return False
    shown = {server["id"]: int(server["name"]) for server in response.json()["servers"]}
    for cell in CELLS:
        uuids = {uuid for moment in world.recently(cell) for uuid in moment}
        of_cell = {uuid: number for uuid, number in shown.items() if uuid in uuids}
        assert of_cell in world.recently(cell), (cell, response.headers["Fleetlight-Route"])
    for uuid, number in tokens.items():
        assert shown[uuid] >= number, response.headers["Fleetlight-Route"]
    return True


@pytest.mark.parametrize("seed", range(4))
def test_complete_answers_are_complete_and_tokens_are_honoured(tmp_path: Path, seed: int) -> None:
    generator = random.Random(seed)
    complete = 0
    with world(tmp_path, timeout_s=0.2) as made:
        tokens: dict[str, tuple[str, int]] = {}
        for counter in range(1, STEPS + 1):
            cell = generator.choice(CELLS)
            known = list(made.names[cell])
            match generator.choice(["create", "rename", "rename", "index", "index", "fault", "heal", "reset", "wait"]):
                case "create":
                    uuid = made.fleet.create(cell, display_name=str(counter))
                    made.names[cell][uuid] = counter
                    tokens[uuid] = (f"{uuid}:1", counter)
                case "rename" if known:
                    uuid = generator.choice(known)
                    body = {"server": {"name": str(counter)}}
                    answer = made.api.request("PUT", f"/v2.1/servers/{uuid}", json=body)
                    assert answer.status_code == 200, answer.text
                    made.names[cell][uuid] = counter
                    tokens[uuid] = (answer.headers["Fleetlight-Token"], counter)
                case "index":
                    made.index(cell)
                case "fault":
                    made.faults.of[cell] = generator.choice(["down", "hang", "slow"])
                case "heal":
                    made.faults.heal()
                case "reset":
                    if generator.random() < 0.5:
                        made.fleet.searcher.is_broken = not made.fleet.searcher.is_broken
                    made.api.request("POST", "/fleetlight/safe-connect/reset")
            wanted = generator.sample(sorted(tokens), min(len(tokens), generator.randrange(3)))
            consistency = generator.choice(["any", "bounded", "strong"])
            if wanted:
                consistency = "at-least " + ",".join(tokens[uuid][0] for uuid in wanted)
            response = made.get("/v2.1/servers", consistency)
            complete += check_answer(made, response, {uuid: tokens[uuid][1] for uuid in wanted})
            made.tick()
    assert complete, "this checks nothing"


@pytest.mark.parametrize("fault", ["down", "hang", "slow"])
@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
def test_cell_that_fails_in_the_middle_of_paging_makes_no_page_wrong(
    tmp_path: Path, fault: str, has_index: bool
) -> None:
    with world(tmp_path, timeout_s=0.2 if fault == "hang" else 60) as made:
        for number in range(15):
            cell = CELLS[number % len(CELLS)]
            made.names[cell][made.fleet.create(cell, display_name=f"{number:02}")] = number
        if has_index:
            for cell in CELLS:
                made.index(cell)
            made.now_s += LIMIT_S + 1  # so that the cells are asked
        else:
            made.api = made.new_api(has_index=False)
        everything = {uuid for cell in CELLS for uuid in made.names[cell]}
        seen = page_through(made.get, "east", lambda: made.faults.of.update(east=fault), has_index=has_index)
        if has_index or fault == "slow":
            assert set(seen) == everything, "no row left out"
        made.faults.heal()
        wait_until(lambda: made.get("/v2.1/servers").headers["Fleetlight-Complete"] == "true")


def test_nothing_is_complete_while_nobody_can_say_which_cells_there_are(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        fleet.fill(6)
        is_away = False

        def list_cells() -> Sequence[Cell]:
            if is_away:
                raise FleetUnreachableError("somebody stopped it")
            return fleet.fleet.cells()

        pool = CellPool(list_cells, NativeAdapter, refresh_interval_s=0, list_timeout_s=60)
        api = fleet.api(pool=pool)
        for is_away in (False, True, False):
            for consistency in ("any", "bounded", "strong"):
                response = api.get("/v2.1/servers", {"Fleetlight-Consistency": consistency})
                assert len(response.json()["servers"]) == 6
                assert response.headers["Fleetlight-Complete"] == ("false" if is_away else "true")
            explained = api.get("/fleetlight/explain?request=GET+/v2.1/servers").json()
            assert (explained["complete"], len(explained["remarks"])) == ((False, 1) if is_away else (True, 0))
        fleet.close_pool(pool)


def test_row_that_moves_between_two_batches_of_its_cell_is_not_missed(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        uuids = [fleet.create("north", display_name=f"name-{number:02}") for number in range(12)]
        moved: list[str] = []

        class Moving(NativeAdapter):
            def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
                rows = super().read_page(request)
                if rows and not moved:
                    # From behind what was read to before it.
                    assert len(rows) < 10, "the page needs another batch"
                    moved.append(uuids[-1])
                    fleet.operations("north").update(moved[0], {"display_name": "name-00-and-a-half"})
                return rows

        pool = CellPool(fleet.fleet.cells, Moving)
        response = fleet.api(pool=pool).get(
            "/v2.1/servers?sort_key=display_name&sort_dir=asc&limit=10", {"Fleetlight-Consistency": "strong"}
        )
        assert response.headers["Fleetlight-Complete"] == "true"
        shown = [server["id"] for server in response.json()["servers"]]
        assert shown == [uuids[0], *moved, *uuids[1:9]]
        fleet.close_pool(pool)


def test_cell_that_is_removed_is_asked_itself_before_its_rows_leave_the_index(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet, closing(open_writer(fleet.index_settings)) as writer:
        uuids = fleet.fill(6)
        api = fleet.api()
        # It remembers for a moment that the index has everything.
        assert "south=index" in api.get("/v2.1/servers").headers["Fleetlight-Route"]
        paused: list[float] = []

        def pause(wait_s: float) -> None:
            paused.append(wait_s)
            assert writer.read(uuids).keys() == set(uuids), "nothing has left it yet"
            wait_until(lambda: "south=live" in api.get("/v2.1/servers").headers["Fleetlight-Route"])
            response = api.get("/v2.1/servers")
            assert response.headers["Fleetlight-Complete"] == "true"
            assert len(response.json()["servers"]) == 6

        south = fleet.cells["south"]
        fleet.fleet.set_disabled(south.uuid, True)
        with closing(CellLeases(fleet.fleet.open_leases("removal"))) as leases:
            remove_cell(
                fleet.fleet,
                south.uuid,
                writer,
                leases,
                is_relayed=lambda _: False,
                remove_bus=lambda _: None,
                deadline_s=0,
                on_wait=lambda _: None,
                on_batch=lambda _: None,
                pause=pause,
            )
        assert paused == [LISTS_DELAY_S]
        assert len(writer.read(uuids)) == 4


def test_restored_cell_is_asked_itself_before_rows_make_place_in_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_reconcile: Callable[[History], None] = History.begin_reconcile
    tell: Callable[[WarnedLists], None] = WarnedLists.warn
    routes: list[str] = []
    shown: list[str] = []
    has_told = Event()

    with compute_fleet(tmp_path) as fleet:
        changed = fleet.create("south")
        uuids = [*fleet.fill(6), changed]
        fleet.number_changes()
        backup = Backup(fleet.engine("south"), tmp_path)
        fleet.create("south")
        fleet.operations("south").update(changed, {"display_name": "lost"})
        fleet.number_changes()
        fleet.index()
        backup.restore()
        # The relay of a restored cell begins another epoch.
        fleet.number_changes()
        api = fleet.api()

        def route() -> str:
            return api.get("/v2.1/servers").headers["Fleetlight-Route"]

        def after_a_list(history: History) -> None:
            # So that it remembers for a moment that the index has everything.
            routes.append(route())
            begin_reconcile(history)

        def before_another_list(lists: WarnedLists) -> None:
            tell(lists)
            response = api.get("/v2.1/servers")
            routes.append(response.headers["Fleetlight-Route"])
            shown.extend(server["id"] for server in response.json()["servers"])
            has_told.set()

        monkeypatch.setattr(History, "begin_reconcile", after_a_list)
        monkeypatch.setattr(WarnedLists, "warn", before_another_list)
        with indexing(fleet.fleet, fleet.index_settings, lists_delay_s=2):
            assert has_told.wait(60)
    assert "south=index" in routes[0]
    assert "south=live" in routes[1]
    assert sorted(shown) == sorted(uuids)
