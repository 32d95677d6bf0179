"""Rows of a search for the values of some fields: what is read of each document, and how.

What is in columns is read from those. For the rest, lists with the order of their members too, the whole source is
sent: that costs less than to leave something out (decisions 0008 and 0010).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import MISSHAPEN, FoundRow
from fleetlight.indexer.backends.elasticsearch.mapping import VERSION
from fleetlight.indexer.backends.elasticsearch.rows import decoded_documents
from fleetlight.indexer.errors import IndexDocumentError
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import Projection

_NO_VALUE = (None,)


class ValueDecoder:
    """keys: names of the sort keys. fields: those whose values make the items, with the version behind them if that is
    wanted.

    options: what the body of a search needs for it.
    """

    def __init__(self, keys: tuple[str, ...], fields: tuple[str, ...], *, with_version: bool = False) -> None:
        self._keys, self._fields = keys, (*fields, VERSION) if with_version else fields
        names = tuple(dict.fromkeys((*keys, *fields)))
        self._is_in_columns = all(INSTANCE_FIELDS[name].is_sortable for name in names)
        always: dict[str, Any] = {"cell_uuid": str, VERSION: int} if with_version else {"cell_uuid": str}
        self.options: Mapping[str, Any]
        if self._is_in_columns:
            self.options = {"_source": False, "stored_fields": "_none_", "docvalue_fields": [*always, *names]}
            # A column may hold several values, or none; ours hold one.
            members: list[Any] = [(name, list[Any], _NO_VALUE) for name in names]
            found = msgspec.defstruct(
                "_Columns",
                [*((name, list[kind]) for name, kind in always.items()), *members],  # type: ignore[valid-type]
                gc=False,
            )
        else:
            self.options = {}
            found = msgspec.defstruct("_Members", [*always.items(), *((name, Any, _missing(name)) for name in names)])
        where = msgspec.field(name="fields" if self._is_in_columns else "_source")
        hit = msgspec.defstruct("_ValuesHit", [("found", found, where)])
        hits = msgspec.defstruct("_ValuesHits", [("hits", list[hit])])  # type: ignore[valid-type]
        self._answer: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("_ValuesAnswer", [("hits", hits)])
        )

    def rows(self, body: bytes, projection: Projection) -> Sequence[FoundRow]:
        """Raises IndexRequestError, and IndexDocumentError for a document that is not ours."""
        row = self._of_columns if self._is_in_columns else self._of_source
        return [row(hit.found, projection) for hit in decoded_documents(self._answer, body).hits.hits]

    def _of_columns(self, found: Any, projection: Projection) -> FoundRow:
        position = [getattr(found, name)[0] for name in self._keys]
        values = [getattr(found, name)[0] for name in self._fields]
        return _row(position, values, found.cell_uuid[0], projection)

    def _of_source(self, found: Any, projection: Projection) -> FoundRow:
        position = [getattr(found, name) for name in self._keys]
        values = [getattr(found, name) for name in self._fields]
        return _row(position, values, found.cell_uuid, projection)


def _missing(name: str) -> Any:
    """What stands for a member that a document lacks, since nulls are left out."""
    return msgspec.field(default_factory=list) if INSTANCE_FIELDS[name].is_list else None


def _row(position: Sequence[Any], values: Sequence[Any], cell_uuid: str, projection: Projection) -> FoundRow:
    try:
        return FoundRow(tuple(position), projection.render(values, cell_uuid))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, str(position[-1])) from error


value_decoder = lru_cache(maxsize=64)(ValueDecoder)
