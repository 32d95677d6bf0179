"""Lists while the index or cells fail: nothing is lost in silence, nobody waits longer than the deadline."""

import asyncio
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import CellProgress, FoundPage, FoundRow
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.stream.liveness import ALIVE, Probe
from fleetlight.listing.progress_cache import IndexSlowError
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.views.projection import Projection
from tests.contract.compute_fleet import (
    CELLS,
    MEMBER,
    BrokenCells,
    ComputeFleet,
    CountingSearcher,
    hanging_pool,
    microversion,
    searching,
)
from tests.contract.conftest import own_fleet
from tests.support.waiting import wait_until

STRONG = {"Fleetlight-Consistency": "strong"}
ANY = {"Fleetlight-Consistency": "any"}
RESET = "/fleetlight/safe-connect/reset"
fleet = own_fleet


def test_index_pulled_away_in_the_middle_of_paging_gives_every_row_once(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(11)
    api = fleet.api()
    seen: list[str] = []
    routes: list[str] = []
    with capture_logs() as logs:
        for page in api.walk("/v2.1/servers?limit=3", MEMBER):
            seen += [server["id"] for server in page.json()["servers"]]
            routes.append(page.headers["Fleetlight-Route"])
            assert page.headers["Fleetlight-Complete"] == "true"
            if len(routes) == 2:
                fleet.take_index_away()
    assert seen == uuids
    assert routes == ["index", "index", "cells", "cells"]
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["index_unavailable"]


def test_index_that_failed_is_not_asked_again_until_the_flag_is_reset(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    assert len(api.ids("/v2.1/servers")) == 3
    fleet.take_index_away()
    assert len(api.ids("/v2.1/servers?deleted=false")) == 3
    asked = fleet.searcher.asked
    marker = api.ids("/v2.1/servers?limit=1")[0]
    assert len(api.ids(f"/v2.1/servers?marker={marker}")) == 2
    assert api.readiness()["index"] == "down"
    assert "fleetlight_safe_connect_tripped 1.0" in api.metrics()
    assert fleet.searcher.asked == asked
    assert api.request("POST", RESET).status_code == 204
    assert len(api.ids("/v2.1/servers")) == 3
    assert fleet.searcher.asked > asked


def test_index_that_is_not_there_yet_has_not_failed(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    fleet.take_index_away()
    response = api.get("/v2.1/servers")
    assert len(response.json()["servers"]) == 3
    assert response.headers["Fleetlight-Complete"] == "true"
    assert response.headers["Fleetlight-Route"] == "east=live, north=live, south=live"
    assert api.readiness()["index"] == "down"
    assert "fleetlight_safe_connect_tripped 0.0" in api.metrics()


def test_index_that_is_back_is_used_again_after_the_reset_of_an_administrator(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    api.index.safe_connect.trip(IndexUnavailableError("the index hung for a while"))
    assert api.get("/v2.1/servers", MEMBER).headers["Fleetlight-Route"] == "cells"
    refused = api.request("POST", RESET, MEMBER)
    assert refused.status_code == 403
    assert "safe-connect:reset" in refused.json()["forbidden"]["message"]
    assert api.get("/v2.1/servers", MEMBER).headers["Fleetlight-Route"] == "cells"
    assert api.request("POST", RESET).status_code == 204
    assert api.request("POST", RESET).status_code == 204, "nothing to reset is no error"
    assert api.get("/v2.1/servers", MEMBER).headers["Fleetlight-Route"] == "index"
    assert api.readiness()["index"] == "ok"


def test_search_that_is_not_enabled_never_asks_the_index(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    api = fleet.api(search=searching(enabled=False))
    response = api.get("/v2.1/servers")
    assert [server["id"] for server in response.json()["servers"]] == uuids
    assert response.headers["Fleetlight-Route"] == "east=live, north=live, south=live"
    assert api.readiness()["index"] == "off"
    assert fleet.searcher.asked == 0


def test_stale_incomplete_and_unknown_cells_are_asked_live(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    late = fleet.create("east")
    fleet.index("east", age_s=60)
    later = fleet.create("east")
    fleet.index("south", is_complete=False)
    api = fleet.api(search=searching(staleness_limit_s=30))
    bounded = api.get("/v2.1/servers")
    assert [server["id"] for server in bounded.json()["servers"]] == [later, late, *uuids]
    route = bounded.headers["Fleetlight-Route"]
    assert route.startswith("east=live, north=index;watermark=2;age=")
    assert route.endswith("south=live")
    assert bounded.headers["Fleetlight-Complete"] == "true"
    assert api.get("/v2.1/servers", MEMBER).headers["Fleetlight-Route"] == "mixed"
    as_it_is = api.get("/v2.1/servers", ANY)
    assert [server["id"] for server in as_it_is.json()["servers"]] == [late, *uuids]
    assert as_it_is.headers["Fleetlight-Complete"] == "false"


def test_disabled_cell_is_listed_by_itself_since_nobody_follows_it(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    fleet.index()
    fleet.index("east", age_s=60)
    fleet.fleet.set_disabled(fleet.cells["east"].uuid, True)
    late = fleet.create("east")
    response = fleet.api(search=searching(staleness_limit_s=30)).get("/v2.1/servers")
    assert [server["id"] for server in response.json()["servers"]] == [late, *uuids]
    assert response.headers["Fleetlight-Route"].startswith("east=live, north=index;")
    assert response.headers["Fleetlight-Complete"] == "true"


def test_index_that_lags_is_never_called_complete(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    fleet.index(age_s=60)
    late = fleet.create("east")
    response = fleet.api(search=searching(staleness_limit_s=30)).get("/v2.1/servers", ANY)
    assert late not in [server["id"] for server in response.json()["servers"]]
    assert response.headers["Fleetlight-Complete"] == "false"


def test_cell_whose_clock_is_ahead_is_not_fresh_for_ever(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    fleet.index("east", age_s=-600)
    late = fleet.create("east")
    response = fleet.api(search=searching(staleness_limit_s=30)).get("/v2.1/servers")
    assert late in [server["id"] for server in response.json()["servers"]]
    assert "east=live" in response.headers["Fleetlight-Route"]


def test_cells_alone_are_asked_for_a_page_of_strong_consistency(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    api = fleet.api()
    assert api.ids(f"/v2.1/servers?marker={uuids[0]}", STRONG) == uuids[1:]
    assert fleet.searcher.asked == 0


@pytest.mark.parametrize("route", ["index", "cells", "without index"])
def test_marker_of_a_deleted_server_keeps_its_place(fleet: ComputeFleet, route: str) -> None:
    uuids = fleet.fill(6)
    api = fleet.api(search=searching(enabled=route != "without index"))
    headers = STRONG if route == "cells" else {}
    assert api.ids("/v2.1/servers?limit=3", headers) == uuids[:3]
    cell = CELLS[(5 - 2) % 3]
    fleet.operations(cell).delete(uuids[2])
    fleet.index()
    assert api.ids(f"/v2.1/servers?marker={uuids[2]}", headers) == uuids[3:]
    other_process = fleet.api(search=searching(enabled=route != "without index"))
    assert other_process.ids(f"/v2.1/servers?marker={uuids[2]}", headers) == uuids[3:]


@pytest.mark.parametrize(
    ("query", "asks"),
    [("limit=2", False), ("limit=2&sort_key=created_at&sort_dir=asc", False), ("limit=2&sort_key=display_name", True)],
)
def test_where_a_page_ended_is_asked_for_only_if_the_row_may_have_moved(
    fleet: ComputeFleet, query: str, asks: bool
) -> None:
    fleet.fill(6)

    class FoundByUuid(CountingSearcher):
        found = 0

        async def search(
            self, request: PageRequest, cells: Collection[str], projection: Projection
        ) -> Sequence[FoundRow]:
            self.found += isinstance(request.filter, Eq) and request.filter.field == "uuid"
            return await super().search(request, cells, projection)

    fleet.searcher = FoundByUuid(fleet.index_settings)
    api = fleet.api()
    pages = list(api.walk(f"/v2.1/servers?{query}", MEMBER))
    assert [page.headers["Fleetlight-Route"] for page in pages] == ["index"] * 4
    assert len({server["id"] for page in pages for server in page.json()["servers"]}) == 6
    assert fleet.searcher.found == (3 if asks else 0)


def test_where_somebody_elses_page_ended_is_asked_for(fleet: ComputeFleet) -> None:
    theirs = fleet.create("east", project_id="other")
    fleet.index()
    api = fleet.api()
    assert api.ids("/v2.1/servers?limit=1&all_tenants=1") == [theirs]
    assert api.get(f"/v2.1/servers?marker={theirs}", MEMBER).status_code == 400


def test_marker_in_a_cell_that_is_down_keeps_its_place(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"north": 0}))
    in_north = next(uuid for uuid in uuids if fleet_cell(fleet, uuid) == "north")
    expected = uuids[uuids.index(in_north) + 1 :]
    found = api.ids(f"/v2.1/servers?marker={in_north}", STRONG)
    assert found == [uuid for uuid in expected if fleet_cell(fleet, uuid) != "north"]


def test_marker_that_only_a_cell_that_is_down_knows_is_an_error_and_not_another_page(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north")
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"north": 0}))
    response = api.get(f"/v2.1/servers?marker={uuid}")
    assert response.status_code == 500
    assert response.json()["computeFault"]["code"] == 500


CHANGES = [
    ("DELETE", "", None),
    ("PUT", "", {"server": {"name": "new"}}),
    ("POST", "/action", {"lock": None}),
    ("PUT", "/metadata", {"metadata": {"a": "b"}}),
]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ((NativeCells, "find"), CellUnreachableError("north", "it is stopped")),
        ((Fleet, "mapping_of"), FleetUnreachableError("it is stopped")),
    ],
    ids=["of the cell", "of the fleet"],
)
@pytest.mark.parametrize("change", CHANGES)
def test_change_is_to_be_tried_again_while_a_database_is_away(
    fleet: ComputeFleet,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[type, str],
    error: Exception,
    change: tuple[str, str, Any],
) -> None:
    method, path, body = change
    uuid = fleet.create("north")
    api = fleet.api()

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(*asked, fail)
    answer = api.request(method, f"/v2.1/servers/{uuid}{path}", **({} if body is None else {"json": body}))
    assert (answer.status_code, *answer.json()) == (503, "serviceUnavailable"), answer.text
    assert int(answer.headers["Retry-After"]) > 0
    assert "stopped" not in answer.text


def test_cell_that_is_down_is_listed_from_the_index_and_marked(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    fleet.index(age_s=60)
    api = fleet.api(search=searching(staleness_limit_s=30), pool=BrokenCells(fleet, failing_after={"east": 0}))
    for query in ("", "?limit=6&sort_key=created_at"):
        response = api.get(f"/v2.1/servers{query}")
        assert [server["id"] for server in response.json()["servers"]] == uuids
        assert response.headers["Fleetlight-Route"].startswith("east=index-while-down;watermark=2;age=60.")
        assert response.headers["Fleetlight-Complete"] == "false"


def test_cell_that_fails_in_the_middle_is_continued_by_the_index_without_a_gap(fleet: ComputeFleet) -> None:
    uuids = [fleet.create("east", display_name=f"web-{number:02}") for number in range(40)]
    fleet.index(age_s=60)
    api = fleet.api(search=searching(staleness_limit_s=30), pool=BrokenCells(fleet, failing_after={"east": 1}))
    response = api.get("/v2.1/servers?limit=40&sort_key=display_name&sort_dir=asc")
    assert [server["id"] for server in response.json()["servers"]] == uuids
    assert "east=index-while-down" in response.headers["Fleetlight-Route"]


def test_cell_that_fails_in_the_middle_without_an_index_makes_the_answer_incomplete(fleet: ComputeFleet) -> None:
    for number in range(40):
        fleet.create("east", display_name=f"web-{number:02}")
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"east": 1}))
    response = api.get("/v2.1/servers?limit=40", MEMBER)
    assert 0 < len(response.json()["servers"]) < 40
    assert response.headers["Fleetlight-Complete"] == "false"
    assert 'fleetlight_lists_total{complete="no",route="cells"} 1.0' in api.metrics()


@pytest.mark.parametrize("enabled", [True, False], ids=["index fails too", "no index"])
def test_hanging_cell_is_waited_for_only_once(fleet: ComputeFleet, enabled: bool) -> None:
    fleet.fill(6)
    fleet.index(age_s=60)
    pool = BrokenCells(fleet, hanging=["south"])
    api = fleet.api(search=searching(enabled=enabled, staleness_limit_s=30, cell_timeout_s=0.5), pool=pool)
    if enabled:
        # Its progress is remembered for a moment; it turns out to be gone when it should stand in for the cell.
        api.get("/v2.1/servers", ANY)
        fleet.take_index_away()
    response = api.get("/v2.1/servers")
    assert response.status_code == 200
    assert len(response.json()["servers"]) == 4
    assert response.headers["Fleetlight-Route"] == "east=live, north=live, south=skipped"
    assert pool.waited == 1


def test_hanging_cell_is_listed_from_the_index_without_being_asked_until_it_answers(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    fleet.index(age_s=60)
    with hanging_pool(fleet, "south") as pool:
        api = fleet.api(search=searching(staleness_limit_s=30, cell_timeout_s=0.2), pool=pool.cells)
        api.get("/v2.1/servers")
        # The event loop goes on only while it is asked.
        wait_until(lambda: api.readiness() and pool.cells.hanging())
        pages = pool.pages["south"]
        with capture_logs() as logs:
            api.get("/v2.1/servers")
        assert not [log for log in logs if log["event"] == "cell_unreachable" and "south" in log["reason"]], "said once"
        for url in ("/v2.1/servers/detail", "/v2.1/servers?limit=6&sort_key=created_at&sort_dir=desc&name=web"):
            response = api.get(url)
            assert [server["id"] for server in response.json()["servers"]] == uuids
            assert "south=index-while-down;watermark=2" in response.headers["Fleetlight-Route"]
            assert response.headers["Fleetlight-Complete"] == "false"
        assert pool.pages["south"] == pages
        ready = api.readiness()
        assert (ready["status"], ready["cells"]["south"]) == ("degraded", "hangs")
        south = fleet.cells["south"].uuid
        assert f'fleetlight_cell_hangs{{cell="{south}"}} 1.0' in api.metrics()

        pool.gate.set()

        wait_until(lambda: api.get("/v2.1/servers").headers["Fleetlight-Complete"] == "true")
        assert f'fleetlight_cell_hangs{{cell="{south}"}} 0.0' in api.metrics()


def test_hanging_cell_found_by_other_requests_costs_a_list_nothing(fleet: ComputeFleet) -> None:
    in_south, *_ = uuids = fleet.fill(6)
    fleet.index(age_s=60)
    with hanging_pool(fleet, "south") as pool:
        api = fleet.api(search=searching(staleness_limit_s=30, cell_timeout_s=0.2), pool=pool.cells)
        wait_until(lambda: api.get(f"/v2.1/servers/{in_south}/metadata").status_code == 500 and pool.cells.hanging())
        assert api.ids("/v2.1/servers") == uuids
        assert pool.pages["south"] == 0


def test_request_can_shorten_the_deadline_of_cells_and_never_lengthens_it(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    fleet.index(age_s=60)
    asked: list[float] = []

    class Deadlines(BrokenCells):
        async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
            asked.append(timeout_s)
            return await super().read_page(cell_uuid, request, timeout_s)

    api = fleet.api(search=searching(cell_timeout_s=30), pool=Deadlines(fleet))
    for header, longest in (("20", 20.0), ("600", 30.0), (" 12.5 ", 12.5)):
        asked.clear()
        timeout = {"Fleetlight-Cell-Timeout": header}
        assert api.ids(f"/v2.1/servers?marker={uuids[0]}", STRONG, timeout) == uuids[1:]
        assert max(asked) <= longest


@pytest.mark.parametrize("value", ["0", "0.0", "-1", "soon", "", "1e3", "nan", "inf", "1;2", "9999999"])
def test_deadline_that_is_no_number_of_seconds_is_refused(fleet: ComputeFleet, value: str) -> None:
    response = fleet.api().get("/v2.1/servers", {"Fleetlight-Cell-Timeout": value})
    assert response.status_code == 400
    assert "header Fleetlight-Cell-Timeout" in response.json()["badRequest"]["message"]


def test_index_that_is_slow_is_not_waited_out_before_the_cells_are_asked(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    gate = asyncio.Event()

    class SlowIndex(CountingSearcher):
        async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
            await gate.wait()
            return await super().page(request, cells, projection)

    fleet.searcher = SlowIndex(fleet.index_settings)
    api = fleet.api(search=searching(index_deadline_s=0.1))
    for _ in range(2):
        response = api.get("/v2.1/servers", MEMBER)
        assert [server["id"] for server in response.json()["servers"]] == uuids
        assert (response.headers["Fleetlight-Route"], response.headers["Fleetlight-Complete"]) == ("cells", "true")
    assert not api.index.safe_connect.is_tripped, "it may be one heavy question"
    gate.set()
    wait_until(lambda: api.get("/v2.1/servers", MEMBER).headers["Fleetlight-Route"] == "index")


class LateIndex(CountingSearcher):
    """Answers only once cells were asked in its place, and in vain."""

    def __init__(self, settings: IndexSettings) -> None:
        super().__init__(settings)
        self.cells_failed = asyncio.Event()

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        await self.cells_failed.wait()
        return await super().page(request, cells, projection)

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        await self.cells_failed.wait()
        return await super().search(request, cells, projection)

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        await self.cells_failed.wait()
        return await super().count(request, cells)


@pytest.mark.parametrize("age_s", [0, 600], ids=["fresh", "old"])
def test_old_rows_are_shown_where_index_and_cells_are_late(fleet: ComputeFleet, age_s: int) -> None:
    uuids = fleet.fill(6)
    fleet.index(age_s=age_s)
    fleet.searcher = late = LateIndex(fleet.index_settings)

    class FailingCells(BrokenCells):
        async def _misbehave(self, cell_uuid: str, timeout_s: float) -> None:
            late.cells_failed.set()
            await super()._misbehave(cell_uuid, timeout_s)

    settings = searching(staleness_limit_s=30, index_deadline_s=0.2, cell_timeout_s=2)
    api = fleet.api(search=settings, pool=FailingCells(fleet, failing_after=dict.fromkeys(CELLS, 0)))
    response = api.get("/v2.1/servers")
    assert [server["id"] for server in response.json()["servers"]] == uuids
    assert response.headers["Fleetlight-Complete"] == "false"
    routes = response.headers["Fleetlight-Route"]
    assert routes.count("=index-while-down;") == 3
    assert all(float(age) >= age_s for age in re.findall("age=([0-9.]+)", routes))
    late.cells_failed.clear()
    counted = api.get("/fleetlight/query/counts?all_projects=1")
    assert counted.json()["groups"][0]["count"] == 6
    assert counted.headers["Fleetlight-Complete"] == "false"
    strong = api.get("/v2.1/servers", STRONG)
    assert (strong.headers["Fleetlight-Complete"], strong.headers["Fleetlight-Route"].count("=skipped")) == ("false", 3)


class HangingIndex(CountingSearcher):
    """Tells its progress once, and then answers nothing before `own_limit` ends every query."""

    def __init__(self, settings: IndexSettings) -> None:
        super().__init__(settings)
        self.own_limit = threading.Event()
        self.searches: list[Collection[str]] = []
        self._is_known = False

    async def progress(self) -> Mapping[str, CellProgress]:
        if self._is_known:
            await self._hang()
        self._is_known = True
        return await super().progress()

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        self.searches.append(cells)
        await self._hang()

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        await self._hang()

    async def _hang(self) -> NoReturn:
        await asyncio.to_thread(self.own_limit.wait)
        raise IndexUnavailableError("no answer within 5 s")


def test_index_that_hangs_is_waited_for_once_and_no_longer_than_the_request_lets_a_cell_take(
    fleet: ComputeFleet,
) -> None:
    fleet.fill(6)
    fleet.index(age_s=600)
    fleet.searcher = index = HangingIndex(fleet.index_settings)
    settings = searching(staleness_limit_s=30, index_deadline_s=0.2, cell_timeout_s=60)
    api = fleet.api(search=settings, pool=BrokenCells(fleet, failing_after={"east": 0}))
    assert api.run(api.index.progress())
    response = api.get("/v2.1/servers", {"Fleetlight-Cell-Timeout": "0.3"})
    assert response.headers["Fleetlight-Route"] == "east=skipped, north=live, south=live"
    assert len(response.json()["servers"]) == 4
    assert index.searches == [{fleet.cells["east"].uuid}]
    began = time.monotonic()
    for path in ("/v2.1/servers", "/fleetlight/query/counts?all_projects=1"):
        assert api.get(path).headers["Fleetlight-Route"] == "east=skipped, north=live, south=live"
    assert time.monotonic() - began < 30, "one has waited as long as for a cell"
    index.own_limit.set()
    wait_until(lambda: api.readiness() and api.index.safe_connect.is_tripped)
    index.searches.clear()
    assert len(api.get("/v2.1/servers").json()["servers"]) == 4
    assert index.searches == []


def test_late_index_that_cannot_express_the_filter_leaves_the_cells_that_answer(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.fill(6)
    fleet.index()
    api = fleet.api(search=searching(), pool=BrokenCells(fleet, failing_after={"east": 0}))
    assert api.run(api.index.progress())
    monkeypatch.setattr(api.index, "progress", AsyncMock(side_effect=IndexSlowError("it has much to do")))
    monkeypatch.setattr(fleet.searcher, "search", AsyncMock(side_effect=NotExpressibleError("the index", "a pattern")))
    response = api.get("/v2.1/servers")
    assert response.headers.get("Fleetlight-Route") == "east=skipped, north=live, south=live"


def test_hanging_cell_of_the_marker_is_waited_for_only_once(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    fleet.index(age_s=60)
    pool = BrokenCells(fleet, hanging=["south"])
    api = fleet.api(search=searching(staleness_limit_s=30, cell_timeout_s=0.5), pool=pool)
    marker = next(uuid for uuid in uuids if fleet_cell(fleet, uuid) == "south")
    assert api.ids(f"/v2.1/servers?marker={marker}") == uuids[uuids.index(marker) + 1 :]
    assert pool.waited == 1


def test_cell_that_nobody_can_answer_for_gives_minimal_items_where_the_contract_wants_them(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    others = fleet.create("east", project_id="other")
    deleted = fleet.create("east")
    fleet.operations("east").delete(deleted)
    api = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"east": 0}))
    unknown = next(uuid for uuid in uuids if fleet_cell(fleet, uuid) == "east")
    known = [uuid for uuid in uuids if uuid != unknown]
    latest = microversion("latest")

    short = api.get("/v2.1/servers", latest).json()["servers"]
    assert [server["id"] for server in short] == [unknown, *known]
    assert set(short[0]) == {"id", "status", "links"}
    full = api.get("/v2.1/servers/detail", latest).json()["servers"]
    assert set(full[0]) == {"id", "status", "tenant_id", "created", "links"}
    assert full[0]["status"] == "UNKNOWN"
    assert set(api.ids("/v2.1/servers?all_tenants=1", latest)) == {*uuids, others}
    assert api.ids("/v2.1/servers", microversion("2.68")) == known
    assert api.ids("/v2.1/servers?name=web", latest) == known
    assert api.ids("/v2.1/servers?limit=9", latest) == known
    assert api.get("/v2.1/servers", latest).headers["Fleetlight-Complete"] == "false"


def test_page_of_minimal_items_alone_links_on_and_does_not_end_in_silence(fleet: ComputeFleet) -> None:
    uuids = [fleet.create("east") for _ in range(3)]
    api = fleet.api(
        search=searching(enabled=False),
        settings=ApiSettings(max_limit=2),
        pool=BrokenCells(fleet, failing_after={"east": 0}),
    )
    page = api.get("/v2.1/servers", microversion("2.69")).json()
    assert [server["id"] for server in page["servers"]] == sorted(uuids)[:2]
    href = page["servers_links"][0]["href"]
    assert href.endswith(f"?marker={page['servers'][1]['id']}")
    # The contract has no items of cells that are down behind a marker.
    assert api.get(href, microversion("2.69")).status_code == 500


def test_one_server_of_a_cell_that_is_not_listed_yet_is_not_complete(fleet: ComputeFleet) -> None:
    api = fleet.api()
    api.ids("/v2.1/servers")
    new = fleet.fleet.add_cell("west", CellKind.NATIVE, "sqlite:///west.db", "memory://")
    uuid = str(uuid4())
    fleet.fleet.add_mappings([InstanceMapping(uuid, new.uuid, "demo", "ada", 0)])
    response = api.get(f"/v2.1/servers/{uuid}", microversion("2.69"))
    assert response.json()["server"]["status"] == "UNKNOWN"
    assert response.headers["Fleetlight-Complete"] == "false"
    assert response.headers["Fleetlight-Route"].endswith(f"{new.uuid}=skipped")


def test_one_server_of_a_cell_that_is_down(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east")
    others = fleet.create("east", project_id="other")
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    response = api.get(f"/v2.1/servers/{uuid}", microversion("2.71"))
    assert response.status_code == 200
    assert response.headers["Fleetlight-Complete"] == "false"
    server = response.json()["server"]
    assert set(server) == {
        "id",
        "status",
        "tenant_id",
        "created",
        "links",
        "user_id",
        "flavor",
        "image",
        "OS-EXT-AZ:availability_zone",
        "OS-EXT-STS:power_state",
        "server_groups",
    }
    assert api.get(f"/v2.1/servers/{uuid}", microversion("2.68")).json()["computeFault"]["code"] == 500
    assert api.get(f"/v2.1/servers/{others}", MEMBER, microversion("2.71")).status_code == 404


def test_flavor_and_image_of_a_server_whose_cell_is_down_come_from_the_index(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", image_ref="abc", image_properties={"a": "b"}, availability_zone="az1")
    fleet.index()
    pool = BrokenCells(fleet, failing_after={"east": 0})
    known, unknown = (
        fleet.api(search=searching(enabled=enabled), pool=pool)
        .get(f"/v2.1/servers/{uuid}", microversion("2.104"))
        .json()["server"]
        for enabled in (True, False)
    )
    links = [{"rel": "bookmark", "href": "http://api.test/images/abc"}]
    assert known["image"] == {"id": "abc", "links": links, "properties": {"a": "b"}}
    assert known["OS-EXT-AZ:availability_zone"] == "az1"
    assert (unknown["image"], unknown["flavor"], unknown["OS-EXT-AZ:availability_zone"]) == ("", {}, "UNKNOWN")
    assert (known["status"], unknown["status"]) == ("ACTIVE", "UNKNOWN")
    assert known.keys() > unknown.keys()


def test_readiness_names_the_parts_that_are_down(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    assert fleet.api().get("/healthz").json() == {"status": "ok"}
    api = fleet.api()
    assert api.get("/readyz").json() == {"status": "ready"}
    assert api.readiness() == {
        "status": "ready",
        "index": "ok",
        "fleet": "ok",
        "clock": "ok",
        "cells": {"east": "ok", "north": "ok", "south": "ok"},
    }
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0}))
    degraded = api.get("/readyz")
    assert (degraded.status_code, degraded.json()) == (200, {"status": "degraded"})
    assert api.readiness()["cells"]["east"] == "down"
    nothing = BrokenCells(fleet, failing_after=dict.fromkeys(CELLS, 0))
    assert fleet.api(pool=nothing).get("/readyz").status_code == 200
    unavailable = fleet.api(search=searching(enabled=False), pool=nothing).get("/readyz")
    assert (unavailable.status_code, unavailable.json()) == (503, {"status": "unavailable"})


def test_public_addresses_name_no_cell_and_measure_nothing(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    assert api.get("/metrics").status_code == api.get("/nothing").status_code
    assert "fleetlight_" not in api.get("/metrics").text
    for path in ("/readyz", "/healthz", "/metrics", "/openapi.json", "/"):
        text = api.get(path).text
        assert not [name for name, cell in fleet.cells.items() if f'"{name}"' in text or cell.uuid in text]


def test_health_and_readiness_speak_for_an_indexer_in_the_same_process(fleet: ComputeFleet) -> None:
    class Indexer:
        is_stuck = False

        def healthz(self) -> Probe:
            return Probe(False, {"status": "stuck", "cells": ["east"]}) if self.is_stuck else ALIVE

        def readyz(self) -> Probe:
            return Probe(True, {"status": "degraded" if self.is_stuck else "ready"})

    fleet.fill(3)
    indexer = Indexer()
    api = fleet.api(indexer=indexer)
    assert api.get("/healthz").json() == {"status": "ok"}
    assert (api.get("/readyz").json(), api.readiness()["indexer"]) == ({"status": "ready"}, {"status": "ready"})
    indexer.is_stuck = True
    stuck = api.get("/healthz")
    assert (stuck.status_code, stuck.json()) == (503, {"status": "stuck"})
    assert api.run(api.application.health.healthz()) == Probe(False, {"status": "stuck", "cells": ["east"]})
    assert (api.get("/readyz").status_code, api.get("/readyz").json()["status"]) == (200, "degraded")


def test_metrics_tell_routes_and_how_far_the_index_is(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    api.ids("/v2.1/servers")
    api.ids("/v2.1/servers", STRONG)
    api.ids("/v2.1/servers?limit=0")  # asks nobody
    metrics = api.metrics()
    assert 'fleetlight_list_duration_seconds_count{route="index"} 1.0' in metrics
    assert 'fleetlight_list_duration_seconds_count{route="cells"} 1.0' in metrics
    assert 'fleetlight_lists_total{complete="yes",route="index"} 1.0' in metrics
    assert 'fleetlight_lists_total{complete="no",route="index"} 0.0' in metrics
    assert "\nfleetlight_api_fleet_reachable 1.0\n" in metrics
    north = fleet.cells["north"].uuid
    assert f'fleetlight_cell_info{{cell="{north}",name="north"}} 1.0' in metrics
    assert f'fleetlight_api_index_watermark{{cell="{north}"}} 1.0' in metrics
    assert "fleetlight_safe_connect_tripped 0.0" in metrics


def fleet_cell(fleet: ComputeFleet, uuid: str) -> str:
    """The name of the cell of an instance."""
    mapping = fleet.fleet.mapping_of(uuid)
    assert mapping is not None
    return next(name for name, cell in fleet.cells.items() if cell.uuid == mapping.cell_uuid)


def test_requests_are_counted_by_route_without_what_callers_call_things(fleet: ComputeFleet) -> None:
    uuid = fleet.create("north")
    api = fleet.api()
    assert api.get(f"/v2.1/servers/{uuid}").status_code == 200
    assert api.get("/v2/servers/no-such-server").status_code == 404
    assert api.get("/2/instances/no-such-instance").status_code == 404
    assert api.get("/v2.1/%ff").status_code == 404
    metrics = api.metrics()
    for route, status in (
        ("/v2.1/servers/{server_id}", 200),
        ("/v2/servers/{server_id}", 404),
        ("/2/instances/{instance}", 404),
        ("unknown", 404),
    ):
        labels = f'{{method="GET",route="{route}",status="{status}"}}'
        assert f"fleetlight_api_requests_total{labels} 1.0" in metrics
    assert uuid not in metrics
