"""Errors in the description of a cluster.

BalancingError
├── ClusterFileError
└── UnknownGroupError
"""

from collections.abc import Sequence

from fleetlight.resources.errors import UsageError


class BalancingError(UsageError):
    """A cluster cannot be evaluated."""


class ClusterFileError(BalancingError):
    """A line of a cluster's text file is malformed. line, column: counted from 1."""

    def __init__(self, line: int, column: int | None, problem: str) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {problem}")
        self.line = line
        self.column = column
        self.problem = problem


class UnknownGroupError(BalancingError):
    """The cluster has no such node group."""

    def __init__(self, group: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no node group {group!r}; there are {', '.join(known) or 'none'}")
        self.group = group
