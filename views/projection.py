"""Projections of the rows of a list: what has to be read of each, and how its item is made of that."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from fleetlight.resources.fields import ItemType, Record

_encode = msgspec.json.Encoder().encode


class Projection(ABC):
    """How one face makes the items of one answer.

    fields: names of the fields that `render_record` needs; None for all of them.
    pieces: names of the pieces of the stored view (fleetlight.views.compute.view) that `render` needs; none of one that
        is made of fields, of which `render` then gets the stored values.
    form, rendered_with: projections with pieces of the same form, and with the same object of these, make the same
        items.
    shows_revision: whether items are made of fields and of the revision, which `render` then gets behind the values.
    shows_damaged: whether a page may have the items of `render_damaged`.
    """

    fields: tuple[str, ...] | None = None
    pieces: tuple[str, ...] = ()
    form: Hashable = ()
    rendered_with: object = None
    shows_revision = False
    shows_damaged = False

    @abstractmethod
    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        """The item of a row of that cell in an index, which delivered `values`: the pieces, or the fields, in order.

        What follows them is not looked at.
        """

    @abstractmethod
    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        """The item of a row that the cell itself gave, the same as `render` makes of what an index has of it.

        revision: as of fleetlight.cells.model.InstanceRow; None where it is not needed.
        """

    def of_cell_that_is_down(self) -> "Projection":
        """The projection for rows from an index whose cell does not answer."""
        return self

    def render_damaged(self, record: Record) -> bytes:
        """The item of a row that is damaged, where they are shown. Raises UnreadableRowError when it has none."""
        raise NotImplementedError


class FieldValues(Projection):
    """The stored values of some fields, as a JSON array in the order of their names."""

    fields: tuple[str, ...]

    def __init__(self, item_type: ItemType, names: Sequence[str]) -> None:
        """Raises UnknownFieldError."""
        self.fields = tuple(names)
        self._lists = [item_type.require(name, "list").is_list for name in names]

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        return _encode(values[: len(self.fields)])

    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        # An absent list is an empty one.
        return _encode(
            [
                () if is_list and record[name] is None else record[name]
                for name, is_list in zip(self.fields, self._lists, strict=True)
            ]
        )
