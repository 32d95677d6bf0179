"""A client of the remote API of a Ganeti cluster (contracts/ganeti-rapi, 4)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cells.upstream.credentials import Fixed, read_secret
from fleetlight.cells.upstream.http import UpstreamConnection
from fleetlight.resources.malformed_json import MALFORMED_JSON
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

Expression = Sequence[Any]
"""A filter of Ganeti: operator, then operands."""

_OK, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403
_SHOWN = 200
_STATUSES = range(5)


class _Definition(msgspec.Struct):
    name: str


class _Answer(msgspec.Struct):
    fields: list[_Definition]
    data: list[list[tuple[int, Any]]]


class _Configured(msgspec.Struct):
    """The members of a cluster's configuration that this program uses."""

    ctime: float
    mtime: float
    tags: list[str]
    enabled_hypervisors: Annotated[list[str], msgspec.Meta(min_length=1)]


_read_answer: Callable[[bytes], _Answer] = msgspec.json.Decoder(_Answer).decode
_read_configured: Callable[[bytes], _Configured] = msgspec.json.Decoder(_Configured).decode
_read_object: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(dict[str, Any]).decode
_read_list: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[Any]).decode


class GanetiApi:
    """The client; for one thread at a time. Every call raises UpstreamError.

    timeout_s: of one request.
    """

    def __init__(self, address: UpstreamAddress, *, timeout_s: float) -> None:
        if address.username is None or address.password_file is None:
            raise UpstreamError("a cluster is asked with a user name and the file that has the password")
        self._connection = UpstreamConnection(address.url, timeout_s=timeout_s, ca_certs=address.ca_certs)
        self._credentials = Fixed.password(address.username, read_secret(address.password_file))

    def query(
        self, item_type: str, fields: Sequence[str], wanted: Expression | None, deadline_s: float
    ) -> Sequence[Mapping[str, tuple[int, Any]]]:
        """The items that match a filter, or all for None: the status and value of each field.

        deadline_s: on the monotonic clock.
        """
        question = msgspec.json.encode({"fields": fields, "qfilter": wanted})
        body = self._ask("PUT", f"/2/query/{item_type}", question, deadline_s)
        try:
            answer = _read_answer(body)
        except MALFORMED_JSON as error:
            raise self._nonsense(item_type, str(error)) from error
        if [field.name for field in answer.fields] != list(fields):
            raise self._nonsense(item_type, "the fields are not those that were asked for")
        for row in answer.data:
            if len(row) != len(fields) or any(status not in _STATUSES for status, _ in row):
                raise self._nonsense(item_type, "a row is none of those fields")
        return [dict(zip(fields, row, strict=True)) for row in answer.data]

    def operating_systems(self, deadline_s: float) -> Sequence[Any]:
        """The names of the operating systems with their variants; newer versions return more of each."""
        body = self._ask("GET", "/2/os?bulk=1", None, deadline_s)
        try:
            return _read_list(body)
        except MALFORMED_JSON as error:
            raise self._nonsense("os", str(error)) from error

    def cluster(self, deadline_s: float) -> Mapping[str, Any]:
        """The configuration of the cluster, by the keys of `/2/info`; times in microseconds."""
        body = self._ask("GET", "/2/info", None, deadline_s)
        try:
            said, times = _read_object(body), _read_configured(body)
        except MALFORMED_JSON as error:
            raise self._nonsense("itself", str(error)) from error
        seconds = {"ctime": times.ctime, "mtime": times.mtime}
        return {**said, **{name: round(value * MICROSECONDS_PER_SECOND) for name, value in seconds.items()}}

    def close(self) -> None:
        self._connection.close()

    def _ask(self, method: str, target: str, body: bytes | None, deadline_s: float) -> bytes:
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            **self._credentials.headers(deadline_s),
        }
        answer = self._connection.request(method, target, headers, body=body, deadline_s=deadline_s)
        name = self._connection.name
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            raise UpstreamError(f"{name} does not let us read: status {answer.status}; check the user and the password")
        if answer.status != _OK:
            shown = answer.body[:_SHOWN].decode(errors="replace")
            raise UpstreamError(f"{name} refuses {method} {target}: status {answer.status}, {shown}")
        return answer.body

    def _nonsense(self, item_type: str, problem: str) -> UpstreamError:
        return UpstreamError(f"{self._connection.name} does not answer about {item_type} as a cluster does: {problem}")
