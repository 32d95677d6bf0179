"""Nodes with agents, and results of calls."""

from dataclasses import dataclass
from typing import Any

OFFLINE = "Node is marked offline"


@dataclass(frozen=True, slots=True)
class AgentNode:
    """A node. name: full name. address: host and port of its agent. is_offline: marked offline, so never called."""

    name: str
    address: str
    is_offline: bool = False


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The result of a call (contracts/ganeti-node-state-cache, 7).

    call: its name. data: the raw answer, if any. payload: of a success. fail_msg: why it failed; None for a success.
    is_timeout: whether the call may have been carried out, or may still run. is_under_way: whether the node reports
    that it still runs.
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
