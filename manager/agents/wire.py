"""The protocol between an agent and its caller (contracts/ganeti-node-state-cache, 2, 3 and 7).

`POST /v1/calls/NAME` with `{"arguments": {...}, "key": "..."}` is answered by `[true, PAYLOAD]` or `[false, TEXT]`. The
status is 200 if the call was carried out, even if it failed; 202 if a call with the key is running, or must wait for
others; and 4xx if it was refused. `GET /v1` names the agent.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
ROOT = f"/v{VERSION}"
CALLS = f"{ROOT}/calls/"
PORT = 1811
"""The port of agents, which is that of Ganeti's."""

CACHE_REQ_HV = "hv"
CACHE_REQ_DISKINFO = "diskinfo"
CACHE_REQ_BOOTID = "bootid"
FLAGS: Collection[str] = frozenset({CACHE_REQ_HV, CACHE_REQ_DISKINFO, CACHE_REQ_BOOTID})

NODE_DATA = "node"
INSTANCES_DATA = "instances"
"""The keys of the two parts of a hypervisor's state, which are of one moment."""

Snapshot = Mapping[str, Any]
"""The state of a node, by flag. `hv`: by hypervisor, NODE_DATA and INSTANCES_DATA. `diskinfo`: by volume group, vg_size
and vg_free in MiB, both null for a missing one. `bootid`: a text."""


class CallRequest(BaseModel):
    """The body of a call.

    key: of a changing call; the agent carries out a key once. order: the revision of the instance that the call serves;
        the agent refuses a call with a lower order than a recent one as too late.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    arguments: dict[str, Any] = Field(default_factory=dict)
    key: str | None = Field(default=None, min_length=1, max_length=200, pattern="^[!-~]+$")
    order: int | None = Field(default=None, ge=0, lt=2**63)


UNDER_WAY = 202
"""The status of an answer to a call that is running, or must be repeated."""


def succeeded(payload: Any) -> Sequence[Any]:
    return [True, payload]


def failed(text: str) -> Sequence[Any]:
    return [False, text]
