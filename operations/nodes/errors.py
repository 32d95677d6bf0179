"""What can go wrong between a caller and the nodes; what goes wrong with one node is a value (NodeResult).

NodeError
├── RequestError             no such flag, or an argument that it does not take: a mistake of the program
└── StoreUnreachableError    what is remembered cannot be reached: reading misses, and changing has to wait
"""


class NodeError(Exception):
    """Something went wrong with calling nodes."""


class RequestError(NodeError):
    """What was asked for cannot be asked for."""


class StoreUnreachableError(NodeError):
    """The server at `address` (without password) that remembers the state of nodes does not answer."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the node state cache at {address} cannot be reached: {reason}")
        self.address = address
        self.reason = reason
