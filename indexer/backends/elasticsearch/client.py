"""Sends one request to the cluster as bytes, returns the answer as bytes, and translates failures to our errors.

It skips the client's own decoding: of a list's page only those parts are decoded which the caller sees.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from elastic_transport import ApiResponse, Serializer, TransportError
from elasticsearch import ApiError, Elasticsearch

from fleetlight.indexer.backends.elasticsearch.dialects import TRANSPORTS, Dialect, addresses_of
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexForbiddenError,
    IndexLoginError,
    IndexPausedError,
    IndexQueryError,
    IndexRequestError,
    IndexUnavailableError,
    shortened,
)

JSON = "application/json"
NDJSON = "application/x-ndjson"

_MISSING_INDEX = "index_not_found_exception"
_SEARCH_FAILED, _NO_SHARD = "search_phase_execution_exception", "all shards failed"
_BLOCKED = "cluster_block_exception"
# Identified by its number: `index.blocks.write`, with which pauses are made
# (fleetlight.indexer.backends.elasticsearch.pause).
_WRITE_BLOCK = "/8/"
_CLOSED = "index_closed_exception"
_INDEX_EXISTS = "resource_already_exists_exception"
# Causes with which the server ends one search that needs too much, while it answers others. The status varies:
# Elasticsearch 9 was seen with 400 and 429, OpenSearch 3 with 429, 500 and 503.
_TOO_MUCH_OF_ONE_QUERY = frozenset(
    {
        "circuit_breaking_exception",
        "search_timeout_exception",
        "task_cancelled_exception",
        "time_exceeded_exception",
        "too_many_buckets_exception",
    }
)
_REASON_LENGTH = 400
# The type of a cause that is not from the server itself, but for example from a proxy.
_UNKNOWN = "unknown"
_BAD_REQUEST = 400
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_REQUEST_TIMEOUT = 408
_TOO_LARGE = 413
_TOO_MANY_REQUESTS = 429
_FIRST_SERVER_ERROR = 500


class IndexExistsError(IndexRequestError):
    """The index or alias exists already: another process has created it."""


class TooLargeError(IndexRequestError):
    """The request has more bytes than the server takes."""


_OF_STATUS = {_UNAUTHORIZED: IndexLoginError, _FORBIDDEN: IndexForbiddenError, _TOO_LARGE: TooLargeError}


class Cause(msgspec.Struct):
    """Why the server refused a request, or one document in it."""

    type: str = _UNKNOWN
    reason: str | None = None
    caused_by: "Cause | None" = None

    def chain(self) -> Iterator["Cause"]:
        """This cause and its own causes, from the outermost to the innermost."""
        yield self
        if self.caused_by is not None:
            yield from self.caused_by.chain()

    def __str__(self) -> str:
        """The reasons from the outermost to the innermost, which usually explains the failure.

        Each is shortened, since the server quotes what it does not accept, at any length.
        """
        own = f"{self.type}: {shortened(self.reason, _REASON_LENGTH)}" if self.reason else self.type
        return f"{own} ({self.caused_by})" if self.caused_by else own


class _FailedShard(msgspec.Struct):
    reason: Cause


class _RequestCause(Cause):
    """Why a search failed: its shards give the reason, the request itself only says that it failed."""

    failed_shards: list[_FailedShard] = []

    def of_shards(self) -> list[Cause]:
        """Why the shards of a search that had begun failed."""
        if self.type != _SEARCH_FAILED:
            return []
        return [shard.reason for shard in self.failed_shards] or ([self.caused_by] if self.caused_by else [])

    def __str__(self) -> str:
        own = super().__str__()
        return f"{own} ({self.failed_shards[0].reason})" if self.failed_shards and not self.caused_by else own


class _Refusal(msgspec.Struct):
    error: _RequestCause


class _Bytes(Serializer):
    """Passes answers on as bytes, and encodes bodies that are not bytes yet."""

    mimetype = JSON

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def dumps(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else self._encode(data)

    def loads(self, data: bytes) -> bytes:
        return data


_decode_refusal = msgspec.json.Decoder(_Refusal).decode


@dataclass(frozen=True, slots=True)
class Client:
    """Connections to the nodes of one cluster; threads may share them. official: Elasticsearch's client, for both."""

    official: Elasticsearch
    dialect: Dialect

    @property
    def addresses(self) -> str:
        """Addresses of the nodes without accounts, for an operator to compare with index.urls."""
        return addresses_of(self.official.transport)

    def close(self) -> None:
        self.official.close()


