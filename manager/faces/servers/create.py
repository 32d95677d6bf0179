"""`POST /servers` (contracts/nova-rest, section 1)."""

import hashlib
import secrets
import string
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal
from uuid import uuid4

from pydantic import SecretStr
from starlette.responses import Response

from fleetlight.api.compute.flavors.conflicting_specs import check_flavor_of_server
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.compute.server_lists.shape import NEW_SERVER
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, ForbiddenError, NotSupportedError
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.api.shared.headers import TOKEN
from fleetlight.api.shared.references import named_flavor, named_keypairs
from fleetlight.cells.errors import NoValidHostError, ResourceNotFoundError
from fleetlight.cells.fan_out.quota_usage import check_new_instances, project_lock
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.errors import CellDownError
from fleetlight.manager.faces.servers.block_devices import check_block_devices
from fleetlight.manager.faces.servers.create_body import CREATE_SERVER, CreateServer, Network, NewServer, decoded
from fleetlight.manager.operations.actions.accepting import create_in_several
from fleetlight.manager.operations.actions.request_spec import hints_as_lists
from fleetlight.manager.operations.native_cells import acceptance_in
from fleetlight.manager.operations.scheduling.choose_cell import (
    CellCapacity,
    CellRequestSpec,
    is_enough,
    rank_cells,
    read_capacity,
    requested_cells,
    ways_to_place,
)
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec, demand_of, flavor_conditions

_DESCRIPTIONS_SINCE = 19
_PASSWORD_LENGTH = 12
_PASSWORD_LETTERS = string.ascii_letters + string.digits
_DEFAULT_GROUPS = ["default"]
# The servers of a request are written in one transaction, and held in memory until then.
_MOST_AT_ONCE = 1000


def given_or_new(password: SecretStr) -> str:
    """Return the password of a server for the only answer that has it; a random one if it is empty."""
    return password.get_secret_value() or "".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(_PASSWORD_LENGTH))


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of new servers. is_forced: the zone named the host, which only administrators may do."""

    zone: str | None = None
    host: str | None = None
    node: str | None = None
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A request, prepared without asking cells.

    beside: uuids of servers to share a host with. named_project_id: the project that servers in hints must have; None
        for any. cells: the present cells of those servers and of the group's members.
    values: fields of the records of the new servers.
    """

    project_id: str
    flavor: Flavor
    limits: Mapping[str, int]
    group_uuid: str | None
    beside: Collection[str]
    named_project_id: str | None
    spec: RequestSpec
    cells: CellRequestSpec
    values: Sequence[Mapping[str, Any]]


class _CellsChangedError(Exception):
    """Servers that the new ones must share a host with have moved to other cells. cells: the present ones."""

    def __init__(self, cells: CellRequestSpec) -> None:
        super().__init__()
        self.cells = cells


