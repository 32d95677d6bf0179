"""Finds what differs between two answers to one request, as callers see it; pure.

It ignores the API's address in links, and the order of lists that have none. If a row is missing or surplus, the rows
that this shifts over the end of the page are no differences of their own.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from fleetlight.cli.compare.questions import VERSION_HEADER, Question

ABSENT = "(absent)"
_FIRST_ERROR = 400
_TOO_MANY, _FAILED = 429, 500
# What precedes the resource in a link: an address, a path to the API, a version, a project.
_HREF = re.compile(
    r"^https?://[^/]+(?:/[^?]*?)??(/v2(?:\.\d+)?)?(?:/[0-9a-f-]{32,36})?(/(?:servers|flavors|images)\b.*)$"
)
_UNORDERED = {"tags", "security_groups"}
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Kind(StrEnum):
    """The kinds of differences. VALUE is counted for each key by itself."""

    NO_ANSWER = "no answer"
    STATUS = "status"
    ERROR = "error body"
    VERSION = "microversion"
    MISSING = "missing row"
    EXTRA = "extra row"
    ORDER = "order"
    VALUE = "value"
    LINKS = "links"


@dataclass(frozen=True, slots=True)
class Answer:
    """document: the decoded body, None if it is not JSON. headers: as the HTTP client returns them.

    status: 0 if no answer came within the time limit, for the reason in `problem`. at_s: when it came, in Unix time.
    """

    status: int
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS, compare=False)
    duration_s: float = field(default=0.0, compare=False)
    problem: str = ""
    at_s: float = field(default=0.0, compare=False)

    @property
    def is_none(self) -> bool:
        """Whether it shows nothing about servers: no answer came, or it is from a rate limit or a proxy."""
        return self.status in (0, _TOO_MANY) or self.status > _FAILED

    @property
    def servers(self) -> Sequence[Mapping[str, Any]]:
        """The rows of a list; empty for any other answer."""
        found = self.document.get("servers") if isinstance(self.document, dict) else None
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    @property
    def shown(self) -> Sequence[Mapping[str, Any]]:
        """The rows of a list, or the one server of another answer."""
        one = self.document.get("server") if isinstance(self.document, dict) else None
        return [one] if isinstance(one, dict) else self.servers

    @property
    def next_link(self) -> str | None:
        links = self.document.get("servers_links") if isinstance(self.document, dict) else None
        return next((str(link["href"]) for link in links or () if link.get("rel") == "next"), None)


@dataclass(frozen=True, slots=True)
class Difference:
    """key: for VALUE the member of the server, for LINKS the part that differs. server: an id, or empty.

    nova, ours: the value of each API, as JSON.
    """

    kind: Kind
    key: str = ""
    server: str = ""
    nova: str = ""
    ours: str = ""

    @property
    def class_(self) -> str:
        return f"value of {self.key}" if self.kind is Kind.VALUE else str(self.kind)

    @property
    def subject(self) -> tuple[Kind, str, str]:
        """Identity of the difference, without the values."""
        return self.kind, self.key, self.server


def is_unanswered(nova: Answer, ours: Answer) -> bool:
    """Whether Nova's answer cannot be compared: there is none, or both APIs failed."""
    return nova.is_none or nova.status == ours.status == _FAILED


def differences(question: Question, nova: Answer, ours: Answer) -> Sequence[Difference]:
    """All differences between two answers. nova: not one for which `is_none` is true."""
    if ours.status == 0:
        return [Difference(Kind.NO_ANSWER, nova=str(nova.status), ours=ours.problem)]
    if nova.status != ours.status:
        return [Difference(Kind.STATUS, nova=str(nova.status), ours=str(ours.status))]
    found = list(_versions(nova, ours))
    if nova.status >= _FIRST_ERROR:
        ends = [_error(answer) for answer in (nova, ours)]
        return [*found, *([Difference(Kind.ERROR, nova=ends[0], ours=ends[1])] if ends[0] != ends[1] else ())]
    if not isinstance(nova.document, dict) or not isinstance(ours.document, dict):
        is_same = nova.document == ours.document
        return [*found, *(() if is_same else [Difference(Kind.VALUE, "body", "", _shape(nova), _shape(ours))])]
    if "servers" in nova.document or "servers" in ours.document:
        return [*found, *_of_lists(question, nova, ours)]
    one, other = (answer.document.get("server", answer.document) for answer in (nova, ours))
    return [*found, *_of_rows(one, other)]


def _versions(nova: Answer, ours: Answer) -> Iterator[Difference]:
    one, other = (answer.headers.get(VERSION_HEADER, ABSENT) for answer in (nova, ours))
    if one != other:
        yield Difference(Kind.VERSION, nova=one, ours=other)


