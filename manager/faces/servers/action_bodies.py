"""The bodies of `POST /servers/{id}/action` with a fixed form (contracts/nova-rest, 2.3 to 2.6)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from fleetlight.api.bodies.body_types import Description, Fqdn, Metadata, Name, UuidText
from fleetlight.api.bodies.request_body import Body, BodyBool, BodyInteger, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since, Until
from fleetlight.manager.faces.servers.create_body import (
    AccessIPv4,
    AccessIPv6,
    Address,
    Certificates,
    DiskConfig,
    File,
    FlavorRef,
    Hostname,
    UserData,
)

_Reason = Annotated[str, Field(min_length=1, max_length=255)]
_KeyName = Annotated[str, Field(min_length=1, max_length=255)]


class RebootBody(RequestModel):
    type: Literal["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]


class LockBody(RequestModel):
    locked_reason: _Reason = ""


class RescueBody(RequestModel):
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")
    rescue_image_ref: UuidText = ""


class ResizeBody(RequestModel):
    flavor_ref: FlavorRef = Field(alias="flavorRef")
    disk_config: IfGiven[DiskConfig] = Field(default=None, alias="OS-DCF:diskConfig")


class HostBody(RequestModel):
    host: Fqdn | None = None


class RebuildBody(RequestModel):
    """A rebuild; absent fields stay unchanged."""

    image_ref: UuidText = Field(alias="imageRef")
    name: Name = ""
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")
    metadata: Metadata = Field(default={})
    preserve_ephemeral: BodyBool = False
    disk_config: DiskConfig = Field(default="MANUAL", alias="OS-DCF:diskConfig")
    access_ip_v4: AccessIPv4 = Field(default="", alias="accessIPv4")
    access_ip_v6: AccessIPv6 = Field(default="", alias="accessIPv6")
    personality: Annotated[list[File], Until(56)] = Field(default=[])
    description: Annotated[Description, Since(19)] = None
    key_name: Annotated[_KeyName | None, Since(54)] = None
    user_data: Annotated[UserData | None, Since(57)] = None
    trusted_image_certificates: Annotated[Certificates, Since(63)] = None
    hostname: Annotated[str, Since(90, Hostname), Since(94, Fqdn)] = ""


class LiveMigrationBody(RequestModel):
    host: Fqdn | None
    block_migration: Annotated[BodyBool | Literal["auto"], Since(1, BodyBool), Since(25)]
    disk_over_commit: Annotated[BodyBool, Since(1, is_required=True), Until(24)] = False
    force: Annotated[BodyBool, Since(30), Until(67)] = False


class EvacuateBody(RequestModel):
    host: Fqdn = ""
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")
    on_shared_storage: Annotated[BodyBool, Since(1, is_required=True), Until(13)] = Field(
        default=False, alias="onSharedStorage"
    )
    force: Annotated[BodyBool, Since(29), Until(67)] = False


class CreateImageBody(RequestModel):
    name: Name
    metadata: Metadata = Field(default={})


class CreateBackupBody(CreateImageBody):
    backup_type: str
    rotation: Annotated[BodyInteger, Field(ge=0)]


class ChangePasswordBody(RequestModel):
    admin_pass: SecretStr = Field(alias="adminPass")


class ResetStateBody(RequestModel):
    state: Literal["active", "error"]


class ConsoleOutputBody(RequestModel):
    length: Annotated[BodyInteger, Field(ge=-1)] | None = None


class VncConsoleBody(RequestModel):
    type: Literal["novnc", "xvpvnc"]


class SpiceConsoleBody(RequestModel):
    type: Literal["spice-html5"]


class SerialConsoleBody(RequestModel):
    type: Literal["serial"]


class FloatingAddressBody(RequestModel):
    address: Address


class NewFloatingAddressBody(FloatingAddressBody):
    fixed_address: Address = ""


class FixedAddressBody(RequestModel):
    address: Address


class NewFixedAddressBody(RequestModel):
    network_id: Annotated[str, Field(min_length=1, max_length=36)] | int | float = Field(alias="networkId")


class SecurityGroupBody(RequestModel):
    name: Annotated[str, Field(min_length=1)]


class UnshelveBody(RequestModel):
    availability_zone: Annotated[str | None, Since(77, Name, is_required=True), Since(91)] = None
    host: Annotated[str, Since(91)] = ""


REBOOT = Body(RebootBody, "reboot")
LOCK = Body[Any](Annotated[Any, Since(1), Since(73, LockBody | None)], "lock")
RESCUE = Body[Any](RescueBody | None, "rescue")
RESIZE = Body(ResizeBody, "resize")
MIGRATE = Body[Any](Annotated[Any, Since(1), Since(56, HostBody | None)], "migrate")
REBUILD = Body(RebuildBody, "rebuild")
LIVE_MIGRATION = Body(LiveMigrationBody, "os-migrateLive")
EVACUATE = Body(EvacuateBody, "evacuate")
CREATE_IMAGE = Body(CreateImageBody, "createImage")
CREATE_BACKUP = Body(CreateBackupBody, "createBackup")
CHANGE_PASSWORD = Body(ChangePasswordBody, "changePassword")
RESET_STATE = Body(ResetStateBody, "os-resetState")
CONSOLE_OUTPUT = Body(ConsoleOutputBody, "os-getConsoleOutput")
UNSHELVE = Body[Any](Annotated[Any, Since(1), Since(77, UnshelveBody | None)], "unshelve")
CRASH_DUMP = Body[None](None, "trigger_crash_dump")
ADD_SECURITY_GROUP = Body(SecurityGroupBody, "addSecurityGroup")
REMOVE_SECURITY_GROUP = Body(SecurityGroupBody, "removeSecurityGroup")
ADDRESSES: Mapping[str, Body[Any]] = {
    "addFloatingIp": Body(NewFloatingAddressBody, "addFloatingIp"),
    "removeFloatingIp": Body(FloatingAddressBody, "removeFloatingIp"),
    "addFixedIp": Body(NewFixedAddressBody, "addFixedIp"),
    "removeFixedIp": Body(FixedAddressBody, "removeFixedIp"),
}
VNC_CONSOLE = Body(VncConsoleBody, "os-getVNCConsole")
SPICE_CONSOLE = Body(SpiceConsoleBody, "os-getSPICEConsole")
SERIAL_CONSOLE = Body(SerialConsoleBody, "os-getSerialConsole")
