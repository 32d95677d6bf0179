"""The fields of Query2 against the tables of the contract, written down here once more."""

import re

import pytest

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields
from fleetlight.resources.query_fields.instance import ordinal

OF_GANETI = {"node": 46, "group": 25, "job": 16, "lock": 4, "os": 11, "export": 2, "network": 19, "filter": 6}

TITLES_AND_KINDS = {
    ("instance", "name"): ("Instance", "text"),
    ("instance", "network_port"): ("Network_port", "other"),
    ("instance", "be/maxmem"): ("ConfigMaxMem", "unit"),
    ("instance", "be/memory"): ("ConfigMaxMem", "unit"),
    ("instance", "vcpus"): ("ConfigVCPUs", "number"),
    ("instance", "hv/acpi"): ("ACPI", "bool"),
    ("instance", "hv/cpu_cap"): ("hv/cpu_cap", "number"),
    ("instance", "hv/cdrom_image_path"): ("CDROM_image_path", "other"),
    ("instance", "disk.size/15"): ("Disk/15", "unit"),
    ("instance", "disk3.size"): ("Disk/3", "unit"),
    ("instance", "sda_size"): ("Disk/0", "unit"),
    ("instance", "nic.networks.names"): ("NIC_networks_names", "other"),
    ("instance", "nic.network.name/7"): ("NicNetworkName/7", "text"),
    ("instance", "nic0.ip"): ("NicIP/0", "text"),
    ("instance", "ip"): ("NicIP/0", "text"),
    ("instance", "oper_ram"): ("Memory", "unit"),
    ("instance", "ctime"): ("CTime", "timestamp"),
    ("node", "ndp/cpu_speed"): ("ndp/cpu_speed", "float"),
    ("node", "mfree"): ("MFree", "unit"),
    ("job", "received_ts"): ("Received", "other"),
    ("network", "free_count"): ("FreeCount", "number"),
}


@pytest.mark.parametrize(("key", "expected"), TITLES_AND_KINDS.items(), ids="-".join)
def test_title_and_kind_are_those_of_the_contract(key: tuple[str, str], expected: tuple[str, str]) -> None:
    field = ITEM_TYPES[key[0]][key[1]]
    assert (field.title, field.kind.value) == expected


@pytest.mark.parametrize(("resource", "count"), OF_GANETI.items())
def test_item_type_has_the_fields_of_the_contract_and_ours(resource: str, count: int) -> None:
    ours = {"cell", "instance"} if resource == "job" else {"cell"}
    assert len(ITEM_TYPES[resource]) == count + len(ours)
    assert all(name in ITEM_TYPES[resource] for name in ours)


def test_instances_have_292_fields_of_ganeti() -> None:
    names = {name for name in ITEM_TYPES["instance"] if not re.match(r"(nic|disk)[0-9]+\.", name)}
    own = {"cell", "project", "user", "image", "zone"} | {
        name for name in names if re.fullmatch(r"[a-z_0-9]+", name) and name in _own_names()
    }
    assert len(names - own) == 292


def _own_names() -> set[str]:
    from fleetlight.resources.instance import INSTANCE_FIELDS  # noqa: PLC0415 -- only this test looks at it

    return set(INSTANCE_FIELDS) - {"uuid", "tags", "forthcoming", "vcpus", "disk_usage"}


@pytest.mark.parametrize("resource", ITEM_TYPES)
def test_every_definition_follows_the_rules_of_the_contract(resource: str) -> None:
    for name, field in ITEM_TYPES[resource].items():
        assert field.name == name
        assert re.fullmatch(r"[a-z0-9/._]+", field.name)
        assert re.fullmatch(r"\S+", field.title)
        assert re.fullmatch(r"[A-Z].*[^.,?!\s]", field.doc), field.doc
        assert field.kind is not Kind.UNKNOWN


@pytest.mark.parametrize(
    ("resource", "with_flag"),
    [
        ("instance", {"name", "pnode"}),
        ("node", {"name"}),
        ("export", {"node"}),
        ("group", set()),
        ("network", set()),
    ],
)
def test_names_of_hosts_are_flagged(resource: str, with_flag: set[str]) -> None:
    flagged = {
        name
        for name, field in ITEM_TYPES[resource].items()
        if isinstance(field, QueryField) and FieldFlag.HOSTNAME in field.flags
    }
    assert flagged == with_flag


def test_index_behind_the_last_is_no_field() -> None:
    assert "nic.ip/7" in ITEM_TYPES["instance"]
    assert "nic.ip/8" not in ITEM_TYPES["instance"]
    assert "disk.size/16" not in ITEM_TYPES["instance"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st")],
)
def test_ordinals_are_english(number: int, text: str) -> None:
    assert ordinal(number) == text


def _field(name: str, title: str = "Title") -> QueryField:
    return QueryField(name, title, Kind.TEXT, "Doc")


def test_alias_shares_all_but_the_name() -> None:
    fields = QueryFields("thing", [_field("uuid")], {"id": "uuid"})
    assert (fields["id"].name, fields["id"].title, fields["id"].doc) == ("id", "Title", "Doc")


@pytest.mark.parametrize("aliases", [{"uuid": "uuid"}, {"id": "missing"}], ids=["taken", "without a target"])
def test_alias_that_is_taken_or_has_no_target_is_refused(aliases: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="alias"):
        QueryFields("thing", [_field("uuid")], aliases)


def test_title_that_is_there_in_another_case_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        QueryFields("thing", [_field("uuid"), _field("id", "TITLE")], {})