def open_client(settings: IndexSettings, *, timeout_s: float, connections: int = 10) -> Client:
    """Open a client; each writer and each searcher has its own.

    timeout_s: how long the server may be silent during a request. connections: how many are kept open to each node.
    """
    transport = TRANSPORTS[settings.backend]
    as_bytes = _Bytes()
    options: dict[str, Any] = {
        "hosts": list(settings.urls),
        "transport_class": transport,
        "request_timeout": timeout_s,
        "connections_per_node": connections,
        "serializers": {JSON: as_bytes, NDJSON: as_bytes},
        # Retries only move on to another node. Callers decide about waiting and trying again.
        "max_retries": len(settings.urls) - 1,
        "retry_on_status": (),
    }
    if settings.api_key is not None:
        options["api_key"] = settings.api_key.get_secret_value()
    if settings.username is not None and settings.password is not None:
        options["basic_auth"] = (settings.username, settings.password.get_secret_value())
    if settings.ca_certs is not None:
        options["ca_certs"] = str(settings.ca_certs)
    return Client(Elasticsearch(**options), transport.dialect)


def send(
    client: Client,
    method: str,
    path: str,
    body: object = None,
    *,
    content_type: str = JSON,
    is_query: bool = False,
) -> bytes:
    """Send one request and return the body of the answer. Raises IndexUnavailableError or IndexRequestError.

    is_query: the request is a user's search; if the server refuses only this one, IndexQueryError is raised.
    """
    with _translated(client, f"{method} {path}", is_query=is_query):
        headers = {"accept": JSON, "content-type": content_type}
        return _body(client.official.perform_request(method, path, headers=headers, body=body))


def is_passing(status: int) -> bool:
    """Whether the cause of an answer with this status may pass by itself."""
    return status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS) or status >= _FIRST_SERVER_ERROR


def is_missing_index(cause: Cause) -> bool:
    """Whether the index does not exist (yet, or any more), rather than a document."""
    return cause.type == _MISSING_INDEX


def is_blocked(cause: Cause) -> bool:
    """Whether writing is blocked for now: paused, closed, or because of a full disk."""
    return cause.type in (_BLOCKED, _CLOSED)


def is_of_index(status: int, cause: Cause) -> bool:
    """Whether the state of the index is the cause, so that the same request may succeed another time."""
    return is_passing(status) or is_missing_index(cause) or is_blocked(cause)


def _is_absent(cause: Cause) -> bool:
    """Whether there is no index, or none of its shards has started, as right after its creation."""
    has_no_shard = (cause.type, cause.reason, cause.caused_by) == (_SEARCH_FAILED, _NO_SHARD, None)
    return has_no_shard or is_missing_index(cause)


def unavailable(text: str, cause: Cause) -> IndexUnavailableError:
    """The error for a cause that passes by itself."""
    if _is_absent(cause):
        return IndexAbsentError(text)
    is_paused = is_blocked(cause) and _WRITE_BLOCK in (cause.reason or "")
    return IndexPausedError(text) if is_paused else IndexUnavailableError(text)


def _body(answer: ApiResponse[Any]) -> bytes:
    """The body as bytes. Raises TransportError if it has another type, for example a proxy's page."""
    if not isinstance(answer.body, bytes):
        raise TransportError(f"the answer is not JSON: {str(answer.body)[:200]!r}")
    return answer.body


@contextmanager
def _translated(client: Client, request: str, *, is_query: bool) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise _refusal(error, request, is_query=is_query) from error
    except TransportError as error:
        title = client.dialect.title
        raise IndexUnavailableError(f"{title} at {client.addresses}: {request}: {_reasons(error)}") from error


def _refusal(error: ApiError, request: str, *, is_query: bool) -> IndexRequestError | IndexUnavailableError:
    """The error for an answer that reports a failure."""
    status, cause = error.meta.status, _cause(error.body)
    text = f"{request}: status {status}, {cause}"
    if is_query and _is_of_query(status, cause):
        *_, innermost = (cause.of_shards() or [cause])[0].chain()
        return IndexQueryError(innermost.type, text)
    if is_of_index(status, cause):
        return unavailable(text, cause)
    return _refusal_type(status, cause)(text)


def _is_of_query(status: int, cause: _RequestCause) -> bool:
    """Whether this search itself is the cause: the server does not accept it, or it needs too much.

    A server that accepts no search at all names the index as the cause, or fails before the shards search.
    """
    if is_missing_index(cause) or is_blocked(cause):
        return False
    if status == _TOO_LARGE or (status == _BAD_REQUEST and cause.type != _UNKNOWN):
        return True
    of_shards = cause.of_shards()
    return bool(of_shards) and all(
        any(each.type in _TOO_MUCH_OF_ONE_QUERY for each in shard.chain()) for shard in of_shards
    )


def _refusal_type(status: int, cause: _RequestCause) -> type[IndexRequestError]:
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    if cause.type == _INDEX_EXISTS:
        return IndexExistsError
    return IndexRequestError


def _reasons(error: TransportError) -> str:
    """The failure of each node that was tried; the error's own text would be "Connection error", or very long."""
    of_nodes = (*reversed(error.errors), error)
    return "; ".join(dict.fromkeys(str(each.message) for each in of_nodes if isinstance(each, TransportError)))


def _cause(body: object) -> _RequestCause:
    try:
        return _decode_refusal(body if isinstance(body, bytes) else b"").error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _RequestCause(reason=str(body)[:200])
