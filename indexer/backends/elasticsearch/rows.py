"""The rows of a search: what a document looks like as text, and how rows are read out of an answer; pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

import msgspec

from fleetlight.indexer.backends.base import MISSHAPEN, FoundPage, FoundRow
from fleetlight.indexer.errors import IndexDocumentError, IndexRequestError
from fleetlight.query.to_dsl import uuid_of
from fleetlight.views.compute.view import PIECE_NAMES
from fleetlight.views.projection import Projection

_PIECES = ",".join(f'"{name}":%b' for name in PIECE_NAMES).encode()
_CHECK = "check"
SOURCE = b'{%%b,"cell_uuid":%%b,"view":{%b,"%b":%%d}}' % (_PIECES, _CHECK.encode())
"""A document, to be formatted with its other members, the cell, the pieces of its view and their check."""

_KEYS_BEGIN = 2
# Where msgspec says that something in a document is not what it should be.
_DOCUMENT = re.compile(r"at `\$\.(?:hits\.hits|docs)\[(\d+)\]")
_ANYTHING = msgspec.json.Decoder()
_values = msgspec.structs.astuple


def check_of(pieces: Iterable[bytes | msgspec.Raw]) -> int:
    """What shows that the pieces of a view are the bytes that were written.

    Items are cut out of them by their lengths. A pipeline of the server writes a document anew, with members in another
    order, and cuts would go through the middle of some.
    """
    check = 0
    for piece in pieces:
        check = crc32(piece, check)
    return check


class Write(msgspec.Struct, frozen=True, gc=False):
    """Which write of a document has been found. sort: by what it was ordered; the parts of its uuid come last."""

    index: str = msgspec.field(name="_index")
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")
    sort: tuple[Any, ...]

    @property
    def uuid(self) -> str:
        return uuid_of(*self.sort[-2:])


def search_decoder(hit_type: Any) -> msgspec.json.Decoder[Any]:
    """What decodes the answer of a search, each of its hits as a `hit_type`."""
    hits_type = msgspec.defstruct("_Hits", [("hits", list[hit_type])], gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("_Answer", [("hits", hits_type)], gc=False))


class RowDecoder:
    """Reads the rows in the answer of a search, of each document only what it needs; pieces stay the bytes they are.

    keys: names of the sort keys. pieces: names of the pieces of the view, those of the templates it is used with.
    """

    def __init__(self, keys: tuple[str, ...], pieces: tuple[str, ...]) -> None:
        self._places = [PIECE_NAMES.index(name) for name in pieces]
        # Without garbage collection, which would look at thousands of new objects that cannot form a cycle.
        define = partial(msgspec.defstruct, gc=False)
        view_type = define("_View", [*((name, msgspec.Raw) for name in PIECE_NAMES), (_CHECK, int)])
        # What comes before the keys: _KEYS_BEGIN.
        source_type = define(
            "_RowSource", [("cell_uuid", str), ("view", view_type), *((name, Any, None) for name in keys)]
        )
        source = ("source", source_type, msgspec.field(name="_source"))
        self._answer = search_decoder(define("_Hit", [source]))
        self._answer_with_writes = search_decoder(define("_HitWithWrite", [source], bases=(Write,)))

    def rows(self, body: bytes, template: Projection) -> Sequence[FoundRow]:
        """Raises IndexRequestError, as `page` does."""
        return [FoundRow(_position(hit), self._item(hit, template)) for hit in self._hits(body)]

    def rows_with_writes(self, body: bytes, template: Projection) -> Mapping[Write, FoundRow]:
        """The rows of an answer that says which write each is from. Raises IndexRequestError."""
        hits = decoded_documents(self._answer_with_writes, body).hits.hits
        return {
            Write(hit.index, hit.seq_no, hit.primary_term, hit.sort): FoundRow(
                _position(hit), self._item(hit, template)
            )
            for hit in hits
        }

    def page(self, body: bytes, template: Projection) -> FoundPage:
        """The rows as one text. Raises IndexRequestError."""
        hits = self._hits(body)
        items = [self._item(hit, template) for hit in hits]
        return FoundPage(b",".join(items), len(items), _position(hits[-1]) if hits else None)

    def _hits(self, body: bytes) -> Sequence[Any]:
        hits: Sequence[Any] = decoded_documents(self._answer, body).hits.hits
        return hits

    def _item(self, hit: Any, template: Projection) -> bytes:
        *pieces, check = _values(hit.source.view)
        try:
            if check_of(pieces) != check:
                raise ValueError("its view is not as it was written")
            return template.render([bytes(pieces[place]) for place in self._places], hit.source.cell_uuid)
        except MISSHAPEN as error:
            raise IndexDocumentError.caused_by(error, str(_position(hit)[-1])) from error


row_decoder = lru_cache(maxsize=64)(RowDecoder)
_WRITES_ANSWER = search_decoder(Write)


def writes_in(body: bytes) -> Sequence[Write]:
    """What an answer without sources says was found. Raises IndexRequestError."""
    writes: Sequence[Write] = decoded(_WRITES_ANSWER, body).hits.hits
    return writes


def decoded(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    """Raises IndexRequestError when the index holds what we do not write, or not all that we read."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IndexRequestError(f"the index gives another answer than this program expects: {error}") from error


def decoded_documents(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    """As `decoded`, for an answer to a search or a multi-get for documents. Raises IndexDocumentError as well."""
    try:
        return decoded(decoder, text)
    except IndexRequestError as error:
        place = _DOCUMENT.search(str(error))
        if place is None:
            raise
        found = decoded(_ANYTHING, text)
        found = found["docs"] if "docs" in found else found["hits"]["hits"]
        raise IndexDocumentError(str(found[int(place[1])].get("_id")), str(error)) from error


def _position(hit: Any) -> tuple[Any, ...]:
    return _values(hit.source)[_KEYS_BEGIN:]
