"""Nodes with agents, and results of calls."""

from dataclasses import dataclass
from typing import Any

OFFLINE = "Node is marked offline"


@dataclass(frozen=True, slots=True)
class AgentNode:
    """name: full. address: host and port of its agent. is_offline: it is not called, whatever it would say."""

    name: str
    address: str
    is_offline: bool = False


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What came of a call (contracts/ganeti-node-state-cache, 7).

    call: its name. data: the answer as it came, if one came. payload: what it brought, if it succeeded.
    fail_msg: why it failed; None if it did not. is_timeout: it may have been carried out, or be under way still.
    is_under_way: it is, as the node says.
    """

    node: str
    call: str
    data: Any = None
    payload: Any = None
    fail_msg: str | None = None
    offline: bool = False
    is_timeout: bool = False
    is_under_way: bool = False

    @property
    def has_failed(self) -> bool:
        return self.fail_msg is not None


def offline(node: str, call: str) -> NodeResult:
    return NodeResult(node, call, fail_msg=OFFLINE, offline=True)


def failure(node: str, call: str, text: str, data: Any = None, *, is_timeout: bool = False) -> NodeResult:
    return NodeResult(node, call, data=data, fail_msg=text, is_timeout=is_timeout)
