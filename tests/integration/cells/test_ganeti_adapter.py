"""A cell that is a Ganeti cluster: its rows, its other items, and what comes of nonsense (contracts/ganeti-query)."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter, ItemsAdapter, ProbedAdapter
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.query.filters import EVERYTHING, Eq, Filter, Has, In, Matches, Ne, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER
from fleetlight.resources.query_fields.definitions import ResultStatus
from tests.support.oracles.filter_oracle import expected_page
from tests.support.played.played_cluster import PASSWORD, USER, PlayedCluster, instance, played_cluster
from tests.support.serving import QuietHandler

BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
NODE = {
    "uuid": "b3ddc90a-66cf-40d6-a127-d9c3aedf666e",
    "name": "node1.example.org",
    "offline": False,
    "mfree": (4, None),
    "dfree": (2, None),
    "mtotal": 81_920,
    "ctime": 1_700_000_000.25,
    "ndp/cpu_speed": 1,
    "tags": [],
}


@pytest.fixture
def cluster() -> Iterator[PlayedCluster]:
    with played_cluster(*(instance(number) for number in range(3))) as cluster:
        yield cluster


@pytest.fixture
def adapter(cluster: PlayedCluster, tmp_path: Path) -> Iterator[CellAdapter]:
    with closing(open_adapter(cell_at(cluster, tmp_path), statement_timeout_s=60)) as adapter:
        yield adapter


def cell_at(cluster: PlayedCluster, folder: Path, password: str = PASSWORD) -> Cell:
    (folder / "password").write_text(password + "\n")
    address = UpstreamAddress(cluster.url, username=USER, password_file=folder / "password").write()
    return Cell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c44", "farm", CellKind.GANETI, address, "")


def records(adapter: CellAdapter, node: Filter = EVERYTHING) -> list[dict[str, Any]]:
    return [dict(row.record) for row in adapter.read_page(PageRequest(node, BY_UUID, 1000))]


def items(adapter: CellAdapter, item_type: str, *fields: str) -> Any:
    assert isinstance(adapter, ItemsAdapter)
    return adapter.read_items(item_type, fields)


def test_instance_has_the_words_of_the_compute_api_and_keeps_its_own(adapter: CellAdapter) -> None:
    record = records(adapter)[0]
    assert record.keys() == INSTANCE_FIELDS.keys()
    expected = {
        "display_name": "web0.example.org",
        "host": "node1.example.org",
        "node": "node1.example.org",
        "project_id": None,
        "vm_state": "active",
        "power_state": 1,
        "created_at": 1_700_000_000_250_000,
        "updated_at": 1_700_000_100_500_000,
        "tags": ["blue"],
        "forthcoming": False,
    }
    assert {name: record[name] for name in expected} == expected
    assert (record["flavor"]["memory_mb"], record["flavor"]["vcpus"], record["flavor"]["root_gb"]) == (2048, 2, 10)
    assert [(each["label"], each["address"]) for each in record["ip_addresses"]] == [("net-a", "192.0.2.7")]
    assert record["ganeti"]["values"]["disk.sizes"] == [10_240, 512]
    assert record["ganeti"]["values"]["os"] == "debian+bookworm"


@pytest.mark.parametrize(
    ("status", "vm_state", "power_state"),
    [
        ("running", "active", 1),
        ("ERROR_up", "active", 1),
        ("ERROR_wrongnode", "error", 1),
        ("ERROR_down", "error", 4),
        ("ERROR_nodedown", "error", 0),
        ("ERROR_nodeoffline", "error", 0),
        ("ADMIN_down", "stopped", 4),
        ("ADMIN_offline", "stopped", 4),
        ("USER_down", "stopped", 4),
        ("one of a version to come", None, 0),
    ],
)
def test_each_status_is_a_state(
    adapter: CellAdapter, cluster: PlayedCluster, status: str, vm_state: str, power_state: int
) -> None:
    cluster.items["instance"] = [instance(0, status=status)]
    record = records(adapter)[0]
    assert (record["vm_state"], record["power_state"]) == (vm_state, power_state)


def test_reservation_without_a_name_is_one(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    cluster.items["instance"] = [
        instance(0, forthcoming=True, name=(2, None), pnode=(2, None), status="ADMIN_down", beparams=(2, None))
    ]
    record = records(adapter)[0]
    assert (record["forthcoming"], record["display_name"], record["host"]) == (True, None, None)
    assert record["vm_state"] == "building"
    assert record["ganeti"]["no_data"] == ["beparams"]


def test_fields_that_an_older_version_does_not_have_are_unset(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    cluster.unknown = frozenset({"custom_osparams", "forthcoming", "admin_state_source"})
    record = records(adapter)[0]
    assert record["forthcoming"] is False
    assert "admin_state_source" not in record["ganeti"]["values"]


FILTERS: list[Filter] = [
    EVERYTHING,
    Eq("display_name", "web2.example.org"),
    all_of(Eq("deleted", False), Matches("display_name", "web[0-2]")),
    Has("tags", "green"),
    any_of(Eq("vm_state", "stopped"), Eq("host", "node2.example.org")),
    In("uuid", ("00000000-0000-0000-0000-000000000003", "00000000-0000-0000-0000-00000000000c")),
    Ne("host", "node2.example.org"),
]


def test_every_filter_in_every_order_finds_what_it_means_page_by_page(
    adapter: CellAdapter, cluster: PlayedCluster
) -> None:
    generator = random.Random(11)
    cluster.items["instance"] = [
        instance(
            number,
            pnode=f"node{generator.randrange(3)}.example.org",
            status=generator.choice(["running", "ADMIN_down"]),
            tags=generator.choice([["blue"], ["green", "blue"]]),
        )
        for number in range(40)
    ]
    everything = records(adapter)
    assert len(everything) == 40
    for node in FILTERS:
        for keys in ((), ("created_at",), ("host", "display_name")):
            for direction in Direction:
                order = SortOrder.of(INSTANCE_FIELDS, [SortKey(key, direction) for key in keys])
                expected = expected_page(everything, PageRequest(node, order, 1000), INSTANCE_FIELDS)
                request, found = PageRequest(node, order, 7), list[str]()
                while rows := adapter.read_page(request):
                    assert len(rows) <= 7
                    found += [row.uuid for row in rows]
                    request = replace(request, after=order.values(rows[-1].record))
                assert found == [record["uuid"] for record in expected], (node, order)
                assert expected or node == FILTERS[1]


def test_cluster_is_asked_only_for_what_a_page_may_have(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    wanted = "00000000-0000-0000-0000-000000000002"
    found = adapter.find(wanted)
    assert found is not None
    assert found.uuid == wanted
    adapter.read_page(PageRequest(EVERYTHING, BY_UUID, 1, after=(wanted,)))
    assert [question["qfilter"] for _, question in cluster.questions] == [
        ["|", ["==", "uuid", wanted]],
        [">", "uuid", wanted],
    ]
    assert adapter.find("ffffffff-0000-0000-0000-000000000000") is None


def test_items_have_the_values_of_their_fields_and_say_what_could_not_be_had(
    adapter: CellAdapter, cluster: PlayedCluster
) -> None:
    cluster.items["node"] = [NODE]
    assert items(adapter, "node", "name", "ctime", "mfree", "dfree", "sip", "ndp/cpu_speed", "cell") == [
        {
            "uuid": NODE["uuid"],
            "name": "node1.example.org",
            "ctime": 1_700_000_000_250_000,
            "mfree": ResultStatus.OFFLINE,
            "dfree": ResultStatus.NO_DATA,
            "sip": None,
            "ndp/cpu_speed": 1.0,
        }
    ]
    asked = cluster.questions[-1][1]["fields"]
    assert asked == ["ctime", "dfree", "mfree", "name", "ndp/cpu_speed", "sip", "uuid"]


def test_every_type_can_be_asked_for(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    cluster.items |= {"job": [{"id": 7, "status": "success"}], "lock": [{"name": "node/x"}], "os": ["a+x", "a+y", "b"]}
    for name in ITEM_TYPES.keys() - {"instance", "os"}:
        items(adapter, name, ITEM_TYPES[name].unique)
    assert items(adapter, "job", "status") == [{"id": 7, "status": "success"}]
    assert items(adapter, "os", "name") == [{"name": "a", "variants": ["x", "y"]}, {"name": "b", "variants": []}]
    cluster.items["os"] = [{"name": "c", "valid": True, "variants": ["z"], "other": 1}]
    assert items(adapter, "os", "name") == [{"name": "c", "valid": True, "variants": ["z"]}]


def said(body: Any) -> Callable[[QuietHandler], bool]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: QuietHandler) -> bool:
        handler.answer(200, text)
        return True

    return answer


def half_a_body(handler: QuietHandler) -> bool:
    handler.answer(200, b'{"fields": [', {"Content-Length": "5000"})
    handler.close_connection = True
    return True


def endless_body(handler: QuietHandler) -> bool:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        while True:
            handler.wfile.write(b" " * 65_536)
    handler.close_connection = True
    return True


def hangs_up(handler: QuietHandler) -> bool:
    handler.close_connection = True
    return True


def refuses(handler: QuietHandler) -> bool:
    handler.answer(502, b'{"code": 502, "message": "Bad Gateway", "explain": "the daemon is not there"}')
    return True


NONSENSE = {
    "no JSON": (said(b"<html>"), "does not answer about instance"),
    "not an object": (said([1, 2]), "does not answer about instance"),
    "deep": (said(b'{"fields": ' + b"[" * 100_000), "does not answer about instance"),
    "not UTF-8": (said(b'{"fields": [{"name": "\xff"}], "data": []}'), "does not answer about instance"),
    "other fields": (said({"fields": [{"name": "uuid"}], "data": []}), "not those that were asked for"),
    "half a body": (half_a_body, "cannot be reached"),
    "endless body": (endless_body, "answers with more than 1000000 bytes"),
    "no answer": (hangs_up, "cannot be reached"),
    "refused": (refuses, "status 502"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_cluster_that_answers_nonsense_is_down_with_the_reason(
    adapter: CellAdapter, cluster: PlayedCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.upstream.http._LARGEST_ANSWER", 1_000_000)
    cluster.fault, reason = NONSENSE[name]
    with pytest.raises(CellUnreachableError, match=reason):
        records(adapter)
    cluster.fault = None
    assert len(records(adapter)) == 3


WRONG_VALUES: list[Mapping[str, Any]] = [
    {"uuid": 7},
    {"uuid": "web"},
    {"uuid": (3, None)},
    {"name": 7},
    {"ctime": "yesterday"},
    {"ctime": 1e300},
    {"mtime": -(10**12)},
    {"serial_no": 2**63},
    {"uuid": instance(0)["uuid"]},
    {"tags": "blue"},
    {"tags": [1]},
    {"status": None},
    {"status": (2, None)},
    {"serial_no": True},
    {"disk.sizes": {"0": 1}},
    {"beparams": [1]},
    {"forthcoming": "no"},
    {"oper_ram": 1.5},
    {"os": (9, None)},
]


@pytest.mark.parametrize("wrong", WRONG_VALUES, ids=str)
def test_value_that_no_cluster_has_makes_the_cell_down(
    adapter: CellAdapter, cluster: PlayedCluster, wrong: Mapping[str, Any]
) -> None:
    cluster.items["instance"] = [instance(0), instance(1, **wrong)]
    with pytest.raises(CellUnreachableError, match=r"cluster|row is none"):
        records(adapter)


def test_wrong_values_of_other_items_make_the_cell_down(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    cluster.items |= {"node": [{**NODE, "mtotal": "much"}], "os": [7]}
    with pytest.raises(CellUnreachableError, match="mtotal is 'much', which is no unit"):
        items(adapter, "node", "mtotal")
    with pytest.raises(CellUnreachableError, match="operating system that has no name"):
        items(adapter, "os", "name")


WRONG_STRUCTURES = [
    ("node", "tags", "blue"),
    ("node", "tags", [1]),
    ("job", "oplog", [["x"]]),
    ("job", "oplog", [[["1", [1, 2], "message", "x"]]]),
    ("job", "received_ts", [1]),
    ("job", "start_ts", [1, "2"]),
    ("job", "end_ts", 1.5),
]


@pytest.mark.parametrize(("item_type", "field", "value"), WRONG_STRUCTURES, ids=str)
def test_wrong_structure_that_is_looked_into_makes_the_cell_down(
    adapter: CellAdapter, cluster: PlayedCluster, item_type: str, field: str, value: Any
) -> None:
    unique = ITEM_TYPES[item_type].unique
    cluster.items[item_type] = [{unique: 7 if item_type == "job" else NODE["uuid"], field: value}]
    with pytest.raises(CellUnreachableError, match=f"{field} is .*, which is no other"):
        items(adapter, item_type, field)


def test_short_row_makes_the_cell_down(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    whole = cluster.answer("instance", {"fields": ["name"], "qfilter": None})

    def shorten(handler: QuietHandler) -> bool:
        fields = cluster.questions[-1][1]["fields"]
        handler.answer(200, json.dumps({"fields": [{"name": name} for name in fields], "data": whole["data"]}).encode())
        return True

    cluster.fault = shorten
    with pytest.raises(CellUnreachableError, match="a row is none of those fields"):
        records(adapter)


def test_wrong_password_is_named(cluster: PlayedCluster, tmp_path: Path) -> None:
    with (
        closing(open_adapter(cell_at(cluster, tmp_path, "another"))) as adapter,
        pytest.raises(CellUnreachableError, match="check the user and the password") as caught,
    ):
        records(adapter)
    assert "another" not in str(caught.value)


def test_question_that_takes_long_keeps_no_other_one_waiting(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    is_asked, go_on = Event(), Event()

    def wait_for_nodes(_handler: QuietHandler) -> bool:
        if cluster.questions[-1][0] == "node":
            is_asked.set()
            go_on.wait(60)
        return False

    cluster.items["node"], cluster.fault = [NODE], wait_for_nodes
    with ThreadPoolExecutor(8) as threads:
        slow = threads.submit(items, adapter, "node", "name")
        assert is_asked.wait(60)
        pages = list(threads.map(lambda _: records(adapter), range(24)))
        assert [len(page) for page in pages] == [3] * 24
        go_on.set()
        assert [record["name"] for record in slow.result(60)] == ["node1.example.org"]


def closes_silently(handler: QuietHandler) -> bool:
    handler.close_connection = True
    return True


def test_probe_asks_for_what_needs_no_node(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    assert isinstance(adapter, ProbedAdapter)
    adapter.probe()
    nothing = "00000000-0000-0000-0000-000000000000"
    assert cluster.questions == [("instance", {"fields": ["uuid"], "qfilter": ["==", "uuid", nothing]})]
    cluster.fault = closes_silently
    with pytest.raises(CellUnreachableError):
        adapter.probe()


def test_configuration_is_that_of_the_cluster(adapter: CellAdapter, cluster: PlayedCluster) -> None:
    cluster.info = {"name": "farm.example.org", "ctime": 1.5, "mtime": 2, "tags": ["a"], "enabled_hypervisors": ["kvm"]}
    assert items(adapter, CLUSTER) == [{**cluster.info, "ctime": 1_500_000, "mtime": 2_000_000}]
    whole = cluster.info
    for name, value in (("ctime", "now"), ("tags", None), ("enabled_hypervisors", [])):
        cluster.info = {**whole, name: value}
        with pytest.raises(CellUnreachableError, match="does not answer about itself"):
            items(adapter, CLUSTER)


def test_question_that_is_not_answered_in_time_ends_and_lets_the_next_one_in(
    cluster: PlayedCluster, tmp_path: Path
) -> None:
    go_on = Event()

    def wait(handler: QuietHandler) -> bool:
        handler.close_connection = True
        return go_on.wait(60)

    cluster.fault = wait
    with closing(open_adapter(cell_at(cluster, tmp_path), statement_timeout_s=0.3)) as adapter:
        with pytest.raises(CellUnreachableError, match="no answer in time"):
            records(adapter)
        cluster.fault = None
        assert len(records(adapter)) == 3
        go_on.set()
