"""The rows of a search: the text of a document, and how rows are read from an answer; pure."""

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
"""The text of a document, to be formatted with its other members, the cell, the pieces of its view and their check."""

_KEYS_BEGIN = 2
# Where msgspec reports an unexpected value in a document.
_DOCUMENT = re.compile(r"at `\$\.(?:hits\.hits|docs)\[(\d+)\]")
_ANYTHING = msgspec.json.Decoder()
_values = msgspec.structs.astuple


def check_of(pieces: Iterable[bytes | msgspec.Raw]) -> int:
    """A checksum that shows whether the pieces of a view are the bytes that were written.

    Items are cut out of the pieces by their lengths. A pipeline of the server may rewrite a document with its members
    in another order, and cuts would then be in wrong places.
    """
    check = 0
    for piece in pieces:
        check = crc32(piece, check)
    return check


class Write(msgspec.Struct, frozen=True, gc=False):
    """The write of a found document. sort: its values in the order; the last two are the parts of its uuid."""

    index: str = msgspec.field(name="_index")
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")
    sort: tuple[Any, ...]

    @property
    def uuid(self) -> str:
        return uuid_of(*self.sort[-2:])


def search_decoder(hit_type: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for the answer of a search, with hits of type `hit_type`."""
    hits_type = msgspec.defstruct("_Hits", [("hits", list[hit_type])], gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("_Answer", [("hits", hits_type)], gc=False))


class RowDecoder:
    """Reads the rows from the answer of a search, decoding only what is needed; pieces stay bytes.

    keys: names of the sort keys. pieces: names of the view's pieces that the templates use.
    """

    def __init__(self, keys: tuple[str, ...], pieces: tuple[str, ...]) -> None:
        self._places = [PIECE_NAMES.index(name) for name in pieces]
        # Without garbage collection, which would look at thousands of new objects that cannot form a cycle.
        define = partial(msgspec.defstruct, gc=False)
        view_type = define("_View", [*((name, msgspec.Raw) for name in PIECE_NAMES), (_CHECK, int)])
        # The members that precede the keys: _KEYS_BEGIN.
        source_type = define(
            "_RowSource", [("cell_uuid", str), ("view", view_type), *((name, Any, None) for name in keys)]
        )
        source = ("source", source_type, msgspec.field(name="_source"))
        self._answer = search_decoder(define("_Hit", [source]))
        self._answer_with_writes = search_decoder(define("_HitWithWrite", [source], bases=(Write,)))

    def rows(self, body: bytes, template: Projection) -> Sequence[FoundRow]:
        """The rows of an answer. Raises IndexRequestError, as `page` does."""
        return [FoundRow(_position(hit), self._item(hit, template)) for hit in self._hits(body)]

    def rows_with_writes(self, body: bytes, template: Projection) -> Mapping[Write, FoundRow]:
        """The rows of an answer by the write that each is from. Raises IndexRequestError."""
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
    """The writes in an answer without sources. Raises IndexRequestError."""
    writes: Sequence[Write] = decoded(_WRITES_ANSWER, body).hits.hits
    return writes


def decoded(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    """Decode an answer. Raises IndexRequestError if the index holds what we do not write, or lacks what we read."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IndexRequestError(f"the index gives another answer than this program expects: {error}") from error


def decoded_documents(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    """As `decoded`, for answers with documents; also raises IndexDocumentError, for one that is malformed."""
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
