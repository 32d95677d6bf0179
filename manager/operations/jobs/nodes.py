"""Calls of nodes by a worker: between two transactions, with nothing locked (docs/decisions/0018)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class NodeCall:
    """What is asked of a node, which its host names.

    name: by a step start, stop, reboot, migrate …; of an agent as in fleetlight.manager.agents.calls. parameters: JSON.
    order: the revision of the instance for which it is made, which the worker fills in; 0: for none.
    """

    host: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    order: int = field(default=0, compare=False)


class Nodes(Protocol):
    """The nodes of one cell."""

    def call(self, call: NodeCall, key: str) -> Any:
        """Carry out `call`, and return the answer, which is JSON.

        key: the same when the same call is made again, since a worker that was killed does not know whether it was
            answered; the node then carries out nothing twice. Raises NodeCallError, and NodeAwayError while it is not
            known what came of the call: then it is made again.
        """
