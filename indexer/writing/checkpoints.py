"""Checkpoints of a sync, saved beside the progress: an interrupted sync continues from the last one."""

import msgspec

from fleetlight.cells.epochs import Position
from fleetlight.indexer.backends.base import IndexWriter

FROM_CELLS = "cells"
FROM_API = "api"
FOR_REBUILD = "rebuild"

_KIND = "sync"
# A sync with more rejected rows saves no checkpoint, and begins anew.
_MAX_REJECTED = 1000


class Checkpoint(msgspec.Struct, frozen=True):
    """The state of a sync that has written every row up to `position`.

    position: of the last row, as the source defines it. sequence: of the cell before the first row was read. rows:
    number of rows so far. deleted: number of deleted ones among them. rejected: why the index rejects a row, by uuid.
    seen: the approximate position of the cell when the last row was read; None if unknown.
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
        """The checkpoint; None if no sync was interrupted, or another version of this program saved it."""
        found = self._writer.load_state(_KIND).get(self._name)
        try:
            return None if found is None else msgspec.convert(found, Checkpoint)
        except msgspec.ValidationError:
            return None

    def save(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, unless it has too many rejected rows."""
        if len(checkpoint.rejected) <= _MAX_REJECTED:
            self._writer.save_state(_KIND, {self._name: msgspec.to_builtins(checkpoint)})

    def forget(self) -> None:
        self._writer.save_state(_KIND, {self._name: None})


def forget_checkpoints(writer: IndexWriter, *, cell_uuid: str | None = None, source: str | None = None) -> None:
    """Forget checkpoints whose rows left the index: of one cell, one source, or both. Raises what the writer raises."""
    names = [name.split(":") for name in writer.load_state(_KIND)]
    gone = [f"{of}:{uuid}" for of, uuid in names if source in {None, of} and cell_uuid in {None, uuid}]
    writer.save_state(_KIND, dict.fromkeys(gone))
