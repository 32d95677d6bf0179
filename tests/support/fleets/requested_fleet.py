"""A small fleet behind the compute API, filled anew with any servers, and asked by every route at once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from sqlalchemy import delete, insert

from fleetlight.cells.database.engines import writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import changes, instances
from fleetlight.indexer.backends.base import HORIZONS
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.query.retention import forgotten
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, searching
from tests.contract.faulty_cells import Faults, open_faulty
from tests.support.fleets.list_routes import Rows
from tests.support.oracles.filter_oracle import is_kept
from tests.support.oracles.list_oracle import Expected, Request, Times, expected_list

Change = tuple[str, str, Mapping[str, Any]]
"""Method, what follows the address of a server, and body of a request that changes it at once."""

# What the index follows of each cell never changes: all of north, what it has of east without a promise that this is
# everything, and of south all but what was deleted before the horizon.
COMPLETE, INCOMPLETE, PURGED = "north", "east", "south"
_OWN_HEADERS = ("fleetlight-", "x-openstack-request-id", "x-compute-request-id", "date")
NEWEST = {"OpenStack-API-Version": "compute 2.104"}
ANY, BOUNDED, STRONG = ({"Fleetlight-Consistency": word} for word in ("any", "bounded", "strong"))


class RequestedFleet:
    """The fleet, and its API over cells that can be down (`faults`)."""

    def __init__(self, fleet: ComputeFleet, horizon: int) -> None:
        self.fleet = fleet
        self.faults = Faults()
        self._horizon = horizon
        self._forgotten = forgotten(horizon)
        self._writer = open_writer(fleet.index_settings)
        self._indexed: dict[str, int] = {}
        fleet.index(COMPLETE, PURGED)
        fleet.index(INCOMPLETE, is_complete=False)
        self._writer.save_state(HORIZONS, {fleet.cells[PURGED].uuid: horizon})
        self._pool = CellPool(fleet.fleet.cells, partial(open_faulty, faults=self.faults), list_timeout_s=60)
        self.api = self.new_api()

    def new_api(self) -> Api:
        """An API that nobody has changed anything by."""
        return self.fleet.api(search=searching(staleness_limit_s=1e6, cell_timeout_s=60), pool=self._pool)

    def change(self, api: Api, rows: Mapping[str, list[dict[str, Any]]], uuid: str, change: Change) -> None:
        """Send such a request of its project, and note in `rows` what became of the server, which may be in its way."""
        [(cell, place)] = [
            (name, place)
            for name, records in rows.items()
            for place, record in enumerate(records)
            if record["uuid"] == uuid
        ]
        method, path, body = change
        project = {"X-Project-Id": rows[cell][place]["project_id"]}
        answer = api.request(method, f"/v2.1/servers/{uuid}{path}", {**NEWEST, **project}, json=body)
        assert answer.status_code < 300 or answer.status_code == 409, answer.text
        with closing(open_adapter(self.fleet.cells[cell])) as adapter:
            row = adapter.find(uuid)
        assert row is not None
        rows[cell][place] = dict(row.record)

    def fill(self, rows: Rows) -> None:
        """Replace everything: `rows` are in the cells, and in the index as far as that has them."""
        self._writer.remove(self._indexed)
        self._indexed = {}
        documents = []
        for name, cell in self.fleet.cells.items():
            records = [{**record, "revision": 1} for record in rows[name]]
            with writing(self.fleet.engine(name)) as connection:
                connection.execute(delete(instances))
                connection.execute(delete(changes))
                if records:
                    connection.execute(insert(instances), records)
            self.fleet.fleet.add_mappings(
                [
                    InstanceMapping(record["uuid"], cell.uuid, record["project_id"], record["user_id"], 0)
                    for record in rows[name]
                ]
            )
            for record in rows[name]:
                if name != PURGED or not is_kept(self._forgotten, record, INSTANCE_FIELDS):
                    documents.append(to_document(cell.uuid, 1, record))
                    self._indexed[record["uuid"]] = 1
        assert not self._writer.write(documents).rejected
        self._writer.make_searchable()

    def check(self, rows: Rows, request: Request, times: Times) -> None:
        """Every route gives what the contract says, the same bytes, and all pages, whichever route each comes by."""
        expected = expected_list((row for cell in rows.values() for row in cell), request, times)
        answers = [ask_for(self.api, request, how) for how in (ANY, BOUNDED, STRONG)]
        self.faults.of = {INCOMPLETE: "down"}
        try:
            while_down = ask_for(self.api, request, BOUNDED)
        finally:
            self.faults.heal()
        if expected.refused:
            assert answers[0].status_code in expected.refused, answers[0].text
            for answer in answers[1:]:
                assert_same(answers[0], answer)
            return
        for answer in answers:
            assert answer.status_code == 200, answer.text
            assert_same(answers[-1], answer)
        assert answers[-1].headers["Fleetlight-Complete"] == "true"
        check_while_down(while_down, answers[-1], {row["uuid"] for row in rows[INCOMPLETE]}, expected.limit)
        check_pages(self.api, expected, answers[-1], request)

    def check_once(self, rows: Rows, request: Request, times: Times) -> None:
        """The index and the cells give the first page that the contract says."""
        expected = expected_list((row for cell in rows.values() for row in cell), request, times)
        for how in (ANY, STRONG):
            answer = ask_for(self.api, request, how)
            if expected.refused:
                assert answer.status_code in expected.refused, (request, answer.text)
                return
            assert answer.status_code == 200, (request, answer.text)
            found = [server["id"] for server in answer.json()["servers"]]
            assert found == [*expected.uuids][: expected.limit], (request, how)

    def check_own_changes(self, api: Api, rows: Rows, request: Request, times: Times) -> None:
        """The lists of the project that has changed `rows` by `api` have the changes, which the index lacks."""
        expected = expected_list((row for cell in rows.values() for row in cell), request, times)
        answer = ask_for(api, request, {})
        assert_same(ask_for(api, request, STRONG), answer)
        if not expected.refused:
            assert answer.headers["Fleetlight-Complete"] == "true"
            check_pages(api, expected, answer, request, ({},))

    def close(self) -> None:
        self._writer.close()
        self.fleet.close_pool(self._pool)


def check_pages(
    api: Api,
    expected: Expected,
    first: httpx.Response,
    request: Request,
    hows: Sequence[Mapping[str, str]] = (STRONG, ANY, BOUNDED),
) -> None:
    """The pages from the `first` one on, each asked for in another of these ways, are the expected list."""
    found: list[str] = []
    answer, ways = first, cycle(hows)
    for _ in range(len(expected.uuids) + 2):
        page = [server["id"] for server in answer.json()["servers"]]
        found += page
        assert expected.limit is None or len(page) <= expected.limit
        links = answer.json().get("servers_links")
        assert (links is not None) == (bool(page) and len(page) == expected.limit)
        if links is None:
            break
        answer = _ask(api, links[0]["href"], request, next(ways))
        assert answer.status_code == 200, answer.text
    assert found == ([] if expected.limit == 0 else [*expected.uuids])


def ask_for(api: Api, request: Request, how: Mapping[str, str]) -> httpx.Response:
    """The answer to a request; how: headers about consistency."""
    return _ask(api, f"/v2.1/servers/detail?{urlencode(request.pairs)}", request, how)


def _ask(api: Api, url: str, request: Request, how: Mapping[str, str]) -> httpx.Response:
    asker = request.asker
    headers = {
        "OpenStack-API-Version": f"compute 2.{request.minor}",
        "X-Roles": "admin" if asker.is_admin else "member",
        "X-Project-Id": asker.project_id,
        "X-User-Id": asker.user_id,
    }
    return api.get(url, headers, how)


def check_while_down(
    answer: httpx.Response, whole: httpx.Response, of_the_cell: Collection[str], limit: int | None
) -> None:
    """The index stands in for the cell; where it cannot, the answer says so, and lacks nothing of the others."""
    if answer.headers.get("Fleetlight-Complete") == "true":
        assert_same(whole, answer)
    elif answer.status_code != 500 and limit is None:  # 500: nobody knows where the marker sorts
        listed, there = (
            [server["id"] for server in body.json()["servers"] if server["id"] not in of_the_cell]
            for body in (answer, whole)
        )
        assert listed == there


def assert_same(one: httpx.Response, other: httpx.Response) -> None:
    """Two answers differ in nothing but what says how they were made."""
    assert (one.status_code, one.text) == (other.status_code, other.text)
    assert _headers(one) == _headers(other)


def _headers(answer: httpx.Response) -> Sequence[tuple[str, str]]:
    return [(name, value) for name, value in answer.headers.multi_items() if not name.startswith(_OWN_HEADERS)]


@contextmanager
def requested_fleet(
    folder: Path, horizon: int, index: IndexSettings | None = None, new_database: Callable[[], str] | None = None
) -> Iterator[RequestedFleet]:
    with compute_fleet(folder, index, new_database) as fleet:
        requested = RequestedFleet(fleet, horizon)
        try:
            yield requested
        finally:
            requested.close()
