"""The hosts of a native cell, as long as it has no others: they carry out each call at once."""

from fleetlight.operations.jobs.nodes import NodeCall


class SimulatedHosts:
    """Nodes that answer nothing, and never fail."""

    def call(self, call: NodeCall, key: str) -> None:
        """The records of the cell are all that there is of an instance, so there is nothing to do."""
