"""The bodies of requests for attachments and consoles of servers (contracts/nova-rest, 3.6 and 3.7)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleetlight.api.bodies.body_types import Tag, UuidText
from fleetlight.api.bodies.request_body import Body, BodyBool, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.manager.faces.servers.create_body import Address


class _FixedAddress(RequestModel):
    ip_address: Address


class _Interface(RequestModel):
    """An interface: one of both members, or none for any network of the project."""

    net_id: UuidText = ""
    port_id: UuidText = ""
    fixed_ips: Annotated[list[_FixedAddress], Field(min_length=1, max_length=1)] = Field(default=[])
    tag: Annotated[Tag, Since(49)] = ""

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.net_id and self.port_id:
            raise PydanticCustomError("two_networks", "has both a net_id and a port_id")
        return self


class _NewInterface(RequestModel):
    interface: IfGiven[_Interface] = Field(default=None, alias="interfaceAttachment")


class _Volume(RequestModel):
    volume_id: UuidText = Field(alias="volumeId")
    device: Annotated[str, Field(pattern=r"^/dev/x?[a-z]?d?[a-z]+[0-9]*$")] | None = None
    tag: Annotated[Tag, Since(49)] = ""
    delete_on_termination: Annotated[BodyBool, Since(79)] = False


_ProtocolUntil7 = Literal["vnc", "spice", "serial", "rdp"]
_TypeUntil7 = Literal["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"]
_TypeUntil98 = Literal[_TypeUntil7, "webmks"]


class _Console(RequestModel):
    protocol: Annotated[str, Since(1, _ProtocolUntil7), Since(8, Literal[_ProtocolUntil7, "mks"])]
    type: Annotated[
        str, Since(1, _TypeUntil7), Since(8, _TypeUntil98), Since(99, Literal[_TypeUntil98, "spice-direct"])
    ]


class _ForceComplete(RequestModel):
    force_complete: None


NEW_INTERFACE = Body(_NewInterface)
NEW_VOLUME = Body(_Volume, "volumeAttachment")
NEW_CONSOLE = Body(_Console, "remote_console")
FORCE_COMPLETE = Body(_ForceComplete)
