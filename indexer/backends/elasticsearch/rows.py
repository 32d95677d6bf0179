"""The rows of a search: what a document looks like as text, and how its pieces are cut out of an answer; pure.

Elasticsearch gives the text of a document back as it was written, white space included. So before and after each piece
there is a tab. JSON allows none inside a text, and our encoder puts none between two, so no content can hold one: the
tabs of an answer are ours, and to split it at them is to have its pieces. Parsing it takes three times as long.

Documents that were written without tabs, by older versions, are found out and parsed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from indexer.backends.base import MISSHAPEN, FoundPage, FoundRow
from indexer.errors import IndexDocumentError, IndexRequestError
from query.to_dsl import uuid_of
from views.compute.view import PIECE_NAMES
from views.projection import Projection

_PIECES = ",".join(f'"{name}":\t%b\t' for name in PIECE_NAMES).encode()
SOURCE = b'{\t%%b,"cell_uuid":\t%%b\t,"view":{%b}}' % _PIECES
"""A document, to be formatted with its other members, the cell and the pieces of its view."""

_TAB = b"\t"
# Between two tabs there is: the end of the document before and the head of this one, its other members, the cell
# (_CELL), a name, the first piece (_FIRST_PIECE), a name, the second piece, and so on.
_TABS = SOURCE.count(_TAB)
_CELL, _FIRST_PIECE = 2, 4
_NAMES = list(enumerate(SOURCE.split(_TAB)))[_FIRST_PIECE - 1 : _TABS : 2]
_BEFORE_SOURCE = b'"_source":{'
_BEFORE_HIT = b'{"_index":'
_KEYS_BEGIN = 2
# Where msgspec says that something in a document is not what it should be.
_DOCUMENT = re.compile(r"at `\$\.(?:hits\.hits|docs)\[(\d+)\]")
_TEXT = msgspec.json.Decoder(str)
_ANYTHING = msgspec.json.Decoder()
_values = msgspec.structs.astuple


class Write(msgspec.Struct, frozen=True, gc=False):
    """Which write of a document has been found. sort: by what it was ordered; the parts of its uuid come last."""

    index: str = msgspec.field(name="_index")
    seq_no: int = msgspec.field(name="_seq_no")
    primary_term: int = msgspec.field(name="_primary_term")
    sort: tuple[Any, ...]

    @property
    def uuid(self) -> str:
        return uuid_of(*self.sort[-2:])


class _Writes(msgspec.Struct):
    hits: list[Write]


class _WritesAnswer(msgspec.Struct):
    hits: _Writes


class RowDecoder:
    """Cuts the rows out of the answer of a search, parsing nothing but what it needs.

    keys: names of the sort keys. pieces: names of the pieces of the view, those of the templates it is used with.
    """

    def __init__(self, keys: tuple[str, ...], pieces: tuple[str, ...]) -> None:
        # Without garbage collection, which would look at thousands of new objects that cannot form a cycle.
        define = partial(msgspec.defstruct, gc=False)
        view_type = define("_View", [(name, msgspec.Raw) for name in pieces])
        # What comes before the keys: _KEYS_BEGIN.
        source_type = define(
            "_RowSource", [("cell_uuid", str), ("view", view_type), *((name, Any, None) for name in keys)]
        )
        source = ("source", source_type, msgspec.field(name="_source"))
        self._answer = _answer_decoder(define("_Hit", [source]))
        self._answer_with_writes = _answer_decoder(define("_HitWithWrite", [source], bases=(Write,)))
        self._columns = [_FIRST_PIECE + 2 * PIECE_NAMES.index(name) for name in pieces]

    def rows(self, body: bytes, template: Projection) -> Sequence[FoundRow]:
        """Raises IndexRequestError, as `page` does."""
        return [FoundRow(_position(hit), _item(hit, template)) for hit in self._hits(body)]

    def rows_with_writes(self, body: bytes, template: Projection) -> Mapping[Write, FoundRow]:
        """The rows of an answer that says which write each is from. Raises IndexRequestError."""
        hits = decoded_documents(self._answer_with_writes, body).hits.hits
        return {
            Write(hit.index, hit.seq_no, hit.primary_term, hit.sort): FoundRow(_position(hit), _item(hit, template))
            for hit in hits
        }

    def page(self, parts: Iterator[bytes], template: Projection) -> FoundPage:
        """parts: the answer as it arrives; one is cut while the server writes the next one."""
        items: list[bytes] = []
        begin, last, rest = b"", list[bytes](), b""  # of the answer; the last row; what is behind it
        for part in parts:
            text = rest + part
            cut = text.split(_TAB)
            end = (len(cut) - 1) // _TABS * _TABS
            if not _is_ours(cut, end):
                rest = b"".join([text, *parts])
                break
            if end:
                before = len(items)
                begin = begin or cut[0].partition(_BEFORE_HIT)[0]
                pieces = zip(*(cut[column:end:_TABS] for column in self._columns), strict=True)
                try:
                    items += map(template.render, pieces, map(_cell_uuid, cut[_CELL:end:_TABS]))
                except MISSHAPEN as error:
                    # What was rendered is in the list.
                    damaged = cut[(len(items) - before) * _TABS]
                    raise IndexDocumentError.caused_by(error, _id_in(damaged)) from error
                last = cut[end - _TABS : end]
            rest = _TAB.join(cut[end:])
        # The last row is parsed with what is around all rows, which shows that the answer is what it must be.
        text = _TAB.join([*last, rest])
        hits = self._hits(b"".join([begin, *text.partition(_BEFORE_HIT)[1:]]) if last else text)
        items += [_item(hit, template) for hit in (hits[1:] if last else hits)]
        return FoundPage(b",".join(items), len(items), _position(hits[-1]) if hits else None)

    def _hits(self, body: bytes) -> Sequence[Any]:
        hits: Sequence[Any] = decoded_documents(self._answer, body).hits.hits
        return hits


row_decoder = lru_cache(maxsize=64)(RowDecoder)
_WRITES_ANSWER = msgspec.json.Decoder(_WritesAnswer)


def writes_in(body: bytes) -> Sequence[Write]:
    """What an answer without sources says was found. Raises IndexRequestError."""
    writes: Sequence[Write] = decoded(_WRITES_ANSWER, body).hits.hits
    return writes


def _answer_decoder(hit_type: Any) -> msgspec.json.Decoder[Any]:
    hits_type = msgspec.defstruct("_Hits", [("hits", list[hit_type])], gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("_Answer", [("hits", hits_type)], gc=False))


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


def _id_in(head: bytes) -> str:
    """The id of the document that a head belongs to."""
    return head.rpartition(b'"_id":"')[2].partition(b'"')[0].decode(errors="replace")


def _is_ours(cut: Sequence[bytes], end: int) -> bool:
    """Whether what has been cut at tabs, up to `end`, is documents with the tabs that they are written with here.

    One without tabs is inside the head of the next one, or of what has not arrived yet. Others than we may write tabs.
    """
    *heads, last = cut[: end + 1 : _TABS]
    return (
        all(_source_begins(head) == 0 for head in heads)
        and _source_begins(last) in (0, None)
        and all(cut[position:end:_TABS].count(name) == len(heads) for position, name in _NAMES)
    )


def _source_begins(head: bytes) -> int | None:
    """How far before its end a head has the beginning of a source; None if it has none."""
    at = head.find(_BEFORE_SOURCE)
    return None if at < 0 else len(head) - at - len(_BEFORE_SOURCE)


@lru_cache(maxsize=65_536)
def _cell_uuid(text: bytes) -> str:
    uuid: str = decoded(_TEXT, text)
    return uuid


def _position(hit: Any) -> tuple[Any, ...]:
    return _values(hit.source)[_KEYS_BEGIN:]


def _item(hit: Any, template: Projection) -> bytes:
    try:
        return template.render(tuple(map(bytes, _values(hit.source.view))), hit.source.cell_uuid)
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, str(_position(hit)[-1])) from error
