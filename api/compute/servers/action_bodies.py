"""The bodies of `POST /servers/{id}/action` that are not free (contracts/nova-rest, 2.3 to 2.6)."""

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, create_model

from api.compute.servers.create_body import (
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
from api.http.body_types import Description, Fqdn, Metadata, Name, UuidText
from api.http.request_body import Body, BodyBool, BodyInteger, IfGiven, RequestModel

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
    """What every microversion has. Only what is given is set."""

    image_ref: UuidText = Field(alias="imageRef")
    name: Name = ""
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")
    metadata: Metadata = Field(default={})
    preserve_ephemeral: BodyBool = False
    disk_config: DiskConfig = Field(default="MANUAL", alias="OS-DCF:diskConfig")
    access_ip_v4: AccessIPv4 = Field(default="", alias="accessIPv4")
    access_ip_v6: AccessIPv6 = Field(default="", alias="accessIPv6")


class LiveMigrationBody(RequestModel):
    host: Fqdn | None


class _LiveMigrationUntil24(LiveMigrationBody):
    block_migration: BodyBool
    disk_over_commit: BodyBool


class _LiveMigrationSince25(LiveMigrationBody):
    block_migration: BodyBool | Literal["auto"]


class EvacuateBody(RequestModel):
    host: Fqdn = ""
    admin_pass: SecretStr = Field(default=SecretStr(""), alias="adminPass")


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
    availability_zone: str | None = None


class _UnshelveSince77(UnshelveBody):
    availability_zone: Name


class _UnshelveSince91(UnshelveBody):
    host: str = ""


class _Envelope(RequestModel):
    """A body with its one key; `content` is what stands there."""

    content: Any


def _bodies(key: str, contents: dict[int, Any]) -> Body[_Envelope]:
    """contents: the type of what the key holds, by the microversion 2.N from which it counts."""
    return Body(
        {
            since: create_model(f"{key}Since{since}", __base__=_Envelope, content=(content, Field(alias=key)))
            for since, content in contents.items()
        }
    )


def _rebuild_since(*microversions: int) -> dict[int, Any]:
    added: tuple[tuple[int, str, Any, Any], ...] = (
        (19, "description", Description, None),
        (54, "key_name", _KeyName | None, None),
        (57, "user_data", UserData | None, None),
        (63, "trusted_image_certificates", Certificates, None),
        (90, "hostname", Hostname, ""),
        (94, "hostname", Fqdn, ""),
    )
    models: dict[int, Any] = {}
    for minor in microversions:
        fields: dict[str, Any] = {
            name: (annotation, Field(default=default)) for since, name, annotation, default in added if since <= minor
        }
        if minor < _WITHOUT_FILES_SINCE:
            fields["personality"] = (list[File], Field(default=[]))
        models[minor] = create_model(f"RebuildSince{minor}", __base__=RebuildBody, **fields)
    return models


def _evacuate_until_13() -> Any:
    shared: Any = (BodyBool, Field(alias="onSharedStorage"))
    return create_model("EvacuateUntil13", __base__=EvacuateBody, on_shared_storage=shared)


def _with_force(base: type[RequestModel]) -> Any:
    return create_model(f"{base.__name__}WithForce", __base__=base, force=(BodyBool, Field(default=False)))


_WITHOUT_FILES_SINCE = 57
REBOOT = _bodies("reboot", {1: RebootBody})
LOCK = _bodies("lock", {1: Any, 73: LockBody | None})
RESCUE = _bodies("rescue", {1: RescueBody | None})
RESIZE = _bodies("resize", {1: ResizeBody})
MIGRATE = _bodies("migrate", {1: Any, 56: HostBody | None})
REBUILD = _bodies("rebuild", _rebuild_since(1, 19, 54, 57, 63, 90, 94))
LIVE_MIGRATION = _bodies(
    "os-migrateLive",
    {
        1: _LiveMigrationUntil24,
        25: _LiveMigrationSince25,
        30: _with_force(_LiveMigrationSince25),
        68: _LiveMigrationSince25,
    },
)
EVACUATE = _bodies(
    "evacuate", {1: _evacuate_until_13(), 14: EvacuateBody, 29: _with_force(EvacuateBody), 68: EvacuateBody}
)
CREATE_IMAGE = _bodies("createImage", {1: CreateImageBody})
CREATE_BACKUP = _bodies("createBackup", {1: CreateBackupBody})
CHANGE_PASSWORD = _bodies("changePassword", {1: ChangePasswordBody})
RESET_STATE = _bodies("os-resetState", {1: ResetStateBody})
CONSOLE_OUTPUT = _bodies("os-getConsoleOutput", {1: ConsoleOutputBody})
UNSHELVE = _bodies("unshelve", {1: Any, 77: _UnshelveSince77 | None, 91: _UnshelveSince91 | None})
CRASH_DUMP = _bodies("trigger_crash_dump", {17: None})
ADD_SECURITY_GROUP = _bodies("addSecurityGroup", {1: SecurityGroupBody})
REMOVE_SECURITY_GROUP = _bodies("removeSecurityGroup", {1: SecurityGroupBody})
ADDRESSES = {
    "addFloatingIp": _bodies("addFloatingIp", {1: NewFloatingAddressBody}),
    "removeFloatingIp": _bodies("removeFloatingIp", {1: FloatingAddressBody}),
    "addFixedIp": _bodies("addFixedIp", {1: NewFixedAddressBody}),
    "removeFixedIp": _bodies("removeFixedIp", {1: FixedAddressBody}),
}
VNC_CONSOLE = _bodies("os-getVNCConsole", {1: VncConsoleBody})
SPICE_CONSOLE = _bodies("os-getSPICEConsole", {1: SpiceConsoleBody})
SERIAL_CONSOLE = _bodies("os-getSerialConsole", {1: SerialConsoleBody})
