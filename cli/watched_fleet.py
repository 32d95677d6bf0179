"""Reads what `fleetlight top` shows, from this process: the board of cells, and the feed of changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec

from fleetlight.cli.board import CellLine, read_board
from fleetlight.cli.errors import CommandError
from fleetlight.cli.in_process import ApiInProcess, document_of

_FIELDS = "name,status"
_WAIT_S = 5


@dataclass(frozen=True, slots=True)
class ShownChange:
    """kind: enter, change or leave. name, status: of the instance; if it is gone, its uuid and an empty status."""

    at: str
    cell: str
    kind: str
    name: str
    status: str


class WatchedFleet:
    """Follows the fleet from now on. Any call may raise CommandError or CellError, and can be repeated."""

    def __init__(self, api: ApiInProcess) -> None:
        self._api = api
        self._cursor = ""

    async def board(self) -> Sequence[CellLine]:
        """All cells, by name."""
        return await read_board(self._api)

    async def changes(self) -> Sequence[ShownChange]:
        """Changes since the last call, for which it waits a few seconds; the first call returns none."""
        asked = {"fields": _FIELDS, "all_projects": "1", "wait": _WAIT_S, "after": self._cursor}
        answer = await self._api.call("GET", "/fleetlight/changes", query=urlencode(asked))
        if answer.status == HTTPStatus.GONE:
            self._cursor = ""
            raise CommandError("some changes were missed")
        if answer.status != HTTPStatus.OK:
            document_of(answer)
        *changes, end = [msgspec.json.decode(line) for line in answer.body.splitlines()]
        self._cursor = end["cursor"]
        return [_shown(change) for change in changes]


def _shown(change: Any) -> ShownChange:
    values = [str(value) for _, value in change.get("cells", ())] or [change["id"], ""]
    return ShownChange((change["at"] or "")[11:19], change["cell"], change["kind"], *values)
