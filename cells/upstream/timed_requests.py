"""Requests over HTTP, by urllib3, with one time limit for the whole answer.

The time limit of a socket applies to each part that arrives: a server that sends one byte now and then, even of its
headers, would block its caller for days.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

_CHUNK = 65_536


class AnswerTooLargeError(HTTPError):
    """The answer has more bytes than its caller accepts."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """headers: by names, in lower case or not."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TimedReader(RawIOBase):
    """Reads a socket until its time limit, counted from the constructor. Raises TimeoutError, and OSError."""

    def __init__(self, raw: RawIOBase, connection: socket) -> None:
        super().__init__()
        self._raw = raw
        self._connection = connection
        limit_s = connection.gettimeout()
        self._ends_s = None if limit_s is None else time.monotonic() + limit_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._ends_s is not None:
            self._connection.settimeout(_left_s(self._ends_s))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = BufferedReader(_TimedReader(self.fp.detach(), sock))


class _TimedConnection(HTTPConnection):
    response_class = _TimedResponse


class _TimedSecureConnection(HTTPSConnection):
    response_class = _TimedResponse


class TimedPool(HTTPConnectionPool):
    """Connections whose time limit is for the whole answer."""

    ConnectionCls = _TimedConnection


class TimedSecurePool(HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = _TimedSecureConnection


def request_in_time(
    pool: TimedPool | TimedSecurePool,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    ends_s: float,
    largest_bytes: int,
    connect_timeout_s: float | None = None,
) -> HttpAnswer:
    """Send one request, without retries or redirects.

    ends_s: deadline of the whole answer, on the monotonic clock. connect_timeout_s: of the connection alone, if less.
    Raises TimeoutError, AnswerTooLargeError, and what urllib3 raises.
    """
    left_s = _left_s(ends_s)
    connect_s = left_s if connect_timeout_s is None else min(left_s, connect_timeout_s)
    answer = pool.urlopen(
        method,
        target,
        body=body,
        headers=dict(headers),
        retries=False,
        redirect=False,
        timeout=Timeout(connect=connect_s, read=left_s, total=left_s),
        preload_content=False,
    )
    try:
        content = b"".join(_chunks(answer, largest_bytes))
    except BaseException:
        answer.close()  # its rest must not be read as the next answer
        raise
    answer.release_conn()
    return HttpAnswer(answer.status, answer.headers, content)


def _chunks(answer: BaseHTTPResponse, largest_bytes: int) -> Iterator[bytes]:
    size = 0
    while chunk := answer.read1(_CHUNK):
        size += len(chunk)
        if size > largest_bytes:
            raise AnswerTooLargeError(f"the answer has more than {largest_bytes} bytes")
        yield chunk


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
