"""Rules for intended differences: those in docs/reference/compatibility.md that a list can show; pure.

Each rule is as narrow as the answers allow, so that it hides no other difference. Reports count what each explains.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from fleetlight.cli.compare.differences import ABSENT, Answer, Difference, Kind
from fleetlight.cli.compare.questions import Question

_ROWS = (Kind.MISSING, Kind.EXTRA)
# A list with no other parameters has every server.
_NO_FILTERS = {"all_tenants", "sort_key", "sort_dir"}
# How far Nova's clock may differ from ours.
_CLOCKS_S = 300.0
_FORBIDDEN, _NOT_FOUND, _BAD_REQUEST = "403", "404", "400"
_ZONE = "OS-EXT-AZ:availability_zone"
# Members that a build request shares with the server in its cell.
_ASKED_FOR = {"name", "tenant_id", "user_id", "flavor", "key_name"}
# Sort keys, and the member of a server that shows each.
_TEXTS: Mapping[str, str] = {
    "display_name": "name",
    "display_description": "description",
    "hostname": "OS-EXT-SRV-ATTR:hostname",
    "host": "OS-EXT-SRV-ATTR:host",
    "node": "OS-EXT-SRV-ATTR:hypervisor_hostname",
    "key_name": "key_name",
    "availability_zone": _ZONE,
    "root_device_name": "OS-EXT-SRV-ATTR:root_device_name",
}
_MEMBERS: Mapping[str, str] = {
    **_TEXTS,
    "uuid": "id",
    "created_at": "created",
    "updated_at": "updated",
    "project_id": "tenant_id",
    "user_id": "user_id",
    "vm_state": "OS-EXT-STS:vm_state",
    "task_state": "OS-EXT-STS:task_state",
    "power_state": "OS-EXT-STS:power_state",
    "launched_at": "OS-SRV-USG:launched_at",
    "terminated_at": "OS-SRV-USG:terminated_at",
    "config_drive": "config_drive",
    "locked": "locked",
}
# Filters by text, and the member that each compares.
_PATTERNS: Mapping[str, str] = {
    "name": "name",
    "display_name": "name",
    "hostname": "OS-EXT-SRV-ATTR:hostname",
    "node": "OS-EXT-SRV-ATTR:hypervisor_hostname",
    "host": "OS-EXT-SRV-ATTR:host",
    "key_name": "key_name",
    "user_id": "user_id",
    "project_id": "tenant_id",
    "tenant_id": "tenant_id",
    "tags": "tags",
    "tags-any": "tags",
    "not-tags": "tags",
    "not-tags-any": "tags",
}
_LOOSE = re.compile(r"[^\w]|_")


@dataclass(frozen=True, slots=True)
class Compared:
    """A request, and the answers of both APIs.

    waiting: ids of build requests: servers that either API showed in state BUILD without a host, and Nova in no other
    state since. A list without details does not show this.

    marker: the server that the page comes behind, as Nova shows it; empty if that is not known.
    """

    question: Question
    nova: Answer
    ours: Answer
    waiting: Set[str] = frozenset()
    marker: Mapping[str, Any] = field(default_factory=dict)

    def row(self, server: str) -> Mapping[str, Any]:
        """The server in either answer; empty if neither has it."""
        rows = [*self.nova.shown, *self.ours.shown]
        return next((row for row in rows if row.get("id") == server), {})


@dataclass(frozen=True, slots=True)
class Rule:
    """meaning: a sentence that says why the two differ."""

    name: str
    meaning: str
    explains: Callable[[Compared, Difference], bool]


def _build_requests(compared: Compared, difference: Difference) -> bool:
    """Whether a build request causes the difference: by its place, by values its cell has, or by shifting other rows.

    The number of shifted rows is at most that of build requests on the page: each takes the place of one row, and of
    another one if the server is already in its cell. Behind a marker that is a build request Nova has every server.
    """
    if difference.kind is Kind.VALUE:
        return difference.server in waiting_in(compared.nova) and difference.key not in _ASKED_FOR
    if difference.kind is Kind.ORDER:
        orders = [[row.get("id") for row in answer.servers] for answer in (compared.nova, compared.ours)]
        common = set(orders[0]) & set(orders[1]) - compared.waiting
        return len({tuple(server for server in order if server in common) for order in orders}) == 1
    is_behind = bool(compared.waiting & set(compared.question.values("marker")))
    if difference.kind is Kind.STATUS and is_behind:
        # Nova finds the marker only where the filters let it pass.
        return (difference.nova, difference.ours) == (_BAD_REQUEST, "200")
    if difference.kind not in _ROWS:
        return False
    if difference.server in compared.waiting:
        is_filtered = any(name not in _NO_FILTERS for name, _ in compared.question.parameters)
        return difference.kind is Kind.EXTRA or is_filtered or compared.nova.next_link is not None
    if is_behind or not _is_page(compared):
        return is_behind
    ids, our_ids = ({str(row.get("id")) for row in answer.servers} for answer in (compared.nova, compared.ours))
    moved = (ids ^ our_ids) - compared.waiting
    return difference.server in moved and len(moved) <= len((ids | our_ids) & compared.waiting)


def _never_updated(compared: Compared, difference: Difference) -> bool:
    """Nova shows the time of its answer, Fleetlight that of the creation."""
    if difference.key != "updated" or difference.ours != json.dumps(compared.row(difference.server).get("created")):
        return False
    try:
        shown = datetime.fromisoformat(difference.nova.strip('"'))
    except ValueError:
        return False
    return abs(shown.timestamp() - compared.nova.at_s) <= _CLOCKS_S


def _host_status_of_deleted(compared: Compared, difference: Difference) -> bool:
    if difference.key != "host_status" or difference.nova != '""':
        return False
    # Nova looks up each host once in a list, for the first of its servers, and in vain for one that is deleted.
    host = compared.row(difference.server).get(_TEXTS["host"])
    of_host = [row for row in compared.nova.shown if row.get(_TEXTS["host"]) == host]
    return any(row.get("status") in ("DELETED", "SOFT_DELETED") for row in of_host[:1])


def _zone_of_the_row(compared: Compared, difference: Difference) -> bool:
    """Only a server with a host: without one, Nova takes the zone from the row, too."""
    is_zone = difference.key == _ZONE and ABSENT not in (difference.nova, difference.ours)
    return is_zone and bool(compared.row(difference.server).get("hostId"))


def _empty_networks(_compared: Compared, difference: Difference) -> bool:
    if difference.key != "addresses" or ABSENT in (difference.nova, difference.ours):
        return False
    nova = json.loads(difference.nova)
    return bool({label: each for label, each in nova.items() if each} == json.loads(difference.ours))


def _no_security_groups(_compared: Compared, difference: Difference) -> bool:
    return difference.key == "security_groups" and difference.ours == ABSENT


def _hidden_server(compared: Compared, difference: Difference) -> bool:
    is_one = compared.question.kind == "/servers/ID"
    return is_one and difference.kind is Kind.STATUS and (difference.nova, difference.ours) == (_FORBIDDEN, _NOT_FOUND)


def _repeated_parameters(compared: Compared, difference: Difference) -> bool:
    name = difference.key.removeprefix("next: ")
    return difference.kind is Kind.LINKS and name in compared.question.repeated


def _text_order(compared: Compared, difference: Difference) -> bool:
    """Our order is by code point, as far as the rows show the sort keys, so a page may have other rows than Nova's.

    A row missing from our page must then sort after its last row, or before its first one and so maybe before the
    marker. A surplus row may be on another page of Nova's, whose order is unknown.
    """
    keys = compared.question.values("sort_key")
    texts = [place for place, key in enumerate(keys) if key in _TEXTS]
    if not texts or not (difference.kind is Kind.ORDER or (difference.kind in _ROWS and _is_page(compared))):
        return False
    order = _order(compared.question, texts[-1] + 1)
    rows, page = list(compared.ours.servers), compared.nova if difference.kind is Kind.EXTRA else compared.ours
    is_behind_marker = bool(compared.question.values("marker"))
    if difference.kind in _ROWS and page.next_link is None and not is_behind_marker:
        return False
    wanted = [compared.row(difference.server)] if difference.kind is Kind.MISSING else []
    if any(member not in row for row in [*rows, *wanted] for member, _ in order):
        return True
    if not _is_sorted(rows, order):
        return False
    is_behind = page.next_link is not None and _is_sorted([*rows, *wanted], order)
    return not wanted or is_behind or (is_behind_marker and _is_sorted([*wanted, *rows], order))


def _order(question: Question, length: int) -> list[tuple[str, str]]:
    """The first sort keys of a request: the member of a server that shows each, and `asc` or `desc`."""
    keys, given = question.values("sort_key"), question.values("sort_dir")
    directions = [*given, *[given[0] if given else "desc"] * len(keys)]
    return [(_MEMBERS.get(key, ""), each) for key, each in zip(keys[:length], directions, strict=False)]


def _is_sorted(rows: Sequence[Mapping[str, Any]], order: Sequence[tuple[str, str]]) -> bool:
    """Whether rows are in this order, which is pairs of a member and `asc` or `desc`."""
    found = list(rows)
    # The last key first, since sorting is stable.
    for member, direction in reversed(order):
        found.sort(key=partial(_by_member, member), reverse=direction == "desc")
    return found == list(rows)


def _by_member(member: str, row: Mapping[str, Any]) -> tuple[bool, str]:
    """Sort nulls first; numbers compare as text, since sort keys that are numbers have one digit."""
    return row[member] is not None, str(row[member])


def _is_page(compared: Compared) -> bool:
    return bool({"limit", "marker"} & {name for name, _ in compared.question.parameters})


def _texts_of_the_database(compared: Compared, difference: Difference) -> bool:
    """Only rows that a comparison without case and accents finds, or rows that share a page with such."""
    names = [name for name, _ in compared.question.parameters if name in _PATTERNS]
    if difference.kind not in _ROWS or not names:
        return False
    moved = [compared.row(difference.server)]
    if _is_page(compared):
        moved += [*compared.nova.servers, *compared.ours.servers]
    return any(_is_loose(row, compared.question, name) for row in moved for name in names)


def _is_loose(row: Mapping[str, Any], question: Question, name: str) -> bool:
    """Whether ignoring case and accents changes if a filter by text finds the row."""
    shown = row.get(_PATTERNS[name])
    if shown is None:
        return _PATTERNS[name] == "tags"  # a list without details does not show tags
    texts = shown if isinstance(shown, list) else [shown]
    wanted = question.values(name)[-1]
    parts = wanted.split(",") if _PATTERNS[name] == "tags" else [wanted]
    return any(_found(part, texts, exactly=True) != _found(part, texts, exactly=False) for part in parts)


def _found(wanted: str, texts: Sequence[object], *, exactly: bool) -> bool:
    """Search by regular expression; if not exactly, also without case, and by letters and digits alone."""
    if exactly:
        return any(_matches(wanted, str(text)) for text in texts)
    return any(_matches(wanted, str(text), re.IGNORECASE) or _plain(wanted) in _plain(str(text)) for text in texts)


def _matches(pattern: str, text: str, flags: int = 0) -> bool:
    try:
        return re.search(pattern, text, flags) is not None
    except re.error:
        return False


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.casefold())
    return _LOOSE.sub("", "".join(each for each in letters if not unicodedata.combining(each)))


def _refused_pattern(compared: Compared, difference: Difference) -> bool:
    is_list = compared.question.kind != "/servers/ID"
    return (
        is_list
        and difference.kind is Kind.STATUS
        and difference.nova == "200"
        and difference.ours == _BAD_REQUEST
        and (
            any(
                mark in value
                for name, value in compared.question.parameters
                if name in _PATTERNS
                for mark in ("(?", "\\1")
            )
        )
    )


def _sorted_nulls(compared: Compared, difference: Difference) -> bool:
    """Nova fails to sort them, or leaves rows without a value out of pages behind a marker that has one.

    Behind a marker without a value it has other rows: in the marker's cell those that come behind it by the remaining
    keys, in other cells only those with another value. Ours are then those behind it in the order with nulls lowest.
    """
    keys = compared.question.values("sort_key")
    members = [_MEMBERS.get(key, "") for key in keys]
    if difference.kind in _ROWS and any(compared.marker.get(member, "") is None for member in members):
        order = [*_order(compared.question, len(keys)), ("id", "asc")]
        row, rows = compared.row(difference.server), list(compared.ours.servers)
        if any(member not in each for each in (row, compared.marker) for member, _ in order):
            return True
        is_behind = _is_sorted([compared.marker, row], order)
        if difference.kind is Kind.EXTRA:
            return is_behind
        return not is_behind or (compared.ours.next_link is not None and _is_sorted([*rows, row], order))
    if difference.kind is Kind.EXTRA and compared.question.values("marker"):
        row = compared.row(difference.server)
        return any(row.get(member) is None for member in members)
    return bool(keys) and difference.kind is Kind.STATUS and (difference.nova, difference.ours) == ("500", "200")


def _uuid_and_marker(compared: Compared, difference: Difference) -> bool:
    question = compared.question
    wanted = {each for value in question.values("uuid") for each in value.split(",")}
    if difference.kind is not Kind.MISSING or not question.values("marker") or difference.server not in wanted:
        return False
    if question.values("sort_key")[:1] != ["uuid"]:
        return True  # neither answer tells where the marker is
    is_ascending = question.values("sort_dir")[:1] == ["asc"]
    return (difference.server > question.values("marker")[-1]) != is_ascending


RULES: Sequence[Rule] = (
    Rule(
        "build-requests", "Nova lists build requests first, with any filter, and of one project alone", _build_requests
    ),
    Rule("never-updated", "Nova shows the present moment for a server that was never updated", _never_updated),
    Rule(
        "host-status-of-deleted", "Nova shows no host status where deleted servers are listed", _host_status_of_deleted
    ),
    Rule(
        "zone-of-the-row", "Nova shows the zone of the host's aggregate, Fleetlight that of the row", _zone_of_the_row
    ),
    Rule("empty-networks", "Nova lists a network that has no address", _empty_networks),
    Rule("no-security-groups", "security groups are in Neutron, which Fleetlight does not read", _no_security_groups),
    Rule("hidden-server", "Nova answers 403 where Fleetlight does not say that there is such a server", _hidden_server),
    Rule("repeated-parameters", "Nova's next link keeps one of several values", _repeated_parameters),
    Rule("text-order", "a database orders texts by its collation, Fleetlight by code point", _text_order),
    Rule("text-of-the-database", "a database finds texts without case or accents", _texts_of_the_database),
    Rule("sorted-nulls", "Nova fails where a sort key has no value in several places", _sorted_nulls),
    Rule("uuid-and-marker", "Nova lists a server that is asked for by uuid behind any marker", _uuid_and_marker),
    Rule("refused-pattern", "Fleetlight refuses an expression that is not of RE2", _refused_pattern),
)


def waiting_in(answer: Answer) -> Iterator[str]:
    """Ids of the servers that an answer shows as build requests."""
    for row in answer.shown:
        if row.get("status") == "BUILD" and not row.get("hostId"):
            yield str(row.get("id"))


def placed_in(answer: Answer) -> Iterator[str]:
    """Ids of the servers that an answer shows in a cell."""
    for row in answer.shown:
        if row.get("hostId") or row.get("status", "BUILD") != "BUILD":
            yield str(row.get("id"))


def explanation(compared: Compared, difference: Difference) -> str | None:
    """The name of the rule that explains the difference; None if no rule does."""
    return next((rule.name for rule in RULES if rule.explains(compared, difference)), None)
