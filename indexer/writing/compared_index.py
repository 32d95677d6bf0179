"""The index as a comparison of all rows of a cell needs it, and what layers on top of it share."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from cells.digests import RangeDigest
from indexer.writing.retrying_writer import WritesAndReads


class ComparedIndex(WritesAndReads, Protocol):
    """The part of an IndexWriter that a comparison with a cell needs."""

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]: ...

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]: ...

    def remove(self, versions: Mapping[str, int]) -> None: ...

    def make_searchable(self) -> None: ...


class ComparedLayer:
    """Hands on to the index below whatever a layer does not do by itself."""

    _index: ComparedIndex

    def remove(self, versions: Mapping[str, int]) -> None:
        self._index.remove(versions)

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, RangeDigest]:
        return self._index.digests(cell_uuid, prefixes, length, horizon=horizon, external=external)

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, external: bool = False
    ) -> Mapping[str, int]:
        return self._index.revisions(cell_uuid, prefixes, horizon=horizon, external=external)

    def make_searchable(self) -> None:
        self._index.make_searchable()
