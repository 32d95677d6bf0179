"""`GET /fleetlight/allocation-candidates`: hosts of the fleet with room for an amount, in the form of placement."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError
from fleetlight.api.http.shapes import OBJECT, ListOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.scheduling.host_candidates import HostCandidate, read_candidates
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import resources_of
from fleetlight.resources.amount import Amount

CANDIDATES = ApiOperation(
    "GET",
    "/fleetlight/allocation-candidates",
    Shape({"allocation_requests": ListOf(OBJECT), "provider_summaries": OBJECT}),
    query=("resources", "required", "member_of", "limit"),
    gives=(COMPLETE,),
    faults=(400, 403),
    summary="Nodes with room for an amount, the best first, in the shape of placement; for administrators",
)
_CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
_PARAMETERS = frozenset(CANDIDATES.query)
_MOST = 1000
_TRAIT = re.compile(r"!?[A-Z0-9_]{1,255}")
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class _Wanted:
    demand: Amount
    required: tuple[str, ...]
    forbidden: tuple[str, ...]
    aggregates: Sequence[Collection[str]]
    limit: int


class CandidatesHandler:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def show(self, request: ApiRequest) -> Response:
        """List candidates, without cells that do not answer, as the header says. Raises BadRequestError."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:allocation-candidates")
        wanted = _wanted(request)
        hosts = await self._access.ask(partial(self._hosts, wanted.aggregates)) if wanted.aggregates else None
        spec = RequestSpec(hosts=hosts, required_traits=wanted.required, forbidden_traits=wanted.forbidden)
        native = self._access.native
        cells = [cell for cell in await self._access.ask(native.cells) if not cell.disabled]
        answered = await self._access.ask_some(
            cells, lambda cell: read_candidates(native.engine(cell), cell, wanted.demand, spec, limit=wanted.limit)
        )
        found = list(islice(_merged(answered.answers), wanted.limit))
        document = {
            "allocation_requests": [_request(candidate, wanted.demand) for candidate in found],
            "provider_summaries": {candidate.host.node_uuid: _summary(candidate) for candidate in found},
        }
        return json_answer(document, headers=answered.headers)

    def _hosts(self, wanted: Sequence[Collection[str]]) -> tuple[str, ...]:
        """Return the hosts that are in one aggregate of each group."""
        aggregates = self._access.fleet.aggregates.all()
        groups = [
            {host for aggregate in aggregates if aggregate.uuid in uuids for host in aggregate.hosts}
            for uuids in wanted
        ]
        return tuple(sorted(set.intersection(*groups)))


def _merged(answers: Sequence[tuple[Cell, Sequence[HostCandidate]]]) -> Sequence[HostCandidate]:
    """Merge the candidates of all cells in the scheduler's order; ties within a cell keep the cell's order."""
    ranked = [
        (candidate.host.weights[:-1], number, place, candidate)
        for number, (_, candidates) in enumerate(answers)
        for place, candidate in enumerate(candidates)
    ]
    return [candidate for *_, candidate in sorted(ranked, key=lambda each: each[:3])]


def _request(candidate: HostCandidate, demand: Amount) -> Mapping[str, Any]:
    uuid = candidate.host.node_uuid
    return {"allocations": {uuid: {"resources": resources_of(demand)}}, "mappings": {"": [uuid]}}


def _summary(candidate: HostCandidate) -> Mapping[str, Any]:
    host = candidate.host
    amounts = zip(
        _CLASSES,
        (host.usable.vcpus, host.usable.memory_mib, host.usable.disk_gib),
        (host.used.vcpus, host.used.memory_mib, host.used.disk_gib),
        strict=True,
    )
    return {
        "resources": {name: {"capacity": capacity, "used": used} for name, capacity, used in amounts},
        "traits": candidate.traits,
        "parent_provider_uuid": None,
        "root_provider_uuid": host.node_uuid,
    }


def _wanted(request: ApiRequest) -> _Wanted:
    query = request.query
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        raise BadRequestError(f"{unknown[0]} is no parameter; there are {', '.join(CANDIDATES.query)}")
    traits = [trait for text in query.all("required") for trait in text.split(",")]
    for trait in traits:
        if not _TRAIT.fullmatch(trait):
            raise BadRequestError(f"required: {trait!r} is no trait such as CUSTOM_GPU, or !CUSTOM_GPU")
    return _Wanted(
        demand=_demand(query.last("resources") or ""),
        required=tuple(trait for trait in traits if not trait.startswith("!")),
        forbidden=tuple(trait.removeprefix("!") for trait in traits if trait.startswith("!")),
        aggregates=[frozenset(text.removeprefix("in:").split(",")) for text in query.all("member_of")],
        limit=_limit(query.last("limit")),
    )


def _demand(text: str) -> Amount:
    """Parse an amount such as `VCPU:2,MEMORY_MB:4096`. Raises BadRequestError."""
    amounts: dict[str, int] = {}
    for part in text.split(","):
        name, _, amount = part.partition(":")
        if name not in _CLASSES or name in amounts:
            raise BadRequestError(
                f"resources: {part!r}; as in VCPU:2,MEMORY_MB:4096, of {', '.join(_CLASSES)}, each once"
            )
        if not _is_number(amount) or int(amount) < 1:
            raise BadRequestError(f"resources: {part!r}; a number above 0 is needed")
        amounts[name] = int(amount)
    return Amount.of_gib(*(amounts.get(name, 0) for name in _CLASSES))


def _limit(text: str | None) -> int:
    if text is None:
        return _MOST
    if not _is_number(text) or not 1 <= int(text) <= _MOST:
        raise BadRequestError(f"limit: {text!r}; a number from 1 to {_MOST} is needed")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
