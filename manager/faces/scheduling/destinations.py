"""`POST /fleetlight/select-destinations`: the scheduler's choice of hosts, and claims on request.

The answer is that of contracts/nova-selection, 4. A claim lasts until
`DELETE /fleetlight/select-destinations/{instance_uuid}`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field
from sqlalchemy import Engine
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError, NotSupportedError
from fleetlight.api.http.shapes import BOOL, OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.api.shared.references import named_flavor
from fleetlight.cells.errors import CellUnreachableError, NoValidHostError, ResourceNotFoundError
from fleetlight.cells.fleet.compute.quotas import UNLIMITED
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import CellDownError
from fleetlight.manager.operations.actions.new_instance import completed_flavor
from fleetlight.manager.operations.actions.request_spec import request_spec_payload
from fleetlight.manager.operations.scheduling.announced_selection import (
    Selections,
    announced_selection,
    claimed_in,
    tried_selection,
)
from fleetlight.manager.operations.scheduling.choose_cell import (
    CellCapacity,
    CellRequestSpec,
    rank_cells,
    read_capacity,
    requested_cells,
    ways_to_place,
)
from fleetlight.manager.operations.scheduling.host_candidates import release_claims
from fleetlight.manager.operations.scheduling.request_spec import (
    RequestSpec,
    demand_of,
    flavor_conditions,
    with_members,
)
from fleetlight.notifications.payloads.selection import Selection
from fleetlight.resources.amount import Amount

_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_MOST = 1000
# A lock of the fleet: the claims of a uuid must not change while all cells are asked for them.
_CLAIMS = "claims of programs"
_Amount = Annotated[int, Field(ge=0, lt=2**31)]
_Uuid = Annotated[str, Field(pattern=_UUID)]


class Size(RequestModel):
    """The size of an instance without a flavor; memory and swap in MiB, disks in GiB."""

    vcpus: _Amount
    memory_mb: _Amount
    root_gb: _Amount
    ephemeral_gb: _Amount = 0
    swap: _Amount = 0
    extra_specs: dict[str, str] = Field(default={})


class Hints(RequestModel):
    same_host: list[_Uuid] = Field(default=[])
    different_host: list[_Uuid] = Field(default=[])
    group: _Uuid | None = None


class DestinationsBody(RequestModel):
    """The body of `POST /fleetlight/select-destinations`.

    flavor_ref or flavor: the size of the instances. instance_uuids: of instances that do not exist; random by default.
        host, node: the only permitted one, even if disabled. ignore_hosts: excluded hosts. alternates: whether to
        return alternate hosts. version: of the Selections. claim: whether to claim the chosen hosts.
    """

    num_instances: Annotated[int, Field(ge=1, le=_MOST)] = 1
    instance_uuids: Annotated[list[_Uuid], Field(min_length=1, max_length=_MOST)] | None = None
    flavor_ref: str | None = None
    flavor: Size | None = None
    availability_zone: str | None = None
    host: str | None = None
    node: str | None = None
    ignore_hosts: list[str] = Field(default=[])
    scheduler_hints: Hints = Hints()
    alternates: bool = True
    version: Literal["1.0", "1.1"] = "1.1"
    claim: bool = False


_BODY: Body[DestinationsBody] = Body(DestinationsBody)
SELECT_DESTINATIONS = ApiOperation(
    "POST",
    "/fleetlight/select-destinations",
    Shape(
        {"instance_uuids": ListOf(TEXT), "selections": ListOf(ListOf(OBJECT)), "cell": or_null(TEXT), "claimed": BOOL}
    ),
    body=_BODY,
    gives=(COMPLETE,),
    faults=(400, 403, 409, 501),
    summary="Which hosts the scheduler would choose, with alternates; claims them if asked to; for administrators",
)
RELEASE_DESTINATION = ApiOperation(
    "DELETE",
    "/fleetlight/select-destinations/{instance_uuid}",
    success=204,
    faults=(403, 404),
    summary="Give back what was claimed for an instance that there is not; for administrators",
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A checked body: `uuids` of the instances, their size, and their permitted hosts."""

    uuids: Sequence[str]
    flavor: dict[str, Any]
    demand: Amount
    spec: RequestSpec
    cells: CellRequestSpec


_Way = Sequence[tuple[Cell, Sequence[str]]]
"""A distribution of instances over cells."""

_Found = Mapping[str, Sequence[Selection]]
"""The Selections of each instance, by its uuid."""


