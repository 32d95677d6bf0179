"""Checkpoints of a sync, kept beside the progress: a sync that was killed goes on from there."""

import msgspec

from fleetlight.cells.epochs import Position
from fleetlight.indexer.backends.base import IndexWriter

FROM_CELLS = "cells"
FROM_API = "api"
FOR_REBUILD = "rebuild"

_KIND = "sync"
# A sync that has more than that to complain about is not worth going on with from the middle.
_MAX_REJECTED = 1000


class Checkpoint(msgspec.Struct, frozen=True):
    """Everything up to `position` has been written.

    position: of the last row, in the terms of the source. sequence: of the cell, from before the first row was read.
    rows: how many there were so far. deleted: how many of them are. rejected: uuid -> why the index does not take it.
    seen: up to where the cell had got when the last of them was read, about; None if that is not known.
    """

    position: list[str]
    sequence: int
    rows: int
    deleted: int
    rejected: dict[str, str]
    seen: Position | None = None


class Checkpoints:
    """The checkpoint of one cell and source. Every call raises what the writer raises."""

    def __init__(self, writer: IndexWriter, cell_uuid: str, source: str) -> None:
        self._writer = writer
        self._name = f"{source}:{cell_uuid}"

    def load(self) -> Checkpoint | None:
        """None if no sync was cut off, or if its checkpoint is one of another version of this program."""
        found = self._writer.load_state(_KIND).get(self._name)
        try:
            return None if found is None else msgspec.convert(found, Checkpoint)
        except msgspec.ValidationError:
            return None

    def save(self, checkpoint: Checkpoint) -> None:
        if len(checkpoint.rejected) <= _MAX_REJECTED:
            self._writer.save_state(_KIND, {self._name: msgspec.to_builtins(checkpoint)})

    def forget(self) -> None:
        self._writer.save_state(_KIND, {self._name: None})


def forget_checkpoints(writer: IndexWriter, *, cell_uuid: str | None = None, source: str | None = None) -> None:
    """Those of one cell, of one source, or of one source of one cell: what they are about has left the index."""
    names = [name.split(":") for name in writer.load_state(_KIND)]
    gone = [f"{of}:{uuid}" for of, uuid in names if source in {None, of} and cell_uuid in {None, uuid}]
    writer.save_state(_KIND, dict.fromkeys(gone))
