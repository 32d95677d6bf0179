"""A consumer of the feed of changes, as docs/reference/changes.md describes one: it keeps a copy of a list."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import httpx

Get = Callable[[str, Mapping[str, str]], httpx.Response]
"""GET of an address with headers, at an API, as its caller."""

Changed = tuple[str, int]
"""Id and revision, which name a change."""

Rows = Mapping[str, Sequence[Any]]
"""By id, the cells of a row: each its status and its value."""

_STRONG = {"Fleetlight-Consistency": "strong"}


class NoAnswerError(Exception):
    """The API has no whole answer now: ask again, with the same cursor."""


class CursorRefusedError(Exception):
    """The copy has to begin anew, for this reason."""


@dataclass(frozen=True, slots=True)
class Copy:
    """What a consumer has stored, in one transaction.

    begun, reached: by cell, the number of the last change before it began, and of the last one that it has. changes:
    those that it has had since it began, in their order. is_complete: whether the feed says that the copy is the list.
    """

    cursor: str
    begun: Mapping[str, int | None]
    reached: Mapping[str, int | None]
    rows: Rows = field(default_factory=dict)
    changes: Sequence[Changed] = ()
    is_complete: bool = False


class FeedConsumer:
    """A copy of a list.

    get: asks the API; may be that of another process of it later. fields: the columns, of which the first one is the
    id. asked: parameters of the list.

    It has to begin before it polls. Calls raise NoAnswerError and CursorRefusedError; the copy is then as it was.
    """

    def __init__(self, get: Get, fields: str, **asked: str) -> None:
        self.get = get
        self._asked = asked
        self._fields = {"fields": fields}
        self.copy = Copy("", {}, {})

    def new_copy(self) -> Copy:
        """One that has a cursor, and no rows yet."""
        _, end = self._changes(self._fields)
        numbers = _numbers(end)
        return Copy(end["cursor"], begun=numbers, reached=numbers)

    def begin_anew(self) -> None:
        """Take a cursor, and then list."""
        begun = self.new_copy()
        self.copy = replace(begun, rows=self.listed())

    def listed(self, limit: int = 1000, between_pages: Callable[[], object] = lambda: None) -> Rows:
        """The whole list."""
        rows, marker = self._page(limit, {})
        while marker is not None:
            between_pages()
            page, marker = self._page(limit, {"marker": marker})
            rows |= page
        return rows

    def poll(self, *, stores: bool, wait_s: int = 0) -> None:
        """Ask for changes once, and apply them. stores: False: it crashes before it has stored what it made of them."""
        changes, end = self._changes({"after": self.copy.cursor, "wait": wait_s, **self._fields})
        rows = dict(self.copy.rows)
        for change in changes:
            if change["kind"] == "leave":
                rows.pop(change["id"], None)
            else:
                rows[change["id"]] = change["cells"]
        had = (*self.copy.changes, *((change["id"], change["revision"]) for change in changes))
        if stores:
            self.copy = Copy(end["cursor"], self.copy.begun, _numbers(end), rows, had, end["complete"])

    def _page(self, limit: int, marker: Mapping[str, str]) -> tuple[dict[str, Sequence[Any]], str | None]:
        asked = {**self._asked, **self._fields, "limit": limit, **marker}
        answer = self._answer(f"/fleetlight/query?{urlencode(asked)}", _STRONG)
        if answer.headers["Fleetlight-Complete"] != "true":
            raise NoAnswerError("the list is not complete")
        said = answer.json()
        return {row[0][1]: row for row in said["data"]}, said["marker"]

    def _changes(self, more: Mapping[str, str | int]) -> tuple[Sequence[Any], Any]:
        answer = self._answer(f"/fleetlight/changes?{urlencode({**self._asked, **more})}", {})
        *changes, end = map(json.loads, answer.content.splitlines())
        if end["kind"] != "end":
            raise NoAnswerError("the answer was cut off")
        return changes, end

    def _answer(self, address: str, headers: Mapping[str, str]) -> httpx.Response:
        try:
            answer = self.get(address, headers)
        except httpx.TransportError as error:
            raise NoAnswerError(str(error)) from error
        if answer.status_code == HTTPStatus.GONE:
            (fault,) = answer.json().values()
            raise CursorRefusedError(fault["reason"])
        if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise NoAnswerError(answer.text)
        assert answer.status_code == HTTPStatus.OK, answer.text
        return answer


def _numbers(end: Any) -> Mapping[str, int | None]:
    """By cell, which only answers to administrators have."""
    return {name: cell["sequence"] for name, cell in end.get("cells", {}).items()}