class DestinationsHandler:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def select(self, request: ApiRequest) -> Response:
        """Choose hosts. Raises BadRequestError, ConflictError if no host is valid, CellDownError, NotSupportedError."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:select-destinations")
        body = await _BODY.read(request)
        asked = await self._access.ask(partial(self._asked, request, body))
        answered = await self._survey(asked)
        if body.claim:
            found = await self._access.act_anywhere(partial(self._claim, request, body, asked, answered))
        else:
            found = await self._try(body, asked, answered)
        answer = partial(_answer, body, asked, found, {cell.uuid: cell.name for cell, _ in answered.answers})
        return json_answer(await asyncio.to_thread(answer), headers=answered.headers)

    async def release(self, request: ApiRequest) -> Response:
        """Release a claim. Raises NotFoundError if there is none, or an instance uses it; CellDownError."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:select-destinations")
        uuid, native = str(request.http.path_params["instance_uuid"]), self._access.native
        answered = await self._access.ask_cells(lambda cell: release_claims(native.engine(cell), cell, uuid))
        if any(released for _, released in answered.answers):
            await self._access.ask(partial(self._access.fleet.server_groups.remove_claim, uuid))
            return empty_answer(204)
        if answered.down:
            raise CellDownError(answered.down[0].name)
        raise NotFoundError(f"Nothing is claimed for {uuid}, or an instance takes it up.")

    async def _survey(self, asked: _Asked) -> OfCells[CellCapacity]:
        """Read the capacity of the cells that answer in time. Raises NotSupportedError, CellDownError."""
        cells = [cell for cell in await self._access.ask(self._access.native.cells) if not cell.disabled]
        if not cells:
            raise NotSupportedError("This fleet has no native cell that could take an instance.")
        answered = await self._access.ask_some(cells, partial(self._capacity, asked))
        if not answered.answers:
            raise CellDownError(answered.down[0].name)
        return answered

    def _capacity(self, asked: _Asked, cell: Cell) -> CellCapacity:
        engine = self._access.native.engine(cell)
        return read_capacity(engine, cell, asked.demand, asked.spec, count=len(asked.uuids))

    async def _try(self, body: DestinationsBody, asked: _Asked, answered: OfCells[CellCapacity]) -> _Found:
        """Choose hosts without claims. Raises ConflictError if no host is valid, and CellUnreachableError."""
        engine, attempts = self._access.native.engine, self._max_attempts(body)
        cells = [cell for cell, _ in answered.answers]
        claimed = await self._access.ask_some(cells, lambda cell: claimed_in(engine(cell), cell, asked.uuids))
        _refuse_claimed(claimed.answers)
        for way in _ways(asked, [capacity for _, capacity in answered.answers]):
            found: dict[str, Sequence[Selection]] = {}
            with suppress(NoValidHostError):
                for cell, uuids in way:
                    ask = partial(_tried, engine, cell, uuids, asked, attempts)
                    found |= await self._access.ask_cell(cell, ask)
                return found
        raise ConflictError(str(NoValidHostError(asked.spec.unsupported)))

    def _claim(
        self, request: ApiRequest, body: DestinationsBody, asked: _Asked, answered: OfCells[CellCapacity]
    ) -> _Found:
        """Claim hosts for all instances or none. Raises ConflictError, CellUnreachableError, FleetUnreachableError."""
        fleet, group, engine = self._access.fleet, asked.spec.group, self._access.native.engine
        cells = [cell for cell, _ in answered.answers]
        surveyed = [capacity for _, capacity in answered.answers]
        with fleet.lock(_CLAIMS, *([] if group is None else [f"server group {group.uuid}"])):
            _refuse_claimed([(cell, claimed_in(engine(cell), cell, asked.uuids)) for cell in cells])
            if group is not None:
                # Read the group again, since others may have made claims for it meanwhile.
                spec = replace(asked.spec, group=self._group(group.uuid))
                asked = replace(asked, spec=with_members(spec, asked.uuids))
                surveyed = [self._capacity(asked, cell) for cell in cells]
            for way in _ways(asked, surveyed):
                with suppress(NoValidHostError):
                    return self._claim_in(way, request, body, asked)
        raise ConflictError(str(NoValidHostError(asked.spec.unsupported)))

    def _claim_in(self, way: _Way, request: ApiRequest, body: DestinationsBody, asked: _Asked) -> _Found:
        found: dict[str, Sequence[Selection]] = {}
        try:
            with ExitStack() as transactions:
                # In a fixed order of cells, to avoid deadlocks between such transactions.
                for cell, uuids in sorted(way, key=lambda part: part[0].uuid):
                    claimed = transactions.enter_context(self._claimed(request, body, asked, cell, uuids))
                    found |= zip(uuids, claimed, strict=True)
                if asked.spec.group is not None:
                    self._access.fleet.server_groups.add_members(asked.spec.group.uuid, asked.uuids, limit=UNLIMITED)
        except CellUnreachableError:
            self._give_back(way)
            raise
        return found

    def _give_back(self, way: _Way) -> None:
        """Release claims in cells whose transactions had ended when that of another cell failed."""
        for cell, uuids in way:
            engine = self._access.native.engine(cell)
            with suppress(CellUnreachableError):
                for uuid in uuids:
                    release_claims(engine, cell, uuid)
            for uuid in uuids:
                self._access.fleet.server_groups.remove_claim(uuid)

    def _claimed(
        self, request: ApiRequest, body: DestinationsBody, asked: _Asked, cell: Cell, uuids: Sequence[str]
    ) -> AbstractContextManager[Selections]:
        payload = request_spec_payload(
            self._record(request, body, uuids[0]),
            asked.flavor,
            group=asked.spec.group,
            num_instances=len(uuids),
            force_hosts=body.host,
            force_nodes=body.node,
            ignore_hosts=body.ignore_hosts or None,
        )
        return announced_selection(
            self._access.native.engine(cell),
            cell,
            uuids,
            asked.demand,
            asked.spec,
            max_attempts=self._max_attempts(body),
            payload=payload,
            request=request.origin,
        )

    def _max_attempts(self, body: DestinationsBody) -> int:
        return self._access.native.max_attempts if body.alternates else 1

    def _asked(self, request: ApiRequest, body: DestinationsBody) -> _Asked:
        fleet, uuids = self._access.fleet, _uuids(body)
        known = fleet.cells_of(uuids) if body.instance_uuids else {}
        if known:
            raise ConflictError(f"{min(known)} is an instance already: hosts are claimed for new ones only.")
        flavor = self._flavor(request, body)
        hints = body.scheduler_hints
        group = self._group(hints.group)
        spec = RequestSpec(
            zone=body.availability_zone,
            host=body.host,
            node=body.node,
            without=tuple(body.ignore_hosts),
            beside=tuple(hints.same_host),
            apart=tuple(hints.different_host),
            group=group,
            **flavor_conditions(fleet, flavor),
        )
        cells = requested_cells(fleet, group, hints.same_host, project_id=None)
        return _Asked(uuids, flavor, demand_of(flavor), with_members(spec, uuids), cells)

    def _flavor(self, request: ApiRequest, body: DestinationsBody) -> dict[str, Any]:
        if (body.flavor is None) == (body.flavor_ref is None):
            raise BadRequestError("Either flavor_ref or flavor has to be given.")
        if body.flavor_ref is not None:
            return dict(named_flavor(self._access, request, body.flavor_ref).payload())
        size = {} if body.flavor is None else body.flavor.model_dump()
        return dict(completed_flavor({"flavorid": None, **size}))

    def _group(self, uuid: str | None) -> ServerGroup | None:
        if uuid is None:
            return None
        try:
            return self._access.fleet.server_groups.find(uuid, project_id=None)
        except ResourceNotFoundError as error:
            raise BadRequestError(f"Instance group {uuid} could not be found.") from error

    def _record(self, request: ApiRequest, body: DestinationsBody, uuid: str) -> dict[str, Any]:
        """Make the record of the first instance in a cell, for the announcement."""
        return {
            "uuid": uuid,
            "project_id": request.caller.project_id,
            "user_id": request.caller.user_id,
            "pinned_availability_zone": body.availability_zone,
            "scheduler_hints": body.scheduler_hints.model_dump(exclude_unset=True),
            "security_groups": [],
        }


