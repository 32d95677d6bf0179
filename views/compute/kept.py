"""What the index keeps of an instance, as the one text that a native cell keeps ready beside its row.

It is made when the instance is changed, from the same record and in the same transaction. Who goes through all rows
of a cell, to fill an index, then copies texts instead of rendering each row again.

One line of JSON has the fields that are kept, without nulls, and one each piece of the view. JSON has no line breaks
but between its tokens, and our encoder puts none there.
"""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import msgspec

from resources.fields import Kind, Record
from resources.instance import INSTANCE_FIELDS
from views.compute.view import PIECE_NAMES, View, render_view

FORM = 1
"""Of what `to_text` makes. It grows by one with whatever changes that for some record, so that texts from before are
made anew; a test knows what the present form looks like.
"""
KEPT_FIELDS = tuple(field.name for field in INSTANCE_FIELDS.values() if field.kind is not Kind.OTHER or field.is_list)
"""What the index keeps of the record of an instance with a revision (indexer.backends.base.Document.kept_record)."""

_LINE_BREAK = b"\n"
# A structure is encoded in half the time that a dict needs to be made and encoded.
_Kept = msgspec.defstruct("_Kept", [(name, Any, None) for name in KEPT_FIELDS], omit_defaults=True, gc=False)
_values_of = itemgetter(*KEPT_FIELDS)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_NOTHING: Record = dict.fromkeys(INSTANCE_FIELDS)


class KeptRecord(Mapping[str, Any]):
    """The record of an instance of which no more than KEPT_FIELDS is told, decoded when somebody looks into it.

    text: the fields that are not null, as a JSON object.
    """

    __slots__ = ("_fields", "_uuid", "text")

    def __init__(self, uuid: str, text: bytes) -> None:
        self.text = text
        self._uuid = uuid
        self._fields: Record | None = None

    def __getitem__(self, name: str) -> Any:
        # All that is asked of most of them.
        return self._uuid if name == "uuid" else self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(INSTANCE_FIELDS)

    def __len__(self) -> int:
        return len(INSTANCE_FIELDS)

    @property
    def _decoded(self) -> Record:
        if self._fields is None:
            self._fields = {**_NOTHING, **_decode(self.text)}
        return self._fields


class KeptInstance(msgspec.Struct, frozen=True, gc=False):
    """One instance as its cell keeps it for the index. text: what `to_text` has made."""

    cell_uuid: str
    revision: int
    uuid: str
    text: str

    def read(self) -> tuple[KeptRecord, View]:
        """What is kept of its record, and its view. Raises ValueError when the text is not what `to_text` makes."""
        fields, *view = self.text.encode().split(_LINE_BREAK)
        if len(view) != len(PIECE_NAMES):
            raise ValueError(f"the text that is kept of it has {1 + len(view)} lines instead of {1 + len(PIECE_NAMES)}")
        return KeptRecord(self.uuid, fields), tuple(view)


def kept_fields(record: Record) -> bytes:
    """The JSON object of the fields that are kept of a record with a revision."""
    return _encode(_Kept(*_values_of(record)))


def to_text(record: Record) -> str:
    """What a cell keeps of an instance for the index. record: every field of INSTANCE_FIELDS."""
    return _LINE_BREAK.join((kept_fields(record), *render_view(record))).decode()
