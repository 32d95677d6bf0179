"""What SQLite does not bring itself, registered on each connection that runs what `to_sql` makes.

The names are our own: SQLAlchemy registers Python's `re` as REGEXP on every connection, and a connection that was
forgotten here must fail instead of quietly meaning something else.
"""

import json
import sqlite3

from query.regex import compile_pattern
from query.text_forms import time_text

RE2_SEARCH = "re2_search"
LIST_HAS = "list_has"
HAS_ADDRESS = "has_address"
TIME_TEXT = "time_text"


def register_functions(dbapi_connection: sqlite3.Connection) -> None:
    """Register the functions that are named above."""
    dbapi_connection.create_function(RE2_SEARCH, 2, _re2_search, deterministic=True)
    dbapi_connection.create_function(LIST_HAS, 2, _list_has, deterministic=True)
    dbapi_connection.create_function(HAS_ADDRESS, 2, _has_address, deterministic=True)
    dbapi_connection.create_function(TIME_TEXT, 1, _time_text, deterministic=True)


def _re2_search(pattern: str, text: str | None) -> bool | None:
    return None if text is None else compile_pattern(pattern).search(text) is not None


def _list_has(json_list: str | None, text: str) -> bool:
    """json_each would do, but it ends a text at a NUL character (3.40)."""
    return json_list is not None and text in (json.loads(json_list) or ())


def _has_address(json_addresses: str | None, text: str) -> bool:
    entries = (json.loads(json_addresses) or ()) if json_addresses is not None else ()
    return any(entry.get("type", "fixed") == "fixed" and text in entry["address"] for entry in entries)


def _time_text(microseconds: int | None) -> str | None:
    return None if microseconds is None else time_text(microseconds)
