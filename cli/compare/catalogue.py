"""Generates requests of every form that the compute API takes, with values from the cloud's own servers; pure.

First each filter, sort key, page size and microversion once, in random order; then random combinations without end.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from fleetlight.cli.compare.questions import BRIEF, DETAILED, Question

NOBODY = "00000000-0000-4000-8000-000000000000"
SAMPLED = 200
_PAGES_BEHIND = 3
_ALL = ("all_tenants", "1")
# Each of these microversions shows or takes something that earlier ones do not (contracts/nova-servers, 2).
_MINORS = (1, 3, 5, 9, 16, 19, 26, 38, 46, 47, 63, 66, 69, 71, 73, 75, 83, 90, 96, 98, 100, 102, 104)
_LIMITS = ("1", "2", "5", "17", "100", "1000")
_SORT_KEYS = (
    *("created_at", "updated_at", "display_name", "uuid", "vm_state", "task_state", "power_state", "host", "hostname"),
    *("node", "project_id", "user_id", "image_ref", "key_name", "launched_at", "terminated_at", "availability_zone"),
    *("instance_type_id", "root_device_name", "config_drive", "progress", "launch_index", "display_description"),
    *("locked", "auto_disk_config", "access_ip_v4", "access_ip_v6"),
)
_ATTRIBUTE = "OS-EXT-SRV-ATTR:"
_REFUSED = (
    (("limit", "-1"),),
    (("limit", "many"),),
    (("limit", "0"),),
    (("marker", NOBODY),),
    (("sort_key", "colour"),),
    (("sort_key", "created_at"), ("sort_dir", "up")),
    (("changes-since", "yesterday"),),
    (("all_tenants", "maybe"),),
    (("name", "["),),
    (("colour", "red"),),
    (("status", "SLEEPING"),),
    (("flavor", "none-of-this-name"),),
    (("changes-since", "2026-01-02T00:00:00Z"), ("changes-before", "2026-01-01T00:00:00Z")),
)

_Row = Mapping[str, Any]
_Values = Callable[[_Row], Sequence[object]]


def _member(name: str) -> _Values:
    return lambda row: [row[name]] if row.get(name) not in (None, "") else []


def _escaped(name: str) -> _Values:
    """The values of a member, escaped as regular expressions that match them."""
    return lambda row: [re.escape(str(row[name]))] if row.get(name) else []


def _addresses(version: int) -> _Values:
    return lambda row: [
        text
        for ports in row.get("addresses", {}).values()
        for port in ports
        if port["version"] == version
        for text in (port["addr"], port["addr"][:-1])
    ]


def _part_of_name(row: _Row) -> Sequence[str]:
    word = re.match(r"\w+", str(row.get("name") or ""))
    return [] if word is None else [word[0][:3], f"^{word[0][:4]}", f"{word[0][-1]}$"]


def _image(row: _Row) -> Sequence[str]:
    image = row.get("image")
    return [str(image["id"])] if isinstance(image, dict) else [""]


_FILTERS: Mapping[str, _Values] = {
    "name": lambda row: [*_escaped("name")(row), *_part_of_name(row)],
    "status": _member("status"),
    "host": _member(f"{_ATTRIBUTE}host"),
    "node": _escaped(f"{_ATTRIBUTE}hypervisor_hostname"),
    "hostname": _escaped(f"{_ATTRIBUTE}hostname"),
    "reservation_id": _member(f"{_ATTRIBUTE}reservation_id"),
    "root_device_name": _member(f"{_ATTRIBUTE}root_device_name"),
    "launch_index": _member(f"{_ATTRIBUTE}launch_index"),
    "flavor": lambda row: _member("id")(row["flavor"]) if isinstance(row.get("flavor"), dict) else [],
    "image": _image,
    "project_id": _member("tenant_id"),
    "user_id": _member("user_id"),
    "uuid": _member("id"),
    "vm_state": _member("OS-EXT-STS:vm_state"),
    "task_state": _member("OS-EXT-STS:task_state"),
    "power_state": _member("OS-EXT-STS:power_state"),
    "availability_zone": _escaped("OS-EXT-AZ:availability_zone"),
    "key_name": _escaped("key_name"),
    "config_drive": _member("config_drive"),
    "description": _escaped("description"),
    "access_ip_v4": _escaped("accessIPv4"),
    "locked": _member("locked"),
    "progress": _member("progress"),
    "ip": _addresses(4),
    "ip6": _addresses(6),
    "changes-since": _member("updated"),
    "changes-before": _member("updated"),
    **{name: lambda row: row.get("tags") or () for name in ("tags", "tags-any", "not-tags", "not-tags-any")},
    "deleted": lambda _row: ("true", "false"),
    "soft_deleted": lambda _row: ("true",),
}


class Catalogue:
    """rows: servers of the cloud, as an administrator sees them. newest: the newest minor version that both APIs have.

    draw: the source of randomness.
    """

    def __init__(self, rows: Sequence[_Row], newest: int, draw: random.Random) -> None:
        self._draw = draw
        self._minors = [minor for minor in _MINORS if minor < newest] + [newest]
        self._servers = list(dict.fromkeys(str(row["id"]) for row in rows))
        self._values = {
            name: found
            for name, values in _FILTERS.items()
            if (found := sorted({str(value) for row in rows for value in values(row)}))
        }

    @property
    def newest(self) -> str:
        return f"2.{self._minors[-1]}"

    def questions(self) -> Iterator[Question]:
        """Yield requests without end."""
        each_once = list(chain(self._by_version(), self._filtered(), self._sorted(), self._paged(), self._refused()))
        self._draw.shuffle(each_once)
        yield from each_once
        while True:
            yield self._drawn()

    def _by_version(self) -> Iterator[Question]:
        for minor in self._minors:
            for path in (BRIEF, DETAILED):
                yield Question(path, (_ALL, ("limit", "50")), f"2.{minor}")
            yield Question(DETAILED, (), f"2.{minor}")
            yield Question(f"{BRIEF}/{self._server()}", (), f"2.{minor}")

    def _filtered(self) -> Iterator[Question]:
        for name, values in self._values.items():
            for value in self._draw.sample(values, min(2, len(values))):
                yield Question(DETAILED, (_ALL, (name, value)), self.newest)
            yield Question(BRIEF, ((name, self._draw.choice(values)),), self.newest)
        if statuses := self._values.get("status"):
            yield Question(DETAILED, (_ALL, *(("status", each) for each in statuses[:2])), self.newest)
        yield Question(DETAILED, (_ALL, ("deleted", "true"), ("limit", "100")), self.newest)

    def _sorted(self) -> Iterator[Question]:
        for key in _SORT_KEYS:
            for direction in ("asc", "desc"):
                order = (("sort_key", key), ("sort_dir", direction))
                yield Question(DETAILED, (_ALL, *order, ("limit", "100")), self.newest)

    def _paged(self) -> Iterator[Question]:
        for limit in _LIMITS:
            yield Question(BRIEF, (_ALL, ("limit", limit)), self.newest, pages=_PAGES_BEHIND)
            yield Question(DETAILED, (_ALL, ("limit", limit), ("marker", self._server())), self.newest)

    def _refused(self) -> Iterator[Question]:
        for wrong in _REFUSED:
            for version in ("2.1", self.newest):
                yield Question(BRIEF, wrong, version)
        yield Question(f"{BRIEF}/{NOBODY}", (), self.newest)
        yield Question(BRIEF, (), f"2.{self._minors[-1] + 900}")

    def _drawn(self) -> Question:
        draw = self._draw
        version = f"2.{draw.choice(self._minors)}"
        if draw.random() < 0.1:
            return Question(f"{BRIEF}/{self._server()}", (), version)
        parameters = [_ALL] if draw.random() < 0.7 else []
        names = draw.sample(sorted(self._values), k=min(draw.randrange(4), len(self._values)))
        parameters += [(name, draw.choice(self._values[name])) for name in names]
        for key in draw.sample(_SORT_KEYS, k=draw.choice((0, 0, 1, 2))):
            parameters += [("sort_key", key), ("sort_dir", draw.choice(("asc", "desc")))]
        if draw.random() < 0.6:
            parameters.append(("limit", draw.choice(_LIMITS)))
        if draw.random() < 0.2:
            parameters.append(("marker", self._server()))
        pages = _PAGES_BEHIND if draw.random() < 0.3 else 0
        return Question(draw.choice((BRIEF, DETAILED, DETAILED)), tuple(parameters), version, pages)

    def _server(self) -> str:
        return self._draw.choice(self._servers) if self._servers else NOBODY
