"""Answers of Elasticsearch that are read while they arrive.

The client of Elasticsearch hands an answer over when all of it is there. The server sends a large one in parts, and
takes as long to write them as we take to read what is in them; so a reader gets each part when it has come.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, NamedTuple

from elastic_transport import ApiResponseMeta, ConnectionTimeout, HttpHeaders, TlsError, Urllib3HttpNode
from elastic_transport import ConnectionError as NodeConnectionError
from elastic_transport.client_utils import DEFAULT, DefaultType
from urllib3.exceptions import HTTPError, NewConnectionError, SSLError, TimeoutError
from urllib3.response import BaseHTTPResponse

Reader = Callable[[Iterator[bytes]], object]
"""Makes the answer out of the parts of a body; called anew when another node has to be asked."""

_reader: ContextVar[Reader | None] = ContextVar("reader", default=None)


@contextmanager
def read_by(reader: Reader) -> Iterator[None]:
    """Successful answers to what is asked inside are read by `reader`, and what it returns is their body."""
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


class StreamingNode(Urllib3HttpNode):
    """A node of the client whose answers can be read in parts. What the reader raises is raised as it is."""

    def perform_request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: HttpHeaders | None = None,
        request_timeout: DefaultType | float | None = DEFAULT,
    ) -> Any:  # the client's own type for an answer is not public
        reader = _reader.get()
        if reader is None:
            return super().perform_request(method, target, body, headers, request_timeout)
        all_headers = self.headers.copy()
        all_headers.update(headers or {})
        began = time.monotonic()
        with _failures_of_the_node():
            response = self.pool.urlopen(
                method,
                f"{self.path_prefix}{target}",
                body=body,
                headers=all_headers,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = reader(response.stream(None)) if response.status == HTTPStatus.OK else response.data
            finally:
                _release(response)
        meta = ApiResponseMeta(
            status=response.status,
            http_version="1.1",
            headers=HttpHeaders(response.headers),
            duration=time.monotonic() - began,
            node=self.config,
        )
        return _Answer(meta, content)


class _Answer(NamedTuple):
    meta: ApiResponseMeta
    body: object


def _release(response: BaseHTTPResponse) -> None:
    """Give the connection back to its pool: one that was read to the end already is there, and any other is closed."""
    response.close()
    response.release_conn()


@contextmanager
def _failures_of_the_node() -> Iterator[None]:
    """Failures of a connection as the client knows them, so that it asks another node."""
    try:
        yield
    except NewConnectionError as error:
        raise NodeConnectionError(str(error), errors=(error,)) from error
    except TimeoutError as error:
        raise ConnectionTimeout("Connection timed out during request", errors=(error,)) from error
    except SSLError as error:
        raise TlsError(str(error), errors=(error,)) from error
    except (HTTPError, HTTPException, OSError) as error:
        raise NodeConnectionError(str(error), errors=(error,)) from error
