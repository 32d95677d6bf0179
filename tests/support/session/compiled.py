"""Statements for tests: each is compiled once for a kind of database, not once for each engine.

Nearly every test makes its own fleet, and SQLAlchemy keeps what it has compiled for one engine: a fifth of the
processor's time of tests of the API was to compile the same statements again.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeAlias

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.engine import Compiled, Connection, Dialect
from sqlalchemy.util import LRUCache

Key: TypeAlias = tuple[Any, ...]

# Enough for all statements of the product; random filters make new ones.
_compiled = LRUCache[Key, Compiled](4000)


class _SharedCache(MutableMapping[Key, Compiled]):
    """What engines have compiled whose dialects are alike. SQLAlchemy's keys begin with the dialect of the engine."""

    def __init__(self, dialect: Dialect) -> None:
        serializer = getattr(dialect, "_json_serializer", None)  # values are bound by it
        self._kind = type(dialect), dialect.server_version_info, serializer

    def __getitem__(self, key: Key) -> Compiled:
        return _compiled[self._kind, *key[1:]]

    def __setitem__(self, key: Key, compiled: Compiled) -> None:
        _compiled[self._kind, *key[1:]] = compiled

    def __delitem__(self, key: Key) -> None:
        del _compiled[self._kind, *key[1:]]

    def __iter__(self) -> Iterator[Key]:
        return iter(_compiled)

    def __len__(self) -> int:
        return len(_compiled)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    event.listen(Engine, "engine_connect", _share)
    yield
    event.remove(Engine, "engine_connect", _share)


def _share(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_SharedCache(connection.dialect))
