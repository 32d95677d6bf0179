"""The rows of a search for the values of some fields: what it asks of a document, and how that is read."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from indexer.backends.base import MISSHAPEN, FoundRow
from indexer.backends.elasticsearch.rows import decoded_documents
from indexer.errors import IndexDocumentError
from resources.instance import INSTANCE_FIELDS
from views.projection import Projection

_NULL, _NO_MEMBERS = msgspec.Raw(b"null"), msgspec.Raw(b"[]")


class ValueDecoder:
    """keys: names of the sort keys. fields: those whose values make the items.

    source: what a search has to be told for it: of all that a document has, the server sends these members alone.
    """

    def __init__(self, keys: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.source: Mapping[str, Any] = {"_source": sorted({"cell_uuid", *fields, *keys})}
        # What is no key stays the JSON that it is.
        members: list[tuple[Any, ...]] = [(name, Any, None) for name in keys]
        for name in dict.fromkeys(fields):
            if name not in keys:
                members.append((name, msgspec.Raw, _NO_MEMBERS if INSTANCE_FIELDS[name].is_list else _NULL))
        source = msgspec.defstruct("_ValuesSource", [("cell_uuid", str), *members], gc=False)
        hit = msgspec.defstruct(
            "_ValuesHit", [("id", str, msgspec.field(name="_id")), ("source", source, msgspec.field(name="_source"))]
        )
        hits = msgspec.defstruct("_ValuesHits", [("hits", list[hit])])  # type: ignore[valid-type]
        self._answer: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            msgspec.defstruct("_ValuesAnswer", [("hits", hits)])
        )
        self._keys, self._fields = keys, fields

    def rows(self, body: bytes, projection: Projection) -> Sequence[FoundRow]:
        """Raises IndexRequestError, and IndexDocumentError for a document that is not ours."""
        return [self._row(hit, projection) for hit in decoded_documents(self._answer, body).hits.hits]

    def _row(self, hit: Any, projection: Projection) -> FoundRow:
        source = hit.source
        values = [getattr(source, name) for name in self._fields]
        try:
            item = projection.render(values, source.cell_uuid)
        except MISSHAPEN as error:
            raise IndexDocumentError.caused_by(error, hit.id) from error
        return FoundRow(tuple([getattr(source, name) for name in self._keys]), item)


value_decoder = lru_cache(maxsize=64)(ValueDecoder)
