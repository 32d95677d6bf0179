"""Errors between a caller and the nodes; what goes wrong with one node is a value (NodeResult).

NodeError
├── RequestError             no such flag, or an argument that it does not take: a mistake of the program
├── NodesSettingsError       what is configured of nodes cannot be used
├── NoCertificateError       this process has no certificate by which agents of a cell would know it
└── StoreUnreachableError    what is remembered cannot be reached: reading misses, and changing has to wait
"""

from fleetlight.resources.errors import UsageError


class NodeError(Exception):
    """Something went wrong with calling nodes."""


class RequestError(NodeError):
    """What was asked for cannot be asked for."""


class NodesSettingsError(NodeError, UsageError):
    """The text says what is configured, and what would be right."""


class NoCertificateError(NodeError):
    """The agents of the cell called `cell` cannot be called by this process."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"the agents of cell {cell} cannot be called: {reason}")
        self.cell = cell
        self.reason = reason


class StoreUnreachableError(NodeError):
    """The server at `address` (without password) that remembers the state of nodes does not answer."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the node state cache at {address} cannot be reached: {reason}")
        self.address = address
        self.reason = reason
