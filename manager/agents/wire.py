"""The protocol between an agent and its caller (contracts/ganeti-node-state-cache, 2, 3 and 7).

`POST /v1/calls/NAME` with `{"arguments": {...}, "key": "..."}` is answered by `[true, PAYLOAD]` or `[false, TEXT]`,
with status 200 when the call was made, whatever came of it, 202 when the one of that key is being made, or has to wait
for others, and 4xx when it was not made. `GET /v1` names the agent.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
ROOT = f"/v{VERSION}"
CALLS = f"{ROOT}/calls/"
PORT = 1811
"""Where agents listen, as those of Ganeti do."""

CACHE_REQ_HV = "hv"
CACHE_REQ_DISKINFO = "diskinfo"
CACHE_REQ_BOOTID = "bootid"
FLAGS: Collection[str] = frozenset({CACHE_REQ_HV, CACHE_REQ_DISKINFO, CACHE_REQ_BOOTID})

NODE_DATA = "node"
INSTANCES_DATA = "instances"
"""The two parts of what is known by a hypervisor; both are of one moment."""

Snapshot = Mapping[str, Any]
"""By flag: of `hv` by hypervisor NODE_DATA and INSTANCES_DATA; of `diskinfo` by volume group vg_size and vg_free, in
MiB, both null for one that is not there; of `bootid` the text."""


class CallRequest(BaseModel):
    """The body of a call.

    key: of a call that changes something; the same key is carried out once. order: the revision of the instance that it
        is made for; what has a lower one than something that was just asked for comes too late, and is refused.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    arguments: dict[str, Any] = Field(default_factory=dict)
    key: str | None = Field(default=None, min_length=1, max_length=200, pattern="^[!-~]+$")
    order: int | None = Field(default=None, ge=0, lt=2**63)


UNDER_WAY = 202
"""The status of an answer that says no more than that the call is being made, or has to be made again."""


def succeeded(payload: Any) -> Sequence[Any]:
    return [True, payload]


def failed(text: str) -> Sequence[Any]:
    return [False, text]
