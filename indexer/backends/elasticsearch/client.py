"""One request to the cluster: bytes in, bytes out, failures as our errors. This module does not look at the bytes.

Requests go through the transport of the official client of Elasticsearch. The client itself is left out: it asks for a
media type that OpenSearch does not know, and decodes all of a page, of which its caller sees only some
(docs/decisions/0046).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from elastic_transport import NodeConfig, Serializer, Transport, TransportApiResponse, TransportError
from elastic_transport.client_utils import basic_auth_to_header, url_to_node_config

from fleetlight.indexer.backends.elasticsearch.dialects import DIALECTS, Dialect
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexForbiddenError,
    IndexLoginError,
    IndexPausedError,
    IndexRequestError,
    IndexUnavailableError,
    shortened,
)

JSON = "application/json"
NDJSON = "application/x-ndjson"

_MISSING_INDEX = "index_not_found_exception"
_SEARCH_FAILED, _NO_SHARD = "search_phase_execution_exception", "all shards failed"
_BLOCKED = "cluster_block_exception"
# By its number: `index.blocks.write`, which is what pauses are made of
# (fleetlight.indexer.backends.elasticsearch.pause).
_WRITE_BLOCK = "/8/"
_CLOSED = "index_closed_exception"
_INDEX_EXISTS = "resource_already_exists_exception"
_TOO_COMPLEX = "too_complex_to_determinize_exception"
_REASON_LENGTH = 400
_OK, _REDIRECTED = 200, 300
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_REQUEST_TIMEOUT = 408
_TOO_LARGE = 413
_TOO_MANY_REQUESTS = 429
_FIRST_SERVER_ERROR = 500


class IndexExistsError(IndexRequestError):
    """The index or alias is there already: another process has created it."""


class TooLargeError(IndexRequestError):
    """The request has more bytes than the server takes."""


class TooComplexError(IndexRequestError):
    """The search has a pattern of which the server makes no automaton, since that would be too much work."""


_OF_STATUS = {_UNAUTHORIZED: IndexLoginError, _FORBIDDEN: IndexForbiddenError, _TOO_LARGE: TooLargeError}


class Cause(msgspec.Struct):
    """Why the server refused a request, or one document of it."""

    type: str = "unknown"
    reason: str | None = None
    caused_by: "Cause | None" = None

    def __str__(self) -> str:
        """The reasons from the outermost to the innermost, which is usually the one that explains it.

        Each is shortened: the server repeats what it does not take, however long that is.
        """
        own = f"{self.type}: {shortened(self.reason, _REASON_LENGTH)}" if self.reason else self.type
        return f"{own} ({self.caused_by})" if self.caused_by else own


class _FailedShard(msgspec.Struct):
    reason: Cause


class _RequestCause(Cause):
    """Why a search failed: the shards say it, the request itself only that it failed."""

    failed_shards: list[_FailedShard] = []

    def __str__(self) -> str:
        own = super().__str__()
        return f"{own} ({self.failed_shards[0].reason})" if self.failed_shards and not self.caused_by else own


class _Refusal(msgspec.Struct):
    error: _RequestCause


class _Bytes(Serializer):
    """Leaves answers as they are, and encodes what is not bytes yet."""

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
    """Connections to the nodes of one cluster; threads may share one."""

    transport: Transport
    dialect: Dialect

    @property
    def addresses(self) -> str:
        """Where the nodes are, without accounts: what a person compares with index.urls."""
        return ", ".join(node.base_url for node in self.transport.node_pool.all())

    def close(self) -> None:
        self.transport.close()


def open_client(settings: IndexSettings, *, timeout_s: float, connections: int = 10) -> Client:
    """A client; a writer and a searcher have one each.

    timeout_s: how long the server may be silent in the middle of a request. connections: kept open to each node.
    """
    as_bytes = _Bytes()
    transport = Transport(
        [_node(url, settings, timeout_s, connections) for url in settings.urls],
        serializers={JSON: as_bytes, NDJSON: as_bytes},
        # Only to move on to another node. Waiting and trying again is up to the callers, which know what depends on it.
        max_retries=len(settings.urls) - 1,
        retry_on_status=(),
    )
    return Client(transport, DIALECTS[settings.backend])


def _node(url: str, settings: IndexSettings, timeout_s: float, connections: int) -> NodeConfig:
    node = url_to_node_config(url)
    headers = {**node.headers, **_authorization(settings)}
    options: dict[str, Any] = {"headers": headers, "request_timeout": timeout_s, "connections_per_node": connections}
    if settings.ca_certs is not None:
        options["ca_certs"] = str(settings.ca_certs)
    return node.replace(**options)


def _authorization(settings: IndexSettings) -> Mapping[str, str]:
    if settings.api_key is not None:
        return {"authorization": f"ApiKey {settings.api_key.get_secret_value()}"}
    if settings.username is not None and settings.password is not None:
        return {"authorization": basic_auth_to_header((settings.username, settings.password.get_secret_value()))}
    return {}


def send(client: Client, method: str, path: str, body: object = None, *, content_type: str = JSON) -> bytes:
    """Send one request, and return the body of the answer; raises IndexUnavailableError or IndexRequestError."""
    request = f"{method} {path}"
    try:
        headers = {"accept": JSON, "content-type": content_type}
        answer = client.transport.perform_request(method, path, headers=headers, body=body)
        if _is_refusal(answer):
            raise _refusal(answer, request)
        client.dialect.check(answer.meta.headers, client.addresses)
        if deprecated := answer.meta.headers.get("warning"):
            warnings.warn(deprecated, stacklevel=2)  # which fails a test
        return _body(answer)
    except TransportError as error:
        title = client.dialect.title
        raise IndexUnavailableError(f"{title} at {client.addresses}: {request}: {_reasons(error)}") from error


def is_passing(status: int) -> bool:
    """Whether an answer with this status may become another one later by itself."""
    return status in (_REQUEST_TIMEOUT, _TOO_MANY_REQUESTS) or status >= _FIRST_SERVER_ERROR


def is_missing_index(cause: Cause) -> bool:
    """Whether the index is not there (not yet, or not any more), unlike a document that is not."""
    return cause.type == _MISSING_INDEX


def is_blocked(cause: Cause) -> bool:
    """Whether the server does not write now, and will go on some time: paused, closed, or with a full disk."""
    return cause.type in (_BLOCKED, _CLOSED)


def is_of_index(status: int, cause: Cause) -> bool:
    """Whether the index is why something was not taken, and not what was sent: the same is taken another time."""
    return is_passing(status) or is_missing_index(cause) or is_blocked(cause)


def _is_absent(cause: Cause) -> bool:
    """Whether there is no index, or no shard of it has begun to work, as in the moment after it was made."""
    has_no_shard = (cause.type, cause.reason, cause.caused_by) == (_SEARCH_FAILED, _NO_SHARD, None)
    return has_no_shard or is_missing_index(cause)


def _is_too_complex(cause: Cause | None) -> bool:
    return cause is not None and (cause.type == _TOO_COMPLEX or _is_too_complex(cause.caused_by))


def unavailable(text: str, cause: Cause) -> IndexUnavailableError:
    """What to raise for a cause that passes by itself."""
    if _is_absent(cause):
        return IndexAbsentError(text)
    is_paused = is_blocked(cause) and _WRITE_BLOCK in (cause.reason or "")
    return IndexPausedError(text) if is_paused else IndexUnavailableError(text)


def _is_refusal(answer: TransportApiResponse) -> bool:
    return not _OK <= answer.meta.status < _REDIRECTED


def _body(answer: TransportApiResponse) -> bytes:
    """What the serializer left as it was; an answer of another type, say a proxy's page, is text by now."""
    if not isinstance(answer.body, bytes):
        raise TransportError(f"the answer is not JSON: {str(answer.body)[:200]!r}")
    return answer.body


def _refusal(answer: TransportApiResponse, request: str) -> IndexRequestError | IndexUnavailableError:
    """The error for an answer that says that the request was not carried out."""
    status, cause = answer.meta.status, _cause(answer.body)
    text = f"{request}: status {status}, {cause}"
    if is_of_index(status, cause):
        return unavailable(text, cause)
    return _refusal_type(status, cause)(text)


def _refusal_type(status: int, cause: _RequestCause) -> type[IndexRequestError]:
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    if cause.type == _INDEX_EXISTS:
        return IndexExistsError
    if any(_is_too_complex(shard.reason) for shard in cause.failed_shards):
        return TooComplexError
    return IndexRequestError


def _reasons(error: TransportError) -> str:
    """What each node that was tried has failed with. The text of the error itself is "Connection error", or longer."""
    of_nodes = (*reversed(error.errors), error)
    return "; ".join(dict.fromkeys(str(each.message) for each in of_nodes if isinstance(each, TransportError)))


def _cause(body: object) -> _RequestCause:
    try:
        return _decode_refusal(body if isinstance(body, bytes) else b"").error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _RequestCause(reason=str(body)[:200])
