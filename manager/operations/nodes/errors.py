"""Errors of callers of nodes; the failure of a single node is a value (NodeResult).

NodeError
├── RequestError             an unknown flag, or a wrong argument: a mistake of the program
├── NodesSettingsError       the settings of nodes are unusable
├── NoCertificateError       this process has no certificate for agents of a cell
└── StoreUnreachableError    the cache's store does not answer: reads miss, and changes have to wait
"""

from fleetlight.resources.errors import UsageError


class NodeError(Exception):
    """An error in calling nodes."""


class RequestError(NodeError):
    """A query of nodes is invalid."""


class NodesSettingsError(NodeError, UsageError):
    """The settings of nodes are unusable; the text says which, and how to correct them."""


class NoCertificateError(NodeError):
    """This process has no certificate to call the agents of the cell named `cell`."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"the agents of cell {cell} cannot be called: {reason}")
        self.cell = cell
        self.reason = reason


class StoreUnreachableError(NodeError):
    """The server at `address` (without password) with the cached state of nodes does not answer."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the node state cache at {address} cannot be reached: {reason}")
        self.address = address
        self.reason = reason
