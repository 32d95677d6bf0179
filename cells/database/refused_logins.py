"""Finds out why PostgreSQL refuses a login, whatever its language.

libpq keeps only the text of a refusal, in the server's language, and not its SQLSTATE. But it can log the messages that
it receives; so a refused login is repeated once, and its messages are searched.
"""

import os
import re
import time
from collections.abc import Sequence
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

_TIMEOUT_S = 5.0
# A limit, since libpq leaks some kilobytes for each connection whose messages it logs.
_INTERVAL_S = 10.0
_REFUSAL = re.compile(rb'\tErrorResponse\t.*? C "(\w{5})"')

_looked_at_s = float("-inf")


def code_of_refusal(options: Sequence[Any]) -> str | None:
    """The SQLSTATE with which the server refuses a connection; None if it does not, or if this was just called.

    options: of the connection that failed (psycopg.pq.ConninfoOption).
    """
    global _looked_at_s  # noqa: PLW0603  # per process, as is the leaked memory
    now_s = time.monotonic()
    if now_s - _looked_at_s < _INTERVAL_S or not hasattr(os, "memfd_create"):
        return None
    _looked_at_s = now_s
    given = {option.keyword.decode(): option.val.decode() for option in options if option.val}
    # A file in memory alone, since the messages may contain a password.
    messages = os.memfd_create("messages")
    try:
        _connect(make_conninfo("", **given), messages, now_s + _TIMEOUT_S)
        found = _REFUSAL.search(os.pread(messages, 1_000_000, 0))
    except psycopg.Error:
        return None
    finally:
        os.close(messages)
    return found and found[1].decode()


def _connect(conninfo: str, messages: int, deadline_s: float) -> None:
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        if connection.status == pq.ConnStatus.BAD:
            return
        connection.trace(messages)
        while (state := connection.connect_poll()) in {pq.PollingStatus.READING, pq.PollingStatus.WRITING}:
            with DefaultSelector() as selector:
                selector.register(connection.socket, EVENT_READ if state == pq.PollingStatus.READING else EVENT_WRITE)
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    break
        connection.untrace()
    finally:
        connection.finish()
