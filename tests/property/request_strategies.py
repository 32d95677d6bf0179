"""Random servers, and random requests for lists of them as clients send them: names, values, microversion and role."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from hypothesis import strategies as st

from cells.native.new_instance import new_record
from tests.support.list_oracle import FORBIDDEN, IGNORED, PATTERNS, SORTED, TAG_PATTERNS, Asker, Request, Times
from tests.support.requested_fleet import Change

CELLS = ("north", "east", "south")
SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
HORIZON = NOON
MOMENTS = (0, 1, NOON - 1, NOON, NOON + 1, NOON + 3600 * SECOND)
# 1,700,000,000 seconds are 2023-11-14T22:13:20Z.
TIMES: Times = {
    "1970": 0,
    "1970-01-01T00:00:00.000001Z": 1,
    "2023-11-14T22:13:20Z": NOON,
    "2023-11-14 22:13:20": NOON,
    "20231114T221320Z": NOON,
    "2023-11-15T00:13:20+02:00": NOON,
    "2023-11-14T16:43:20-0530": NOON,
    "2023-11-14T22:13:20.000001": NOON + 1,
    "2023-11-14T22:13:19,999999Z": NOON - 1,
    "2023-11-14T23:13:20Z": NOON + 3600 * SECOND,
    "2999-12-31": 32503593600 * SECOND,
    "": None,
    "yesterday": None,
    "2023-11-14T22:13:20 02:00": None,
    "2023-13-01": None,
}
_NAMES: tuple[str, ...] = (
    *("", "a", "A", "b", "web-1", "web-10", "a b", "a\n", "é", "e\u0301", "ß", "\ue000", "\uffff", "😀"),
    *("x|y", "%_\\"),
)
_PATTERNS_FIT = (
    *("a", "^a", "b$", "^$", ".", "^.$", ".*", "a|B", "(?i)A", "[^a]", r"\w", r"\W", r"^\d+$", r"\bweb\b", r"-1\z"),
    *("web-[0-9]+$", "é", "e\u0301", "(?i)É", "😀", r"\x{1F600}", r"\p{L}", "(?s)a.", r"\n", r"x\|y", "%", "_", r"\\"),
    *("[[:alpha:]]", "(?P<n>a)", "(?m)^b", "(a|b)?", "a{1,2}", r"\Qa b\E", "0", "^1", "host1", "2023-11-14 22:13:20"),
    *("^(1970|2023)", "00:00:00$", "r-.*0", "/dev/vd[ab]", "^owner$", "^..$", "[ab]", "[^0]"),
)
_PATTERNS_UNFIT = ("[", "*a", "(?=a)", r"(a)\1", "a{2,1}", "")
_STATES = ("active", "stopped", "error", "paused", "resized", "building", "soft-delete", "deleted", "odd", None)
_TASKS = (None, None, "", "rebooting", "migrating", "resize_prep", "resize_reverting", "rebuilding")
_STATUSES = (
    *("ACTIVE", "active", "Shutoff", "ERROR", "PAUSED", "DELETED", "deleted", "SOFT_DELETED", "VERIFY_RESIZE", "BUILD"),
    *("REBOOT", "RESIZE", "REBUILD", "MIGRATING", "REVERT_RESIZE", "PASSWORD", "UNKNOWN", "", "nonsense"),
)
_TAGS = ("", "a", "b", "A", "a b", "ä")
_TRUTHS = ("1", "true", "T", " yes ", "0", "False", "off", "", "maybe", "2")
_FLAVOR = {"name": "m1", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}
_ADDRESSES = tuple(
    {"label": "n", "address": address, "version": 6 if ":" in address else 4, "mac": "m", "type": kind}
    for kind, addresses in (("fixed", ("10.0.0.1", "10.0.0.10", "fd00::1")), ("floating", ("203.0.113.1",)))
    for address in addresses
)
CHANGES: tuple[Change, ...] = (
    ("PUT", "", {"server": {"name": "a"}}),
    ("PUT", "", {"server": {"name": "zebra é"}}),
    ("PUT", "/tags", {"tags": ["a", "b"]}),
    ("POST", "/action", {"lock": None}),
    ("POST", "/action", {"os-resetState": {"state": "error"}}),
)
_numbers = count()


def can_be_changed(row: Mapping[str, Any]) -> bool:
    """Whether it is there, in states that can be announced."""
    return not (row["deleted"] or row["hidden"]) and row["vm_state"] in _STATES[:6] and row["task_state"] is None


def _or_none(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


_changes = st.fixed_dictionaries(
    {
        "display_name": _or_none(*_NAMES),
        "display_description": _or_none("a", "A b", "é"),
        "hostname": _or_none("a", "web-1"),
        "host": _or_none("host1", "Host1", "host10"),
        "node": _or_none("host1", "b"),
        "availability_zone": _or_none("a", "b"),
        "vm_state": st.sampled_from(_STATES),
        "task_state": st.sampled_from(_TASKS),
        "power_state": _or_none(0, 1, 4),
        "progress": _or_none(0, 1, 10, 100),
        "launch_index": _or_none(0, 1, 10),
        "instance_type_id": _or_none(1, 2),
        "created_at": st.sampled_from(MOMENTS),
        "updated_at": _or_none(*MOMENTS),
        "launched_at": _or_none(*MOMENTS),
        "terminated_at": _or_none(*MOMENTS),
        "deleted": st.sampled_from((False,) * 3 + (True,)),
        "deleted_at": _or_none(*MOMENTS),
        "hidden": st.sampled_from((False,) * 7 + (True,)),
        "locked": st.booleans(),
        "locked_by": _or_none("owner", "admin"),
        "project_id": st.sampled_from(("demo", "demo", "other")),
        "user_id": st.sampled_from(("ada", "grace")),
        "image_ref": _or_none("", "a"),
        "flavor": _or_none({**_FLAVOR, "flavorid": "1"}, {**_FLAVOR, "flavorid": "é"}),
        "key_name": _or_none("a", "b"),
        "config_drive": _or_none("", "True"),
        "kernel_id": _or_none("", "a"),
        "ramdisk_id": _or_none("", "a"),
        "root_device_name": _or_none("/dev/vda", "/dev/vdb"),
        "access_ip_v4": _or_none("10.0.0.1"),
        "access_ip_v6": _or_none("fd00::1"),
        "auto_disk_config": st.booleans(),
        "tags": st.lists(st.sampled_from(_TAGS), max_size=3, unique=True),
        "ip_addresses": st.lists(st.sampled_from(_ADDRESSES), max_size=2),
    }
)


@st.composite
def fleets(draw: st.DrawFn, max_size: int = 12) -> dict[str, list[dict[str, Any]]]:
    """Records by cell. Uuids differ from those of every other example, and sort in a drawn order."""
    drawn = draw(st.lists(st.tuples(st.sampled_from(CELLS), _changes), min_size=3, max_size=max_size))
    places = draw(st.permutations(range(len(drawn))))
    example = next(_numbers)
    rows: dict[str, list[dict[str, Any]]] = {cell: [] for cell in CELLS}
    for (cell, changes), place in zip(drawn, places, strict=True):
        rows[cell].append(new_record({**changes, "uuid": f"{place:08x}-0000-4000-8000-{example:012x}"}, now=0))
    return rows


def _pair(names: str | Sequence[str], *values: str) -> st.SearchStrategy[tuple[str, str]]:
    name = st.just(names) if isinstance(names, str) else st.sampled_from(names)
    return st.tuples(name, st.sampled_from(values))


def _pairs(uuids: Sequence[str]) -> st.SearchStrategy[tuple[str, str]]:
    tags = st.lists(st.sampled_from((*_TAGS, "nowhere")), min_size=1, max_size=3).map(",".join)
    direction = _pair("sort_dir", "asc", "desc", " asc ", "asc", "desc", "ASC")
    return st.one_of(
        _pair(PATTERNS, *_PATTERNS_FIT),
        _pair(("name", "display_name"), *_PATTERNS_FIT),
        _pair((*PATTERNS, *TAG_PATTERNS), *_PATTERNS_UNFIT),
        _pair(("host", "vm_state", "task_state", "user_id", "image", "image_ref"), "", "a", "host1", "ada", "paused"),
        _pair("task_state", "", "rebooting", "migrating"),
        _pair("vm_state", "active", "soft-delete", "deleted"),
        _pair("launch_index", "", "1", "^10$", "["),
        _pair("flavor", "1", "é", "2"),
        _pair(("power_state", "progress"), "1", "^0$", "0", "^10{1,2}$"),
        _pair("status", *_STATUSES),
        _pair("status", *_STATUSES),
        _pair("locked", *_TRUTHS),
        _pair("all_tenants", "1", "1", *_TRUTHS),
        _pair(("deleted", "soft_deleted"), "true", "1", "false", "0", "", "maybe"),
        _pair(("project_id", "tenant_id"), "demo", "other", ""),
        _pair(("changes-since", "changes-before"), *TIMES),
        _pair(("ip", "ip6"), "10.0.0.1", "0.1", "fd", ".", "^10", "203", ":"),
        st.tuples(st.sampled_from(TAG_PATTERNS), tags),
        st.tuples(st.sampled_from(TAG_PATTERNS), tags),
        st.tuples(st.sampled_from(("marker", "uuid")), st.sampled_from(uuids)),
        _pair("marker", "00000000-0000-4000-8000-000000000000", "x", ""),
        _pair("limit", "0", "1", "2", "3", "007", "-1", "x", ""),
        _pair("limit", "1", "2", "3"),
        _pair("sort_key", *SORTED),
        _pair("sort_key", "locked", "display_name", "updated_at", "uuid", "name", "", *IGNORED[:4]),
        direction,
        direction,
        _pair((*FORBIDDEN[:2], "_x", "foo", "offset", "é"), "1", ""),
    )


def requests(uuids: Sequence[str]) -> st.SearchStrategy[Request]:
    """Names and values, the minor microversion, and who asks. uuids: of servers that there are."""
    usual = st.lists(_pair("all_tenants", "1") | _pair("limit", "1", "2", "3"), max_size=2)
    return st.builds(
        Request,
        st.tuples(usual, st.lists(_pairs(uuids), max_size=4)).map(lambda parts: parts[0] + parts[1]),
        st.sampled_from((1, 4, 5, 25, 26, 37, 38, 65, 66, 72, 73, 74, 75, 82, 83, 89, 90, 98, 104, 104, 104)),
        st.builds(Asker, st.sampled_from((True, True, False)), st.sampled_from(("demo", "other")), st.just("ada")),
    )
