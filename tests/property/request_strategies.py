"""Random servers, and random requests for lists of them as clients send them: names, values, microversion and role."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, product
from typing import Any

from hypothesis import strategies as st

from fleetlight.manager.operations.actions.new_instance import new_record
from tests.contract.answering import words
from tests.support.fleets.requested_fleet import Change
from tests.support.oracles.list_oracle import (
    FORBIDDEN,
    IGNORED,
    KNOWN_SINCE,
    PATTERNS,
    PUBLIC_SINCE,
    SORTED,
    TAG_PATTERNS,
    Asker,
    Request,
    Times,
)

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
MINORS = (1, 4, 5, 25, 26, 37, 38, 65, 66, 72, 73, 74, 75, 82, 83, 89, 90, 98, 104, 104, 104)
_numbers = count()


def can_be_changed(row: Mapping[str, Any], project_id: str) -> bool:
    """Whether it is there for the project, in states that can be announced."""
    is_there = row["project_id"] == project_id and not row["deleted"] and not row["hidden"]
    return is_there and row["vm_state"] in _STATES[:6] and row["task_state"] is None


# What a server can be, each with about the chance that its values have here.
_COLUMNS: Mapping[str, tuple[Any, ...]] = {
    "display_name": (None, *_NAMES),
    "display_description": (None, "a", "A b", "é"),
    "hostname": (None, "a", "web-1"),
    "host": (None, "host1", "Host1", "host10"),
    "node": (None, "host1", "b"),
    "availability_zone": (None, "a", "b"),
    "vm_state": _STATES,
    "task_state": _TASKS,
    "power_state": (None, 0, 1, 4),
    "progress": (None, 0, 1, 10, 100),
    "launch_index": (None, 0, 1, 10),
    "instance_type_id": (None, 1, 2),
    "created_at": MOMENTS,
    "updated_at": (None, *MOMENTS),
    "launched_at": (None, *MOMENTS),
    "terminated_at": (None, *MOMENTS),
    "deleted": (False,) * 3 + (True,),
    "deleted_at": (None, *MOMENTS),
    "hidden": (False,) * 7 + (True,),
    "locked": (False, True),
    "locked_by": (None, "owner", "admin"),
    "project_id": ("demo", "demo", "other"),
    "user_id": ("ada", "grace"),
    "image_ref": (None, "", "a"),
    "flavor": (None, {**_FLAVOR, "flavorid": "1"}, {**_FLAVOR, "flavorid": "é"}),
    "key_name": (None, "a", "b"),
    "config_drive": (None, "", "True"),
    "kernel_id": (None, "", "a"),
    "ramdisk_id": (None, "", "a"),
    "root_device_name": (None, "/dev/vda", "/dev/vdb"),
    "access_ip_v4": (None, "10.0.0.1"),
    "access_ip_v6": (None, "fd00::1"),
    "auto_disk_config": (False, True),
    "tags": ([], ["a"], ["a", "b"], ["b", "A", "ä"], ["a b", ""], ["", "a"]),
    "ip_addresses": ([], *([address] for address in _ADDRESSES), [*_ADDRESSES[:2]], [*_ADDRESSES[2:]]),
}
_changes = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in _COLUMNS.items()})


@st.composite
def fleets(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Records by cell. Uuids differ from those of every other example, and sort in a drawn order."""
    size = draw(st.sampled_from((3, 8)))
    drawn = draw(st.lists(st.tuples(st.sampled_from(CELLS), _changes), min_size=size, max_size=12))
    places = draw(st.permutations(range(len(drawn))))
    example = next(_numbers)
    rows: dict[str, list[dict[str, Any]]] = {cell: [] for cell in CELLS}
    for (cell, changes), place in zip(drawn, places, strict=True):
        rows[cell].append(_record(changes, place, example))
    return rows


def fleets_to_change() -> st.SearchStrategy[dict[str, list[dict[str, Any]]]]:
    """As `fleets`, with something in each that the project `demo` can change."""
    return st.builds(_with_changeable, fleets(), st.sampled_from(CELLS))


def _with_changeable(rows: dict[str, list[dict[str, Any]]], cell: str) -> dict[str, list[dict[str, Any]]]:
    there = {"project_id": "demo", "deleted": False, "hidden": False, "vm_state": "active", "task_state": None}
    rows[cell].append(_record({"user_id": "ada", **there}, 0xFF, next(_numbers)))
    return rows


def many_rows(size: int) -> dict[str, list[dict[str, Any]]]:
    """Records by cell, always the same ones."""
    generator, example = random.Random(size), next(_numbers)
    rows: dict[str, list[dict[str, Any]]] = {cell: [] for cell in CELLS}
    for place in range(size):
        changes = {name: generator.choice(values) for name, values in _COLUMNS.items()}
        rows[generator.choice(CELLS)].append(_record(changes, place, example))
    return rows


def _record(changes: Mapping[str, Any], place: int, example: int) -> dict[str, Any]:
    return new_record({**changes, "uuid": f"{place:08x}-0000-4000-8000-{example:012x}"}, now=0)


Values = tuple[Sequence[str], Sequence[str]]
"""Names, and the values that each of them is asked for with."""

