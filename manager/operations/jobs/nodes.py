"""Calls of nodes by a worker, between two transactions and without locks (docs/decisions/0018)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A call to the agent of a node. The host names the node.

    name: of a step's call, such as start, stop, migrate; of an agent's call, see fleetlight.manager.agents.calls.
    parameters: JSON. order: the revision of the call's instance, which the worker fills in; 0 without one.
    """

    host: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    order: int = field(default=0, compare=False)


class Nodes(Protocol):
    """The nodes of one cell."""

    def call(self, call: NodeCall, key: str) -> Any:
        """Carry out `call`, and return the answer, which is JSON.

        key: the same for a repeated call, which the node carries out only once: a killed worker does not know whether
            its call was answered. Raises NodeCallError, and NodeAwayError while the outcome is unknown: then the worker
            repeats the call.
        """