def _refuse_claimed(claimed: Sequence[tuple[Cell, Sequence[str]]]) -> None:
    """Raise ConflictError if some uuids have claims, as placement does for a known consumer. claimed: by cell."""
    for cell, uuids in claimed:
        if uuids:
            raise ConflictError(f"{uuids[0]} has claims in cell {cell.name} already: give them back first.")


def _ways(asked: _Asked, surveyed: Sequence[CellCapacity]) -> Iterator[_Way]:
    """Yield the distributions of the instances over cells, the best first."""
    ranked = rank_cells(surveyed, asked.cells)
    for way in ways_to_place(ranked, len(asked.uuids), asked.cells):
        uuids = iter(asked.uuids)
        yield [(cell, list(islice(uuids, count))) for cell, count in way]


def _tried(
    engine: Callable[[Cell], Engine], cell: Cell, uuids: Sequence[str], asked: _Asked, max_attempts: int
) -> _Found:
    found = tried_selection(engine(cell), cell, uuids, asked.demand, asked.spec, max_attempts=max_attempts)
    return dict(zip(uuids, found, strict=True))


def _answer(body: DestinationsBody, asked: _Asked, found: _Found, names: Mapping[str, str]) -> Mapping[str, Any]:
    """Make the answer. names: of the cells, by uuid."""
    selections = [found[uuid] for uuid in asked.uuids]
    cells = {one[0].cell_uuid for one in selections}
    # Look each node up once, since instances share hosts.
    nodes = {each.compute_node_uuid: each for one in selections for each in one}
    shown = {uuid: each.at_version(body.version).wrap() for uuid, each in nodes.items()}
    return {
        "instance_uuids": asked.uuids,
        "selections": [[shown[each.compute_node_uuid] for each in one] for one in selections],
        "cell": names[cells.pop()] if len(cells) == 1 else None,
        "claimed": body.claim,
    }


def _uuids(body: DestinationsBody) -> Sequence[str]:
    if body.instance_uuids is None:
        return [str(uuid4()) for _ in range(body.num_instances)]
    if len(set(body.instance_uuids)) < len(body.instance_uuids):
        raise BadRequestError("instance_uuids: one is there twice.")
    if body.num_instances not in {1, len(body.instance_uuids)}:
        raise BadRequestError("num_instances is not the number of instance_uuids.")
    return body.instance_uuids
