"""Connections whose answers have to be there as a whole in time.

The time limit of a socket is that of each part that arrives. A node that sends one byte now and then, of its headers
too, would keep who calls it for days.
"""

import time
from http.client import HTTPResponse
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any

from urllib3 import HTTPSConnectionPool
from urllib3.connection import HTTPSConnection


class _TimedReader(RawIOBase):
    """Reads of a socket until its time limit, counted from now. Raises TimeoutError, and OSError for others."""

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
            left_s = self._ends_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._connection.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(HTTPResponse):
    def __init__(self, sock: socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = BufferedReader(_TimedReader(self.fp.detach(), sock))


class _TimedConnection(HTTPSConnection):
    response_class = _TimedResponse


class TimedConnectionPool(HTTPSConnectionPool):
    ConnectionCls = _TimedConnection
