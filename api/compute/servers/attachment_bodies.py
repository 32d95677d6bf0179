"""The bodies of what would attach something to a server, or open its console (contracts/nova-rest, 3.6 and 3.7)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.compute.servers.create_body import Address
from api.http.body_types import Tag, UuidText
from api.http.request_body import Body, BodyBool, IfGiven, RequestModel


class _FixedAddress(RequestModel):
    ip_address: Address


class _Interface(RequestModel):
    """One of the two, or none: then it is any network of the project."""

    net_id: UuidText = ""
    port_id: UuidText = ""
    fixed_ips: Annotated[list[_FixedAddress], Field(min_length=1, max_length=1)] = Field(default=[])

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.net_id and self.port_id:
            raise PydanticCustomError("two_networks", "has both a net_id and a port_id")
        return self


class _InterfaceSince49(_Interface):
    tag: Tag = ""


class _NewInterface(RequestModel):
    interface: IfGiven[_Interface] = Field(default=None, alias="interfaceAttachment")


class _NewInterfaceSince49(_NewInterface):
    interface: IfGiven[_InterfaceSince49] = Field(default=None, alias="interfaceAttachment")


_Device = Annotated[str, Field(pattern=r"^/dev/x?[a-z]?d?[a-z]+[0-9]*$")]


class _Volume(RequestModel):
    volume_id: UuidText = Field(alias="volumeId")
    device: _Device | None = None


class _VolumeSince49(_Volume):
    tag: Tag = ""


class _VolumeSince79(_VolumeSince49):
    delete_on_termination: BodyBool = False


class _NewVolume(RequestModel):
    volume: _Volume = Field(alias="volumeAttachment")


class _NewVolumeSince49(_NewVolume):
    volume: _VolumeSince49 = Field(alias="volumeAttachment")


class _NewVolumeSince79(_NewVolume):
    volume: _VolumeSince79 = Field(alias="volumeAttachment")


class _Console(RequestModel):
    protocol: str
    type: str


class _ConsoleUntil7(_Console):
    protocol: Literal["vnc", "spice", "serial", "rdp"]
    type: Literal["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5"]


class _ConsoleUntil98(_Console):
    protocol: Literal["vnc", "spice", "serial", "rdp", "mks"]
    type: Literal["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5", "webmks"]


class _ConsoleSince99(_Console):
    protocol: Literal["vnc", "spice", "serial", "rdp", "mks"]
    type: Literal["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5", "webmks", "spice-direct"]


class NewConsole(RequestModel):
    remote_console: _Console


class _NewConsoleUntil7(NewConsole):
    remote_console: _ConsoleUntil7


class _NewConsoleUntil98(NewConsole):
    remote_console: _ConsoleUntil98


class _NewConsoleSince99(NewConsole):
    remote_console: _ConsoleSince99


class _ForceComplete(RequestModel):
    force_complete: None


NEW_INTERFACE = Body[_NewInterface]({1: _NewInterface, 49: _NewInterfaceSince49})
NEW_VOLUME = Body[_NewVolume]({1: _NewVolume, 49: _NewVolumeSince49, 79: _NewVolumeSince79})
NEW_CONSOLE = Body[NewConsole]({6: _NewConsoleUntil7, 8: _NewConsoleUntil98, 99: _NewConsoleSince99})
FORCE_COMPLETE = Body({22: _ForceComplete})