def _error(answer: Answer) -> str:
    """Key and code of an error, which programs read; its message is for people (contracts/nova-servers, 10)."""
    if not isinstance(answer.document, dict):
        return _shape(answer)
    return ", ".join(
        f"{key}: {fault.get('code') if isinstance(fault, dict) else ABSENT}" for key, fault in answer.document.items()
    )


def _shape(answer: Answer) -> str:
    return "no JSON" if answer.document is None else f"JSON that is a {type(answer.document).__name__}"


def _of_lists(question: Question, nova: Answer, ours: Answer) -> Iterator[Difference]:
    theirs, others = nova.servers, ours.servers
    ids, our_ids = ([str(row.get("id")) for row in rows] for rows in (theirs, others))
    by_id, our_by_id = dict(zip(ids, theirs, strict=True)), dict(zip(our_ids, others, strict=True))
    missing, extra = Counter(ids) - Counter(our_ids), Counter(our_ids) - Counter(ids)
    if len(ids) == len(our_ids):
        _forget_shifted(our_ids, extra, missing.total())
        _forget_shifted(ids, missing, extra.total())
    for server in missing:
        yield Difference(Kind.MISSING, "", server, _times(ids, server), _times(our_ids, server))
    for server in extra:
        yield Difference(Kind.EXTRA, "", server, _times(ids, server), _times(our_ids, server))
    yield from _order(ids, our_ids)
    for server in by_id.keys() & our_by_id.keys():
        yield from _of_rows(by_id[server], our_by_id[server])
    if len(ids) == len(our_ids):
        yield from _next_links(nova, ours, has_same_end=ids[-1:] == our_ids[-1:])


def _forget_shifted(ids: Sequence[str], surplus: Counter[str], most: int) -> None:
    """Remove at most `most` rows at the end of a page from `surplus`: a missing row ahead of them let them onto it."""
    for server in reversed(ids):
        if most == 0 or surplus[server] == 0:
            break
        surplus[server] -= 1
        most -= 1
    for server in [server for server, count in surplus.items() if count <= 0]:
        del surplus[server]


def _times(ids: Sequence[str], server: str) -> str:
    count = ids.count(server)
    return ABSENT if count == 0 else "there" if count == 1 else f"there {count} times"


def _order(ids: Sequence[str], our_ids: Sequence[str]) -> Iterator[Difference]:
    """Yield the first row at another place, among the rows that both lists have."""
    common = set(ids) & set(our_ids)
    theirs, others = ([server for server in dict.fromkeys(each) if server in common] for each in (ids, our_ids))
    for one, other in zip(theirs, others, strict=True):
        if one != other:
            yield Difference(Kind.ORDER, "", one, f"{one} before {other}", f"{other} before {one}")
            return


def _of_rows(nova: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[Difference]:
    server = str(nova.get("id", ""))
    for key in nova.keys() | ours.keys():
        one, other = (text_of(comparable(row[key], key)) if key in row else ABSENT for row in (nova, ours))
        if one != other:
            kind = Kind.LINKS if key == "links" else Kind.VALUE
            yield Difference(kind, key, server, one, other)


def _next_links(nova: Answer, ours: Answer, *, has_same_end: bool) -> Iterator[Difference]:
    """has_same_end: whether both pages end with the same row, which is the marker."""
    one, other = nova.next_link, ours.next_link
    if one is None or other is None:
        if one != other:
            # The link is shown without the API's address, which is no difference.
            yield Difference(
                Kind.LINKS, "next", "", *(ABSENT if link is None else _path(link) for link in (one, other))
            )
        return
    if _path(one).partition("?")[0] != _path(other).partition("?")[0]:
        yield Difference(Kind.LINKS, "next", "", _path(one), _path(other))
    asked, ours_asked = _parameters(one), _parameters(other)
    for name in sorted(asked.keys() | ours_asked.keys()):
        if asked.get(name) != ours_asked.get(name) and (has_same_end or name != "marker"):
            yield Difference(Kind.LINKS, f"next: {name}", "", text_of(asked.get(name)), text_of(ours_asked.get(name)))


def _parameters(link: str) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(urlsplit(link).query, keep_blank_values=True, errors="replace"):
        found.setdefault(name, []).append(value)
    return found


def _path(href: str) -> str:
    """A link without the parts that depend on the API's address."""
    found = _HREF.match(href)
    return href if found is None else f"{found[1] or ''}{found[2]}"


def comparable(value: Any, key: str = "") -> Any:
    """A value without parts that may differ: the API's address in links, and the order of sets."""
    match value:
        case dict():
            return {name: comparable(each, name) for name, each in value.items()}
        case list():
            plain = [comparable(each) for each in value]
            return sorted(plain, key=text_of) if key in _UNORDERED else plain
        case str() if key == "href":
            return _path(value)
    return value


def text_of(value: Any) -> str:
    """Encode as JSON, the same for equal values."""
    return msgspec.json.encode(value, order="deterministic").decode()
