"""The parameters of OP_INSTANCE_CREATE (contracts/ganeti-rapi, 5), and the check of their combinations."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.opcodes.instance_parameters import BackendParameters, Disks, Moment, Nics, Template
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.cluster_parameters import BACKEND_DEFAULTS
from fleetlight.resources.units import MIB_PER_GIB
from fleetlight.resources.uuids import is_uuid


class InstanceCreate(OpCode):
    """Create an instance. forthcoming: reserve it only, and need nothing else. commit: make its reservation real.

    instance_name: for a commit, the name or uuid of the reservation. expires_at: end of a reservation, in seconds since
        the epoch.
    """

    OP_ID = "OP_INSTANCE_CREATE"
    ABOUT = "instance_name"

    instance_name: Annotated[str, Field(max_length=255)] | None = None
    instance_uuid: str | None = None
    mode: Literal["create", "import", "remote-import"] | None = None
    disks: Disks | None = None
    nics: Nics | None = None
    disk_template: Template | None = None
    os_type: str | None = None
    pnode: str | None = None
    snode: str | None = None
    iallocator: str | None = None
    group_name: str | None = None
    beparams: BackendParameters = Field(default_factory=BackendParameters)
    hvparams: dict[str, Any] = Field(default_factory=dict)
    osparams: dict[str, Any] = Field(default_factory=dict)
    osparams_private: dict[str, Any] | None = None
    osparams_secret: dict[str, Any] | None = None
    hypervisor: str | None = None
    start: bool = True
    no_install: bool | None = None
    wait_for_sync: bool = True
    ip_check: bool = False
    name_check: bool = False
    conflicts_check: bool = True
    ignore_ipolicy: bool = False
    opportunistic_locking: bool = False
    identify_defaults: bool = False
    force_variant: bool = False
    forthcoming: bool = False
    commit: bool = False
    expires_at: Moment | None = None
    tags: list[str] = Field(default_factory=list)
    file_driver: Literal["loop", "blktap", "blktap2"] | None = None
    file_storage_dir: str | None = None
    src_node: str | None = None
    src_path: str | None = None
    source_handshake: list[Any] | None = None
    source_x509_ca: str | None = None
    source_instance_name: str | None = None
    source_shutdown_timeout: int = Field(default=120, ge=0)
    compress: str = "none"
    instance_communication: bool = False
    helper_startup_timeout: int | None = None
    helper_shutdown_timeout: int | None = None

    @model_validator(mode="after")
    def _check(self) -> "InstanceCreate":
        if not (self.forthcoming or self.commit):
            missing = [name for name in ("instance_name", "mode", "disks", "nics") if getattr(self, name) is None]
            if missing:
                raise ValueError(f"{', '.join(missing)} missing")
        return self

    @property
    def instance(self) -> str | None:
        return self.instance_name if self.commit else None

    @property
    def demand(self) -> Amount:
        """The approximate demand on a node, with Ganeti's defaults in place of those of the cell."""
        backend = {**BACKEND_DEFAULTS, **self.beparams.values()}
        disk_mib = sum(disk.size for disk in self.disks or ())
        return Amount.of_gib(backend["vcpus"], backend["maxmem"], -(-disk_mib // MIB_PER_GIB))

    @property
    def makes_instance(self) -> bool:
        return not self.commit


def check_input(op: InstanceCreate) -> None:
    """Raises PrerequisiteError for parameters that exclude each other."""
    problems = (
        (op.forthcoming and op.commit, "forthcoming and commit exclude each other"),
        (op.forthcoming and op.mode not in {None, "create"}, f"an instance of mode '{op.mode}' cannot be reserved"),
        (op.ip_check and not op.name_check, "ip_check needs name_check"),
        (op.name_check and not op.instance_name, "an instance without a name cannot have its name checked"),
        (op.name_check, "names are not looked up here: name_check has to be off"),
        (op.mode in {"import", "remote-import"}, "the hosts of this cell cannot import instances"),
        (op.pnode is not None and op.iallocator is not None, "either a primary node or an allocator is to be given"),
        (op.instance_name == "", "an empty text is no name"),
        (op.instance_uuid is not None and not op.commit, "the cell gives a new instance its uuid"),
        (not op.commit and is_uuid(op.instance_name or ""), "a name cannot look like a UUID"),
        (op.disk_template == "diskless" and bool(op.disks), "a diskless instance has no disks"),
        (op.expires_at is not None and not op.forthcoming, "only a reservation ends by itself: expires_at is for it"),
    )
    for is_wrong, text in problems:
        if is_wrong:
            raise PrerequisiteError(text[0].upper() + text[1:], Reason.WRONG_INPUT)
