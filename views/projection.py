"""Projections of the rows of a list: the values to read of each row, and the rendering of its item."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from fleetlight.resources.fields import ItemType, Record

_encode = msgspec.json.Encoder().encode


class Projection(ABC):
    """Renders the items of one answer.

    fields: names of the fields that `render_record` needs; None for all fields.
    pieces: names of the pieces of the stored view (fleetlight.views.compute.view) that `render` needs; empty if it
        needs the stored values of `fields` instead.
    form, rendered_with: projections with pieces, of equal `form` and with the same object `rendered_with`, make the
        same items.
    shows_revision: whether items need the revision, which `render` then gets after the values of fields.
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
        """Render a row of the index. values: its pieces, or its fields, in order; further values are ignored."""

    @abstractmethod
    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        """Render a row read live from a cell, exactly as `render` does for the index's row.

        revision: see fleetlight.cells.model.InstanceRow; None if not needed.
        """

    def of_cell_that_is_down(self) -> "Projection":
        """Return the projection for the index's rows of a down cell."""
        return self

    def render_damaged(self, record: Record) -> bytes:
        """Render the substitute of a damaged row. Raises UnreadableRowError if there is none."""
        raise NotImplementedError


class FieldValues(Projection):
    """Renders the stored values of some fields as a JSON array, in the order of `names`."""

    fields: tuple[str, ...]

    def __init__(self, item_type: ItemType, names: Sequence[str]) -> None:
        """Raises UnknownFieldError for a name that is no field."""
        self.fields = tuple(names)
        self._lists = [item_type.require(name, "list").is_list for name in names]

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        return _encode(values[: len(self.fields)])

    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        # An absent list counts as empty.
        return _encode(
            [
                () if is_list and record[name] is None else record[name]
                for name, is_list in zip(self.fields, self._lists, strict=True)
            ]
        )