_FILTERS: tuple[Values, ...] = (
    (["name", "display_name"], _PATTERNS_FIT),
    (words("host vm_state task_state user_id image image_ref"), ("", "a", "host1", "ada", "paused")),
    (["task_state"], ("", "rebooting", "migrating")),
    (["vm_state"], ("active", "soft-delete", "deleted")),
    (["launch_index"], ("", "1", "^10$", "[")),
    (["flavor"], ("1", "é", "2")),
    (["power_state", "progress"], ("1", "^0$", "0", "^10{1,2}$")),
    (["status"], _STATUSES),
    (["locked", "all_tenants"], _TRUTHS),
    (["deleted", "soft_deleted"], ("true", "1", "false", "0", "", "maybe")),
    (["project_id", "tenant_id"], ("demo", "other", "")),
    (["changes-since", "changes-before"], (*TIMES,)),
    (["ip", "ip6"], ("10.0.0.1", "0.1", "fd", ".", "^10", "203", ":")),
    (TAG_PATTERNS, ("a", "a,b", "b,A", "ä", "a b", "nowhere,a", "", ",", "a,", "A,a b,ä", "[")),
)
_REST: tuple[Values, ...] = (
    (["marker"], ("ffffffff-0000-4000-8000-000000000000", "x", "")),
    (["limit"], ("0", "1", "2", "3", "007", "-1", "x", "")),
    (["sort_key"], (*SORTED, "locked", "name", "", *IGNORED)),
    (["sort_dir"], ("asc", "desc", " asc ", "ASC", "")),
    ([*FORBIDDEN, "_x", "foo", "offset", "é"], ("1", "")),
)


def every_filter() -> Iterator[tuple[str, str]]:
    """Every name with every value, but patterns of other columns than names by turns."""
    for names, values in (*_FILTERS, *_REST):
        yield from product(names, values)
    for place, name in enumerate(PATTERNS):
        for value in (*_PATTERNS_FIT[place % 7 :: 7], _PATTERNS_UNFIT[place % len(_PATTERNS_UNFIT)]):
            yield name, value


def _of(group: Values) -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(st.sampled_from(group[0]), st.sampled_from(group[1]))


def _pairs(uuids: Sequence[str], more: Sequence[Values]) -> st.SearchStrategy[tuple[str, str]]:
    groups = [
        *more,
        *_FILTERS,
        *_REST,
        (PATTERNS, _PATTERNS_FIT),
        ((*PATTERNS, *TAG_PATTERNS), _PATTERNS_UNFIT),
        (["marker", "uuid"], uuids),
        (["limit"], ("1", "2", "3")),
        (["sort_dir"], ("asc", "desc")),
    ]
    return st.one_of(*map(_of, groups))


_DIRECTIONS = st.sampled_from(("asc", "desc"))
_TYING = ("host", "created_at", "display_name", "project_id", "user_id", "availability_zone")
_MOST: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("deleted", "0"),),
    (("user_id", "ada"),),
    (("changes-since", "1970"),),
)


def requests(
    uuids: Sequence[str], projects: Sequence[str] = ("demo", "other"), more: Sequence[Values] = ()
) -> st.SearchStrategy[Request]:
    """uuids: of servers that there are. projects: who may ask. more: what filters ask for besides."""
    usual = st.lists(_of((["all_tenants"], ["1"])) | _of((["limit"], ["1", "2", "3"])), max_size=2)
    pairs = st.tuples(usual, st.lists(_pairs(uuids, more), max_size=4)).map(lambda parts: parts[0] + parts[1])
    anybody = st.builds(Asker, st.sampled_from((True, True, False)), st.sampled_from(projects), st.just("ada"))
    member = st.builds(Asker, st.just(False), st.sampled_from(projects), st.just("ada"))
    several = st.builds(Request, pairs, st.sampled_from(MINORS), anybody)
    # A filter alone, where it begins to count: among several nearly every list is empty.
    alone = _pairs(uuids, more).flatmap(
        lambda pair: st.builds(Request, st.just([pair]), st.sampled_from(turns_of(pair[0])), member | anybody)
    )
    # Of what there is much of, page by page, in an order in which rows tie.
    ties = st.tuples(st.just("sort_key"), st.sampled_from(_TYING)), st.tuples(st.just("sort_dir"), _DIRECTIONS)
    small = st.tuples(st.just("limit"), st.sampled_from(("1", "2", "3")))
    admin = st.builds(Asker, st.just(True), st.sampled_from(projects), st.just("ada"))

    def paged(
        most: st.SearchStrategy[list[tuple[str, str]]], asker: st.SearchStrategy[Asker]
    ) -> st.SearchStrategy[Request]:
        pairs = st.builds(lambda most, limit, *order: [*most, limit, *order], most, small, *ties)
        return st.builds(Request, pairs, st.sampled_from(MINORS), asker)

    of_all = paged(st.sampled_from(_MOST).map(lambda most: [("all_tenants", "1"), *most]), admin)
    of_one = paged(st.lists(_pairs(uuids, more), max_size=1), anybody)
    if more:
        # Over the cells of a Nova Hypothesis finds that pages in such orders are drawn in two ways; why is open.
        return several | alone
    return several | alone | of_all | of_one


def turns_of(name: str) -> Sequence[int]:
    """The microversions from which the name and its value begin to count, with those before, and the newest."""
    begins = {KNOWN_SINCE.get(name, 1), PUBLIC_SINCE.get(name, 1)}
    return sorted({1, 104, *begins, *(max(minor - 1, 1) for minor in begins)})
