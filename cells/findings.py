"""What checks find: the doctor, the comparisons of cells, and work on the index say it in the same words."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fleetlight.cells.model import CellAdapter


class FindingKind(StrEnum):
    """What is wrong, in the order in which findings are shown."""

    UNKNOWN_HOST = "unknown-host"  # an instance is on a host that its cell does not have
    WRONG_HOST = "wrong-host"  # it runs on another node than its cell says
    NOT_RUNNING = "not-running"  # it is off though it should be on
    RUNNING_THOUGH_OFF = "running-though-off"  # and the other way round
    LONG_TRANSITION = "long-transition"  # something has been done to it for long
    LOOSE_ALLOCATION = "allocation-without-instance"  # it takes up room of a node, and is not there
    OVERALLOCATED_NODE = "node-overallocated"  # more was given away than there is
    HOST_WITHOUT_AGENT = "host-without-agent"  # no agent speaks for it, though others of the cell have one
    CELL_RESTORED = "cell-restored"  # its database went back to a backup, and nobody has acknowledged that
    MAPPING_ELSEWHERE = "mapping-elsewhere"  # a row whose mapping names another cell
    MAPPING_NOT_COMPARED = "mapping-not-compared"  # mappings are compared often, and these were not for long
    MAPPING_REPAIRED = "mapping-repaired"  # a mapping without a row, or a row without a mapping, of late
    DOCUMENT_REPAIRED = "document-repaired"  # the index had an instance otherwise than its cell


class State(StrEnum):
    """Of a finding. UNKNOWN: it may not be looked at, or cannot be seen from here; nothing has to be done for that."""

    OK = "ok"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found of one thing.

    about: the uuid of an instance, the name of a node or a cell, or what else was checked. evidence: what was found; a
    sentence. remedy: what to do, with the command in backquotes where there is one; None where that is not known, or
    nothing is wrong. kind: of a comparison. cell: a name; None of what is no cell's. since: microseconds since the
    epoch; None where the data does not tell.
    """

    about: str
    state: State
    evidence: str
    remedy: str | None = None
    kind: FindingKind | None = None
    cell: str | None = None
    since: int | None = None


def ok(about: str, evidence: str) -> Finding:
    return Finding(about, State.OK, evidence)


def unknown(about: str, evidence: str, *, cell: str | None = None) -> Finding:
    return Finding(about, State.UNKNOWN, evidence, cell=cell)


def wrong(
    about: str,
    evidence: str,
    remedy: str | None = None,
    *,
    kind: FindingKind | None = None,
    cell: str | None = None,
    since: int | None = None,
) -> Finding:
    return Finding(about, State.WRONG, evidence, remedy, kind, cell, since)


@runtime_checkable
class FindingsAdapter(CellAdapter, Protocol):
    """A cell that compares what it has with what its hosts say."""

    def findings(self, limit: int) -> Sequence[Finding]:
        """At most so many of each kind. Raises CellUnreachableError."""
        ...
