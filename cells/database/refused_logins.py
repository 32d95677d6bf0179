"""Reasons of PostgreSQL for refusing a login, in any language.

libpq keeps the text of such a refusal, which is in the language of the server, and not its SQLSTATE. But it can write
down the messages that it gets; so a refused login is tried once more, and those are looked at.
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
# libpq keeps some kilobytes of each connection whose messages it has written down.
_INTERVAL_S = 10.0
_REFUSAL = re.compile(rb'\tErrorResponse\t.*? C "(\w{5})"')

_looked_at_s = float("-inf")


def code_of_refusal(options: Sequence[Any]) -> str | None:
    """The SQLSTATE with which the server refuses a connection; None if it does not, or was asked so just before.

    options: of the connection that failed (psycopg.pq.ConninfoOption).
    """
    global _looked_at_s  # noqa: PLW0603  # of the process, whose memory it is
    now_s = time.monotonic()
    if now_s - _looked_at_s < _INTERVAL_S or not hasattr(os, "memfd_create"):
        return None
    _looked_at_s = now_s
    given = {option.keyword.decode(): option.val.decode() for option in options if option.val}
    # In memory alone: a password may be among the messages.
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
