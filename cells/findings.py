"""Findings of checks, in one form for the doctor, the comparisons of cells, and work on the index."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fleetlight.cells.model import CellAdapter


class FindingKind(StrEnum):
    """Kinds of faults, in the order in which findings are shown."""

    UNKNOWN_HOST = "unknown-host"  # an instance is on a host that its cell does not have
    WRONG_HOST = "wrong-host"  # an instance runs on another node than its cell says
    NOT_RUNNING = "not-running"  # an instance is off although it should be on
    RUNNING_THOUGH_OFF = "running-though-off"  # an instance is on although it should be off
    LONG_TRANSITION = "long-transition"  # an instance has been in transition for long
    LOOSE_ALLOCATION = "allocation-without-instance"  # a missing instance has resources of a node allocated
    OVERALLOCATED_NODE = "node-overallocated"  # more of a node is allocated than it has
    HOST_WITHOUT_AGENT = "host-without-agent"  # a host has no agent, although others of its cell have one
    CELL_RESTORED = "cell-restored"  # a cell's database was restored from a backup, which no operator has acknowledged
    MAPPING_ELSEWHERE = "mapping-elsewhere"  # a row whose mapping names another cell
    MAPPING_NOT_COMPARED = "mapping-not-compared"  # a cell's mappings have not been compared for long
    MAPPING_REPAIRED = "mapping-repaired"  # a mapping without a row, or a row without one, was repaired lately
    DOCUMENT_REPAIRED = "document-repaired"  # an instance differed between index and cell, and was repaired


class State(StrEnum):
    """The state of a finding. UNKNOWN: it cannot be checked by this account or from here, which needs no remedy."""

    OK = "ok"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of a check about one subject.

    about: the uuid of an instance, the name of a node or cell, or another subject. evidence: a sentence. remedy: what
    to do, with a command in backquotes if possible; None if unknown, or nothing is wrong. kind: of a comparison. cell:
    its name; None if the subject belongs to none. since: Unix time in microseconds; None if unknown.
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
    """A cell that can compare its data with the state of its hosts."""

    def findings(self, limit: int) -> Sequence[Finding]:
        """At most `limit` findings of each kind. Raises CellUnreachableError."""
        ...
