"""`GET /fleetlight/changes`: what changed in what a filter lets pass, for programs that keep a copy."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from sqlalchemy import update

from fleetlight.api.settings import ApiSettings
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import changes
from tests.contract.compute_fleet import CELLS, MEMBER, Api, ComputeFleet, hanging_pool
from tests.contract.conftest import own_fleet
from tests.contract.streams import STREAM, stream
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.servers.backups import Backup

CHANGES = "/fleetlight/changes"
WEB = "name =~ m/^web/"
DOCUMENTED = Path(__file__).parents[2] / "docs/reference/changes.md"
KEYED = ApiSettings(watch_key="a secret of sixteen letters")
IN_NORTH = 'cell == "north"'
fleet = own_fleet


class Poll:
    """An answer of the feed."""

    def __init__(self, api: Api, headers: Mapping[str, str] = MEMBER, **parameters: Any) -> None:
        answer = api.get(f"{CHANGES}?{urlencode(parameters)}", headers)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "application/jsonl"
        *self.changes, self.end = [json.loads(line) for line in answer.text.splitlines()]
        assert self.end["kind"] == "end"
        self.cursor: str = self.end["cursor"]

    @property
    def kinds(self) -> Sequence[tuple[str, str]]:
        return [(change["kind"], change["id"]) for change in self.changes]


def change(fleet: ComputeFleet, cell: str, uuid: str, **values: Any) -> None:
    fleet.operations(cell).update(uuid, values)
    fleet.number_changes()


def create(fleet: ComputeFleet, cell: str = "north", **values: Any) -> str:
    uuid = fleet.create(cell, **values)
    fleet.number_changes()
    return uuid


def test_changes_enter_change_and_leave_what_a_filter_lets_pass(fleet: ComputeFleet) -> None:
    api = fleet.api()
    other = create(fleet, display_name="db")
    asked: dict[str, Any] = {"filter": WEB, "fields": "name,nonsense"}
    start = Poll(api, **asked)
    assert (start.changes, start.end["complete"], start.end["more"]) == ([], True, False)
    uuid = create(fleet, display_name="web")
    change(fleet, "north", uuid, display_name="web-2")
    change(fleet, "north", uuid, display_name="db")
    change(fleet, "north", uuid, display_name="db-2")
    change(fleet, "north", other, display_name="web-other")
    fleet.operations("north").delete(other)
    fleet.number_changes()
    poll = Poll(api, **asked, after=start.cursor)
    assert poll.kinds == [
        ("enter", uuid),
        ("change", uuid),
        ("leave", uuid),
        ("enter", other),
        ("leave", other),
    ]
    first, second, third = poll.changes[:3]
    assert (first["cells"], second["cells"]) == ([[0, "web"], [1, None]], [[0, "web-2"], [1, None]])
    assert "cells" not in third
    assert [each["revision"] for each in poll.changes[:3]] == [1, 2, 3]
    assert first["at"].endswith("Z")
    assert Poll(api, **asked, after=poll.cursor).changes == []


def test_cells_of_a_change_are_those_of_a_query(fleet: ComputeFleet) -> None:
    api = fleet.api()
    names = "name,status,cell,serial_no,be/memory,oper_state,tags,ctime,hidden"
    asked = {"fields": names, "filter": 'serial_no == 2 and cell != "east"', "all_projects": 1}
    start = Poll(api, {}, **asked)
    for cell in CELLS:
        change(fleet, cell, create(fleet, cell), display_name=f"web-{cell}")
    poll = Poll(api, {}, **asked, after=start.cursor)
    listed = api.get(f"/fleetlight/query?fields={quote(names)}&all_projects=1", {"Fleetlight-Consistency": "strong"})
    assert [each["cell"] for each in poll.changes] == [each["cells"][2][1] for each in poll.changes]
    assert sorted(each["cells"] for each in poll.changes) == sorted(
        row for row in listed.json()["data"] if row[2][1] != "east"
    )


def test_members_get_their_project_alone_and_learn_nothing_of_cells(fleet: ComputeFleet) -> None:
    api = fleet.api()
    start, everything = Poll(api), Poll(api, {}, all_projects=1)
    create(fleet, project_id="other")
    mine = create(fleet, "east")
    poll = Poll(api, after=start.cursor)
    assert poll.kinds == [("enter", mine)]
    assert "cell" not in poll.changes[0]
    assert "cells" not in poll.end
    assert len(Poll(api, {}, after=everything.cursor, all_projects=1).changes) == 2


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({"what": "nonsense"}, 404, "no item type"),
        ({"filter": 'nonsense == "1"'}, 400, "nonsense"),
        ({"filter": "=="}, 400, "filter"),
        ({"filter": 'ctime > "10m ago"'}, 400, "or, in a list, '10m ago'"),
        ({"wait": "61"}, 400, "wait: '61' is no number of seconds from 0 to 60"),
        ({"wait": "-1"}, 400, "wait"),
        ({"order": "name"}, 400, "there is no parameter 'order'"),
        ({"all_projects": "perhaps"}, 400, "neither true nor false"),
        ({"fields": ",".join(["name"] * 5)}, 400, "it may be 4 times"),
        ({"filter": " or ".join(["serial_no > 1"] * 251)}, 400, "251 conditions"),
    ],
)
def test_what_is_not_followed_or_costs_too_much_is_refused_by_name(
    fleet: ComputeFleet, parameters: Mapping[str, str], status: int, words: str
) -> None:
    for headers in ({}, STREAM):
        answer = fleet.api().get(f"{CHANGES}?{urlencode(parameters)}", headers)
        assert answer.status_code == status, answer.text
        (fault,) = answer.json().values()
        assert words in fault["message"]


def test_members_may_not_ask_for_other_projects_nor_by_fields_of_hosts(fleet: ComputeFleet) -> None:
    api = fleet.api()
    assert api.get(f"{CHANGES}?all_projects=1", MEMBER).status_code == 403
    assert api.get(f"{CHANGES}?{urlencode({'filter': IN_NORTH})}", MEMBER).status_code == 400


def numbered(fleet: ComputeFleet, change: Callable[[ChangingNodes], object], cell: str = "north") -> ChangingNodes:
    """A change of the nodes of a cell, which its relay has numbered."""
    nodes = ChangingNodes(fleet.engine(cell), fleet.fleet, fleet.cells[cell], ())
    change(nodes)
    fleet.number_changes()
    return nodes


def uuids_of_nodes(api: Api) -> Mapping[str, str]:
    rows = api.get("/fleetlight/query?what=node&fields=name,uuid", {"Fleetlight-Consistency": "strong"}).json()["data"]
    return {name: uuid for (_, name), (_, uuid) in rows}


def test_changes_of_nodes_enter_change_and_leave_what_a_filter_lets_pass(fleet: ComputeFleet) -> None:
    api = fleet.api()
    of_nodes: dict[str, Any] = {"what": "node", "fields": "name,role,cell,nonsense"}
    of_offline: dict[str, Any] = {"what": "node", "filter": "offline", "fields": "name,offline"}
    start, whole, instances = Poll(api, {}, **of_offline), Poll(api, {}, **of_nodes), Poll(api, {}, all_projects=1)
    numbered(fleet, lambda nodes: nodes.add("one", "two"))
    create(fleet)
    known = uuids_of_nodes(api)
    entered = Poll(api, {}, **of_nodes, after=whole.cursor)
    assert sorted(entered.kinds) == sorted(("enter", uuid) for uuid in known.values())
    assert entered.changes[0]["cells"] == [[0, "one"], [0, "R"], [0, "north"], [1, None]]
    assert (entered.changes[0]["cell"], entered.changes[0]["revision"]) == ("north", 1)
    assert entered.changes[0]["at"].endswith("Z")
    numbered(fleet, lambda nodes: nodes.force_down("one", forced_down=True))
    down = Poll(api, {}, **of_offline, after=start.cursor)
    assert (down.kinds, down.changes[0]["cells"]) == ([("change", known["one"])], [[0, "one"], [0, True]])
    numbered(fleet, lambda nodes: nodes.force_down("one", forced_down=False))
    before = Poll(api, {}, **of_nodes, after=entered.cursor)
    up = Poll(api, {}, **of_offline, after=down.cursor)
    assert up.kinds == [("leave", known["one"])]
    numbered(fleet, lambda nodes: nodes.remove("two"))
    assert Poll(api, {}, **of_nodes, after=before.cursor).kinds == [("leave", known["two"])]
    assert Poll(api, {}, after=instances.cursor, all_projects=1).kinds[1:] == [], "nodes are no instances"


def test_only_administrators_follow_nodes(fleet: ComputeFleet) -> None:
    assert fleet.api().get(f"{CHANGES}?what=node", MEMBER).status_code == 404


def test_nodes_are_followed_through_the_same_stream(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, "what=node&fields=name", path=CHANGES) as watch:
            assert (await watch.next()).name == "ready"
            numbered(fleet, lambda nodes: nodes.add("one"))
            entered = await watch.next()
            assert (entered.name, entered.data["cells"]) == ("enter", [[0, "one"]])

    api.run(scenario())


def test_nodes_of_cells_that_number_them_are_followed_where_others_are(fleet: ComputeFleet) -> None:
    fleet.fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere/nova.db", "")
    api = fleet.api()
    refused = api.get(f"{CHANGES}?what=node")
    assert refused.status_code == 400
    assert "nothing numbers the changes of the nodes of these cells: nova" in refused.text
    start = Poll(api, {}, what="node", filter=IN_NORTH)
    assert (start.end["complete"], start.end["cells"].keys()) == (True, {"north"})
    numbered(fleet, lambda nodes: nodes.add("one"), "east")
    numbered(fleet, lambda nodes: nodes.add("one"))
    found = Poll(api, {}, what="node", filter=IN_NORTH, after=start.cursor)
    assert [change["cell"] for change in found.changes] == ["north"]


def test_change_of_a_node_that_cannot_be_read_begins_anew(fleet: ComputeFleet) -> None:
    api = fleet.api()
    cursor = Poll(api).cursor
    numbered(fleet, lambda nodes: nodes.add("one"))
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(changes).values(message=b"{}"))
    assert gone(api, cursor) == "unreadable-row"


def gone(api: Api, cursor: str, headers: Mapping[str, str] = MEMBER, **parameters: str) -> str:
    """The reason for which a cursor is refused."""
    answer = api.get(f"{CHANGES}?{urlencode({'after': cursor, **parameters})}", headers)
    assert answer.status_code == 410, answer.text
    (fault,) = answer.json().values()
    assert (fault["code"], fault["start"]) == (410, CHANGES)
    assert "take a new cursor from /fleetlight/changes" in fault["message"]
    return str(fault["reason"])


def test_cursor_that_is_too_old_is_gone(fleet: ComputeFleet) -> None:
    api = fleet.api()
    cursor = Poll(api).cursor
    create(fleet, "south")
    create(fleet, "south")
    fleet.forget_changes("south")
    create(fleet, "south")
    assert gone(api, cursor) == "forgotten"


def test_cursor_of_what_a_restore_took_back_is_gone(fleet: ComputeFleet, tmp_path: Path) -> None:
    api = fleet.api()
    create(fleet, "south")
    backup = Backup(fleet.engine("south"), tmp_path)
    create(fleet, "south")
    cursor = Poll(api).cursor
    backup.restore()
    create(fleet, "south")
    create(fleet, "south")
    assert gone(api, cursor) == "restored"


def test_cursor_that_knows_a_cell_which_has_left_is_gone(fleet: ComputeFleet) -> None:
    cursor = Poll(fleet.api(settings=KEYED)).cursor
    fleet.remove_cell("south")
    pool = CellPool(fleet.fleet.cells, open_adapter)
    assert gone(fleet.api(settings=KEYED, pool=pool), cursor) == "cell-left"
    fleet.close_pool(pool)


def test_cursor_cannot_be_read_or_changed(fleet: ComputeFleet) -> None:
    api = fleet.api()
    cursor = Poll(api).cursor
    assert all(uuid not in cursor for uuid in (cell.uuid for cell in fleet.cells.values()))
    middle = len(cursor) // 2
    changed = cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :]
    assert gone(api, changed) == gone(api, "nonsense") == "unknown-cursor"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"filter": WEB},
        {"filter": 'name == "other"', "fields": "name"},
        {"filter": WEB, "fields": "name,status"},
        {"filter": WEB, "fields": "name", "what": "node"},
        {"filter": WEB, "fields": "name", "all_projects": "1"},
    ],
)
def test_cursor_goes_on_for_what_it_was_made_for_alone(fleet: ComputeFleet, asked: Mapping[str, str]) -> None:
    api = fleet.api()
    cursor = Poll(api, {}, filter=WEB, fields="name").cursor
    uuid = create(fleet, display_name="web-1")
    assert gone(api, cursor, {}, **asked) == "other-question"
    assert Poll(api, {}, filter=WEB, fields="name", what="instance", wait="0", after=cursor).kinds == [("enter", uuid)]


def test_cursor_of_one_project_is_none_of_another(fleet: ComputeFleet) -> None:
    api = fleet.api()
    another = {**MEMBER, "X-Project-Id": "another"}
    cursor = Poll(api, another).cursor
    assert gone(api, cursor) == "other-question"
    assert Poll(api, another, after=cursor).changes == []


def test_stream_of_a_cursor_that_was_made_for_something_else_says_so(fleet: ComputeFleet) -> None:
    api = fleet.api()
    cursor = Poll(api).cursor

    async def scenario() -> None:
        async with stream(api, urlencode({"filter": WEB}), MEMBER, last_id=cursor, path=CHANGES) as watch:
            assert (await watch.next()).name == "ready"
            reset = await watch.next()
            assert reset.name == "reset"
            assert reset.data["reason"].startswith("it was made for another filter")

    api.run(scenario())


def test_cursor_goes_on_in_another_process_with_the_same_key(fleet: ComputeFleet) -> None:
    one, another = (fleet.api(settings=KEYED) for _ in range(2))
    cursor = Poll(one).cursor
    uuid = create(fleet)
    assert Poll(another, after=cursor).kinds == [("enter", uuid)]


def test_changes_of_a_cell_that_is_away_come_when_it_is_back(fleet: ComputeFleet) -> None:
    cursor = Poll(fleet.api(settings=KEYED), {}).cursor
    with hanging_pool(fleet, "south") as pool:
        api = fleet.api(settings=KEYED, pool=pool.cells)
        south, north = create(fleet, "south"), create(fleet, "north")
        away = Poll(api, {}, after=cursor)
        assert away.kinds == [("enter", north)]
        assert away.end["complete"] is False
        assert {name: each["state"] for name, each in away.end["cells"].items()} == {
            "north": "followed",
            "east": "followed",
            "south": "down",
        }
        assert away.end["cells"]["south"]["reason"]
        again = Poll(api, MEMBER, after=away.cursor)
        assert (again.changes, again.end) == (
            [],
            {"kind": "end", "cursor": again.cursor, "more": False, "complete": False},
        )
        pool.gate.set()
        back = Poll(api, {}, after=again.cursor, wait=30)
        while not back.changes:
            back = Poll(api, {}, after=back.cursor, wait=30)
        assert back.kinds == [("enter", south)]


def test_cell_that_is_followed_by_comparison_is_said_to_be(fleet: ComputeFleet) -> None:
    fleet.fleet.add_cell("nova", CellKind.NOVA_DB, "sqlite:////nowhere/nova.db", "")
    end = Poll(fleet.api(), {}).end
    assert end["complete"] is False
    assert (end["cells"]["nova"]["by"], end["cells"]["nova"]["state"]) == ("comparison", "down")
    assert (end["cells"]["north"]["by"], end["cells"]["north"]["state"]) == ("changes", "followed")


def test_poll_waits_for_a_change_and_no_longer(fleet: ComputeFleet) -> None:
    api = fleet.api()
    cursor, of_others = Poll(api).cursor, Poll(api, filter='name == "db"').cursor

    async def scenario() -> str:
        waiting = asyncio.create_task(api.fetch(f"{CHANGES}?after={cursor}&wait=60", MEMBER))
        _, pending = await asyncio.wait({waiting}, timeout=0.3)
        assert pending, "there is nothing to answer with"
        create(fleet, display_name="web")
        return (await waiting).text

    assert '"enter"' in api.run(scenario())
    assert Poll(api, after=of_others, wait="0.05", filter='name == "db"').changes == []


def test_poll_of_a_process_that_ends_claims_nothing_and_loses_nothing(fleet: ComputeFleet) -> None:
    api = fleet.api(settings=KEYED)
    cursor = Poll(api).cursor
    api.services.feed.close()
    uuid = create(fleet)
    poll = Poll(api, after=cursor, wait=60)
    assert (poll.changes, poll.end["more"], poll.end["complete"]) == ([], True, False)
    assert Poll(fleet.api(settings=KEYED), after=poll.cursor).kinds == [("enter", uuid)]


def test_stream_says_of_each_cell_that_it_is_lost(fleet: ComputeFleet) -> None:
    with hanging_pool(fleet, "south", "east") as pool:
        pool.gate.set()
        api = fleet.api(pool=pool.cells)

        async def scenario() -> None:
            async with stream(api, path=CHANGES) as watch:
                assert (await watch.next()).data["complete"] is True
                pool.gate.clear()
                down: set[str] = set()
                while down != {"south", "east"}:
                    event = await watch.skip_to("incomplete")
                    down = {name for name, each in event.data["cells"].items() if each["state"] == "down"}
                pool.gate.set()
                assert (await watch.skip_to("complete")).data["complete"] is True

        api.run(scenario())


def test_batch_ends_at_its_limit_and_the_next_one_goes_on(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.api.changes.routes.MAX_CHANGES", 2)
    api = fleet.api()
    poll = Poll(api)
    made = [create(fleet, cell) for cell in CELLS * 2]
    seen: list[str] = []
    while not (poll := Poll(api, after=poll.cursor)).end["complete"]:
        assert poll.end["more"] is True
        seen += [each["id"] for each in poll.changes]
    seen += [each["id"] for each in poll.changes]
    assert sorted(seen) == sorted(made)


def test_stream_has_the_same_changes_and_cursors_that_polls_take(fleet: ComputeFleet) -> None:
    api = fleet.api()
    asked = {"filter": WEB, "fields": "name", "all_projects": 1}
    start = Poll(api, {}, **asked)
    first = create(fleet, display_name="web")

    async def scenario() -> tuple[str, str]:
        query = urlencode({**asked, "after": start.cursor})
        async with stream(api, query, path=CHANGES) as watch:
            ready = await watch.next()
            assert ready.name == "ready"
            assert (ready.data["cursor"], ready.data["complete"]) == (ready.id, True)
            assert ready.data["cells"]["north"]["state"] == "followed"
            event = await watch.next()
            assert (event.name, event.data["id"], event.data["cells"]) == ("enter", first, [[0, "web"]])
            change(fleet, "north", first, display_name="web-2")
            assert (await watch.next()).name == "change"
            change(fleet, "north", first, display_name="db")
            leave = await watch.next()
            assert (leave.name, leave.data["id"]) == ("leave", first)
        second = create(fleet, display_name="web")
        async with stream(api, query, path=CHANGES, last_id=leave.id) as again:
            assert (await again.next()).name == "ready"
            assert ((await again.next()).data["id"]) == second
        assert leave.id is not None
        return leave.id, second

    cursor, second = api.run(scenario())
    assert Poll(api, {}, **asked, after=cursor).kinds == [("enter", second)]


def test_stream_with_a_cursor_of_others_says_that_it_has_to_be_listed_again(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, "after=nonsense", MEMBER, path=CHANGES) as watch:
            assert await watch.names(2) == ["ready", "reset"]

    api.run(scenario())


def test_polls_and_streams_share_the_slots_of_watches(fleet: ComputeFleet) -> None:
    api = fleet.api(settings=ApiSettings(max_watches=1))

    async def scenario() -> None:
        async with stream(api, "", MEMBER, path=CHANGES) as watch:
            await watch.next()
            assert (await api.fetch(CHANGES, MEMBER)).status_code == 503

    api.run(scenario())
    assert api.request("HEAD", CHANGES).status_code == 200
    assert api.request("HEAD", CHANGES, STREAM).status_code == 200
    assert Poll(api).changes == []


def test_consumer_of_the_documentation_keeps_a_copy(fleet: ComputeFleet) -> None:
    api = fleet.api()
    block = re.search(r"```python\n(.*?)```", DOCUMENTED.read_text(), re.DOTALL)
    assert block is not None
    consumer: dict[str, Any] = {"json": json}
    exec(block[1].replace('"wait": 30', '"wait": 0'), consumer)  # noqa: S102  # it is our own
    copy = sqlite3.connect(":memory:")
    copy.execute("CREATE TABLE copy (id TEXT PRIMARY KEY, name TEXT)")
    copy.execute("CREATE TABLE cursor (id INTEGER PRIMARY KEY, text TEXT)")

    def get(path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> Any:
        return api.get(f"{path}?{urlencode(params or {})}", MEMBER, headers or {})

    def copied() -> dict[str, str]:
        consumer["follow"](get, copy)
        return dict(copy.execute("SELECT id, name FROM copy").fetchall())

    one, two = create(fleet, display_name="one"), create(fleet, "south", display_name="two")
    assert copied() == {one: "one", two: "two"}
    three = create(fleet, display_name="three")
    fleet.operations("south").delete(two)
    # Of what Unicode takes for the end of a line JSON escapes only some.
    change(fleet, "north", one, display_name="first\u2028line")
    assert copied() == {one: "first\u2028line", three: "three"}
    copy.execute("UPDATE cursor SET text = 'of another fleet'")
    copied()
    assert copied() == {one: "first\u2028line", three: "three"}