class ServerCreation:
    """Accepts new servers. All checks precede the first write."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "POST",
                "/servers",
                self.create,
                body=CREATE_SERVER,
                success=(202,),
                errors=(400, 403, 409, 501),
                answer=NEW_SERVER,
                gives=(TOKEN,),
            )
        ]

    async def create(self, request: ApiRequest) -> Response:
        wanted = await CREATE_SERVER.read(request)
        server = wanted.server
        request.authorize("os_compute_api:servers:create")
        target = _target(server)
        if target.is_forced:
            request.authorize("os_compute_api:servers:create:forced_host")
        elif target.host or target.node:
            request.authorize("compute:servers:create:requested_destination")
        count = _count(server)
        password = given_or_new(server.admin_pass)
        prepared = await self._access.ask(partial(self._prepare, request, wanted, target, count))
        rows: Sequence[InstanceRow] = ()
        while not rows:
            answered = await self._survey(target, prepared, count)
            try:
                rows = await self._access.act_anywhere(partial(self._accept, request, prepared, target, answered))
            except _CellsChangedError as changed:
                prepared = replace(prepared, cells=changed.cells)
        # One token per cell suffices: the cell announced its servers together, the last one last.
        await request.hand_out_token(*{row.cell_uuid: row for row in rows}.values())
        return _answer(request, server, rows, password)

    def _prepare(self, request: ApiRequest, wanted: CreateServer, target: _Target, count: int) -> _Prepared:
        """Make the checks that need no cell."""
        fleet, server = self._access.fleet, wanted.server
        project_id = request.caller.project_id
        if project_id is None:
            raise ForbiddenError("os_compute_api:servers:create")
        flavor = self._flavor(request, server.flavor_ref)
        _check_sources(server, flavor, count)
        self._access.check_image(server.image_ref)
        check_flavor_of_server(flavor)
        limits = fleet.quotas.limits(project_id)
        # Check first, so that the API does not prepare more servers than it could accept.
        check(limits, {}, {"instances": count, "metadata_items": len(server.metadata)})
        if count > _MOST_AT_ONCE:
            raise BadRequestError(f"One request can create {_MOST_AT_ONCE} servers at most; send several.")
        _check_files(server, limits)
        keypairs = named_keypairs(self._access, request, server.key_name)
        group_uuid = _group_of(wanted.scheduler_hints)
        beside, named_project_id = wanted.same_hosts, None if request.caller.is_admin else project_id
        common = _common_values(request, wanted, flavor, target) | {
            "keypairs": keypairs,
            "server_groups": [] if group_uuid is None else [group_uuid],
        }
        group = self._group(request, group_uuid)
        spec = RequestSpec(
            zone=common["pinned_availability_zone"],
            host=target.host,
            node=target.node,
            group=group,
            **flavor_conditions(fleet, common["flavor"]),
        )
        cells = requested_cells(fleet, group, beside, project_id=named_project_id)
        values = [_own_values(server, common, number, count) for number in range(count)]
        return _Prepared(project_id, flavor, limits, group_uuid, beside, named_project_id, spec, cells, values)

    async def _survey(self, target: _Target, prepared: _Prepared, count: int) -> OfCells[CellCapacity]:
        """Read the capacity of possible cells. Raises NotSupportedError, CellDownError, BadRequestError."""
        native, spec = self._access.native, prepared.spec
        cells = [cell for cell in await self._access.ask(native.cells) if not cell.disabled]
        if not cells:
            raise NotSupportedError("This fleet has no native cell that could take a new server.")
        demand = demand_of(prepared.flavor.payload())
        # The zone of a forced host need not exist.
        zone = None if target.is_forced else target.zone
        answered = await self._access.ask_until_enough(
            cells,
            lambda cell: read_capacity(native.engine(cell), cell, demand, spec, count=count, zone=zone),
            lambda surveyed: is_enough(surveyed, spec, count, prepared.cells),
        )
        surveyed = [capacity for _, capacity in answered.answers]
        if not surveyed:
            raise CellDownError(answered.down[0].name)
        _check_target(target, surveyed, answered.down)
        return answered

    def _accept(
        self, request: ApiRequest, prepared: _Prepared, target: _Target, answered: OfCells[CellCapacity]
    ) -> Sequence[InstanceRow]:
        """Write the servers to a cell. answered: possible cells. Raises _CellsChangedError if others must be asked."""
        fleet, native, values = self._access.fleet, self._access.native, prepared.values
        project_id, group_uuid, count = prepared.project_id, prepared.group_uuid, len(values)
        # Only administrators may name servers of other projects in hints; workers look these up again.
        is_by_administrator = prepared.named_project_id is None
        parameters = {
            "host": target.host,
            "node": target.node,
            "count": count,
            "is_by_administrator": is_by_administrator,
        }
        # From here on, lock the project's usage, and the group, whose members decide on the cell.
        locks = [project_lock(project_id), *([] if group_uuid is None else [f"server group {group_uuid}"])]
        with fleet.lock(*locks):
            group = self._group(request, group_uuid)
            check_new_instances(fleet, native, project_id, prepared.flavor, count)
            cells = requested_cells(fleet, group, prepared.beside, project_id=prepared.named_project_id)
            ranked = rank_cells([capacity for _, capacity in answered.answers], cells)
            if not ranked:
                if cells.only != prepared.cells.only:
                    raise _CellsChangedError(cells)
                raise ConflictError("The cell of the servers that this one has to share a host with does not answer.")
            if group is not None:
                uuids = [str(each["uuid"]) for each in values]
                try:
                    fleet.server_groups.add_members(group.uuid, uuids, limit=prepared.limits["server_group_members"])
                except ResourceNotFoundError as error:
                    raise _no_group(group.uuid) from error
            for way in ways_to_place(ranked, count, cells):
                left = iter(values)
                parts = [(acceptance_in(native, fleet, cell), list(islice(left, part))) for cell, part in way]
                # If others have taken the room meanwhile, try the next distribution.
                with suppress(NoValidHostError):
                    return create_in_several(parts, parameters, request.origin)
            return acceptance_in(native, fleet, ranked[0].cell).create(values, parameters, request.origin)

    def _flavor(self, request: ApiRequest, flavor_id: str) -> Flavor:
        flavor = named_flavor(self._access, request, flavor_id)
        if flavor.disabled:
            raise BadRequestError(f"Flavor {flavor_id} could not be found.")
        if flavor.root_gb == 0:
            request.authorize("os_compute_api:servers:create:zero_disk_flavor")
        return flavor

    def _group(self, request: ApiRequest, uuid: str | None) -> ServerGroup | None:
        if uuid is None:
            return None
        project_id = None if request.caller.is_admin else request.caller.project_id
        try:
            return self._access.fleet.server_groups.find(uuid, project_id=project_id)
        except ResourceNotFoundError as error:
            raise _no_group(uuid) from error


def _no_group(uuid: str) -> BadRequestError:
    return BadRequestError(f"Instance group {uuid} could not be found.")


def _count(server: NewServer) -> int:
    """Return the number of servers: `max_count`, all or none of which are created. Raises BadRequestError."""
    least = server.min_count or 1
    most = server.max_count or least
    if least > most:
        raise BadRequestError("min_count must be <= max_count")
    if most > 1 and server.hostname is not None:
        raise BadRequestError("Unable to allocate a single hostname to multiple instances")
    return most


def _target(server: NewServer) -> _Target:
    """Return the target of new servers. Raises BadRequestError for a contradictory one."""
    zone, host, node = server.availability_zone or None, server.host, server.hypervisor_hostname
    if zone is None or ":" not in zone:
        return _Target(zone, host, node)
    parts = zone.split(":")
    if len(parts) > len(("zone", "host", "node")):
        raise BadRequestError(f"Unable to parse availability_zone: {zone}")
    if host or node:
        raise BadRequestError("Requested host or node together with an availability zone that names one.")
    name, forced_host, forced_node = (*parts, "")[:3]
    return _Target(name or None, forced_host or None, forced_node or None, is_forced=bool(forced_host or forced_node))


def _check_sources(server: NewServer, flavor: Flavor, count: int) -> None:
    """Check image and block devices. Raises BadRequestError, and NotSupportedError for volumes."""
    if server.block_device_mapping and server.block_device_mapping_v2:
        raise BadRequestError("Using different block_device_mapping syntaxes is not allowed in the same request.")
    check_block_devices(server.block_device_mapping_v2, server.image_ref, flavor)
    if server.block_device_mapping:
        raise NotSupportedError("This fleet has no volumes: native cells have local disks only.")
    if not server.image_ref:
        raise BadRequestError("Invalid imageRef provided.")
    check_networks(server.networks, count)


def _check_files(server: NewServer, limits: Mapping[str, int]) -> None:
    """Raise QuotaExceededError for too many or too large files."""
    files = server.personality
    check(limits, {}, {"injected_files": len(files)})
    for file in files:
        check(
            limits,
            {},
            {
                "injected_file_path_bytes": len(file.path.encode()),
                "injected_file_content_bytes": len(decoded(file.contents)),
            },
        )


def _group_of(hints: Mapping[str, Any]) -> str | None:
    hint = hints.get("group")
    uuid = hint[0] if isinstance(hint, list) and hint else hint
    return str(uuid) if uuid else None


def _check_target(target: _Target, surveyed: Sequence[CellCapacity], down: Sequence[Cell]) -> None:
    """Raise BadRequestError for an unknown zone, host or node, and CellDownError if it may be in a cell of `down`."""
    if not any(now.has_zone for now in surveyed):
        raise BadRequestError("The requested availability zone is not available")
    if any(now.has_host for now in surveyed):
        return
    if down:
        raise CellDownError(down[0].name)
    if not target.is_forced:
        raise BadRequestError(f"Compute host {target.host or target.node} could not be found.")


def _common_values(request: ApiRequest, wanted: CreateServer, flavor: Flavor, target: _Target) -> dict[str, Any]:
    """Make the fields that the records of all servers of a request share."""
    server, caller = wanted.server, request.caller
    zone = None if target.is_forced else target.zone
    names = [group.name for group in server.security_groups if group.name]
    return {
        "project_id": caller.project_id,
        "user_id": caller.user_id,
        "display_description": server.name if request.minor < _DESCRIPTIONS_SINCE else server.description,
        "flavor": flavor.payload(),
        "instance_type_id": flavor.number,
        "image_ref": server.image_ref,
        "key_name": server.key_name or None,
        "user_data": server.user_data.get_secret_value() or None,
        "config_drive": "True" if server.config_drive else "",
        "metadata": dict(server.metadata),
        "tags": sorted(server.tags),
        "security_groups": [] if server.networks == "none" else names or _DEFAULT_GROUPS,
        "access_ip_v4": server.access_ip_v4 or None,
        "access_ip_v6": server.access_ip_v6 or None,
        "auto_disk_config": server.disk_config == "AUTO",
        "availability_zone": zone,
        "pinned_availability_zone": zone,
        "scheduler_hints": hints_as_lists(wanted.scheduler_hints),
        "trusted_image_certificates": server.trusted_image_certificates,
        "reservation_id": f"r-{secrets.token_hex(4)}",
    }


def _own_values(server: NewServer, common: Mapping[str, Any], number: int, count: int) -> dict[str, Any]:
    uuid = str(uuid4())
    values = {
        **common,
        "uuid": uuid,
        "launch_index": number,
        "display_name": server.name if count == 1 else f"{server.name}-{number + 1}",
        "ip_addresses": addresses_of(server.networks, uuid),
    }
    hostname = server.hostname
    return values if hostname is None else {**values, "hostname": hostname}


def _answer(request: ApiRequest, server: NewServer, rows: Sequence[InstanceRow], password: str) -> Response:
    first = rows[0]
    if server.return_reservation_id:
        return json_answer({"reservation_id": first.record["reservation_id"]}, 202)
    links = request.links.of_server(first.uuid)
    groups = [{"name": group.name} for group in server.security_groups if group.name] or [{"name": "default"}]
    document = {
        "id": first.uuid,
        "links": links,
        "OS-DCF:diskConfig": server.disk_config,
        "security_groups": groups,
        "adminPass": password,
    }
    return json_answer({"server": document}, 202, {"Location": links[0]["href"]})


def check_networks(networks: Sequence[Network] | Literal["auto", "none"], count: int) -> None:
    """Raise BadRequestError for contradictory networks, and for ports, which do not exist."""
    if isinstance(networks, str):
        return
    for network in networks:
        if network.port is not None and network.fixed_ip:
            raise BadRequestError("Specified Fixed IP cannot be used with port: the two together are not allowed.")
        if network.port is not None:
            raise BadRequestError(f"Port id {network.port} could not be found.")
        if not network.uuid:
            raise BadRequestError("Bad network format: missing 'uuid'")
        if network.fixed_ip and count > 1:
            raise BadRequestError("max_count cannot be greater than 1 if an fixed_ip is specified.")


def addresses_of(networks: Sequence[Network] | Literal["auto", "none"], instance_uuid: str) -> list[dict[str, Any]]:
    """Make simulated fixed addresses of an instance: one per network, or one in the project's network."""
    if networks == "none":
        return []
    if isinstance(networks, str) or not networks:
        return [_address("private", instance_uuid, "")]
    return [_address(f"net-{network.uuid[:8]}", instance_uuid, network.fixed_ip) for network in networks]


def _address(label: str, instance_uuid: str, wanted: str) -> dict[str, Any]:
    digest = hashlib.sha256(f"{label} {instance_uuid}".encode()).digest()
    first, second, third = digest[:3]
    address = wanted or f"10.{first}.{second}.{third % 254 + 1}"
    return {
        "label": label,
        "address": address,
        "version": 6 if ":" in address else 4,
        "mac": "fa:16:3e:" + ":".join(f"{octet:02x}" for octet in digest[3:6]),
    }
