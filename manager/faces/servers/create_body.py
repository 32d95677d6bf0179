"""The body of `POST /servers` (contracts/nova-rest, 1.1 to 1.4)."""

import base64
import binascii
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from fleetlight.api.bodies.body_types import Description, Fqdn, Metadata, Name, Tag, Tags, UuidText
from fleetlight.api.bodies.request_body import MAX_INTEGER, Body, BodyBool, BodyInteger, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since, Until

_MAX_USER_DATA = 65_535


def _as_text(value: object) -> object:
    """Convert a flavor's reference: a number, or a URL whose last element counts, to text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else value


def _is_ipv4(text: str) -> str:
    IPv4Address(text)
    return text


def _canonical_ipv6(text: str) -> str:
    """Format an address like Nova: short, in lower case, an embedded IPv4 address with dots."""
    address = IPv6Address(text)
    if address.scope_id is not None:
        raise PydanticCustomError("scoped_address", "must not name an interface")
    return socket.inet_ntop(socket.AF_INET6, address.packed)


def _is_address(text: str) -> str:
    """Check an address, and keep it as written."""
    (_canonical_ipv6 if ":" in text else _is_ipv4)(text)
    return text


def _are_unique(texts: list[str]) -> list[str]:
    if len(set(texts)) < len(texts):
        raise PydanticCustomError("not_unique", "has non-unique elements")
    return texts


def decoded(content: SecretStr) -> bytes:
    """Decode base64, ignoring other characters, like Nova."""
    return base64.b64decode(content.get_secret_value())


def _is_base64(content: SecretStr) -> SecretStr:
    try:
        decoded(content)
    except (binascii.Error, ValueError):
        raise PydanticCustomError("not_base64", "is not base64") from None
    return content


FlavorRef = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
AccessIPv4 = Annotated[str, AfterValidator(_is_ipv4)]
AccessIPv6 = Annotated[str, AfterValidator(_canonical_ipv6)]
Address = Annotated[str, AfterValidator(_is_address)]
UserData = Annotated[SecretStr, Field(max_length=_MAX_USER_DATA), AfterValidator(_is_base64)]
DiskConfig = Literal["AUTO", "MANUAL"]
Certificates = (
    Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, max_length=50, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_are_unique),
    ]
    | None
)
Hostname = Annotated[str, Field(min_length=2, max_length=63, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9]$")]
_BootIndex = BodyInteger | None
_VolumeSize = Annotated[BodyInteger, Field(ge=1, le=MAX_INTEGER)]
_Column = Annotated[str, Field(max_length=255)]
_ConnectionInfo = Annotated[str, Field(max_length=16_777_215)]
_DeviceName = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9._/\-]*$")]
_SourceId = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[a-zA-Z0-9._\-]*$")]
# The quota limits the number.
_HowMany = Annotated[BodyInteger, Field(ge=1)]


class Network(RequestModel):
    """A requested network interface."""

    uuid: UuidText = ""
    port: UuidText | None = None
    fixed_ip: Address = ""
    # Nova lost the tags of block devices at 2.33, and those of networks at 2.37.
    tag: Annotated[Tag, Since(32), Until(36), Since(42)] = ""


class SecurityGroup(RequestModel):
    """A security group; one without a name has no effect."""

    name: Name = ""


class BlockDevice(RequestModel):
    """One item of `block_device_mapping_v2`."""

    source_type: IfGiven[Literal["volume", "image", "snapshot", "blank"]] = None
    destination_type: IfGiven[Literal["local", "volume"]] = None
    uuid: _SourceId = ""
    boot_index: _BootIndex = None
    volume_size: _VolumeSize = 0
    device_name: _DeviceName = ""
    delete_on_termination: BodyBool = False
    guest_format: _Column = ""
    device_type: IfGiven[_Column] = None
    disk_bus: _Column = ""
    no_device: Any = None
    image_id: UuidText = ""
    volume_id: UuidText = ""
    snapshot_id: UuidText = ""
    virtual_name: _Column = ""
    connection_info: _ConnectionInfo = ""
    tag: Annotated[Tag, Since(32), Until(32), Since(42)] = ""
    volume_type: Annotated[_Column | None, Since(67)] = None


class LegacyBlockDevice(RequestModel):
    """One item of `block_device_mapping`."""

    virtual_name: _Column = ""
    volume_id: UuidText = ""
    snapshot_id: UuidText = ""
    volume_size: _VolumeSize = 0
    device_name: _DeviceName = ""
    delete_on_termination: BodyBool = False
    no_device: Any = None
    connection_info: _ConnectionInfo = ""


class File(RequestModel):
    """A file to put into the guest."""

    path: str
    contents: Annotated[SecretStr, AfterValidator(_is_base64)]


class NewServer(RequestModel):
    name: Name
    flavor_ref: FlavorRef = Field(alias="flavorRef")
    image_ref: UuidText | Literal[""] = Field(default="", alias="imageRef")
    networks: Annotated[
        list[Network] | Literal["auto", "none"], Since(1, list[Network]), Since(37, is_required=True)
    ] = Field(default=[])
    metadata: Metadata = Field(default={})
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")
    key_name: Name = ""
    user_data: UserData = SecretStr("")
    availability_zone: Name = ""
    config_drive: BodyBool = False
    security_groups: list[SecurityGroup] = Field(default=[])
    access_ip_v4: AccessIPv4 = Field(default="", alias="accessIPv4")
    access_ip_v6: AccessIPv6 = Field(default="", alias="accessIPv6")
    disk_config: DiskConfig = Field(default="MANUAL", alias="OS-DCF:diskConfig")
    min_count: _HowMany = 0
    max_count: _HowMany = 0
    return_reservation_id: BodyBool = False
    block_device_mapping: list[LegacyBlockDevice] = Field(default=[])
    block_device_mapping_v2: list[BlockDevice] = Field(default=[])
    personality: Annotated[list[File], Until(56)] = Field(default=[])
    description: Annotated[Description, Since(19)] = None
    tags: Annotated[Tags, Since(52)] = Field(default=[])
    trusted_image_certificates: Annotated[Certificates, Since(63)] = None
    host: Annotated[str | None, Since(74, Fqdn)] = None
    hypervisor_hostname: Annotated[str | None, Since(74, Fqdn)] = None
    hostname: Annotated[str | None, Since(90, Hostname), Since(94, Fqdn)] = None


class SchedulerHints(RequestModel):
    """Scheduler hints; unknown ones are stored, too."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    group: UuidText | list[UuidText] = ""
    different_host: UuidText | list[UuidText] = ""
    same_host: str | list[UuidText] = ""
    query: str | dict[str, Any] = ""
    target_cell: Name = ""
    different_cell: str | list[str] = ""
    build_near_host_ip: Address = ""
    cidr: Annotated[str, Field(pattern=r"^/[0-9a-f.:]+$")] = ""


class CreateServer(RequestModel):
    """The whole body. The first spelling of the hints wins."""

    server: NewServer
    hints: IfGiven[SchedulerHints] = Field(default=None, alias="os:scheduler_hints")
    legacy_hints: IfGiven[SchedulerHints] = Field(default=None, alias="OS-SCH-HNT:scheduler_hints")

    @property
    def scheduler_hints(self) -> dict[str, Any]:
        hints = self.hints or self.legacy_hints
        return {} if hints is None else hints.model_dump(exclude_unset=True)

    @property
    def same_hosts(self) -> Collection[str]:
        """Uuids of the servers with which the new ones must share a host."""
        hint = self.scheduler_hints.get("same_host") or []
        return [hint] if isinstance(hint, str) else hint


CREATE_SERVER = Body(CreateServer)
