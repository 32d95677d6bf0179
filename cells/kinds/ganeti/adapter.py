"""Reads a cell that is a Ganeti cluster over its remote API, and never changes it.

A cluster finds instances by uuid, or after a uuid; it has no pages, and other orders. So the adapter applies everything
else of a request to all instances of the cluster.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nsmallest
from typing import Any, TypeVar

from fleetlight.cells.errors import CellUnreachableError, UpstreamError
from fleetlight.cells.kinds.ganeti.capacity import GROUP_QUERY as CAPACITY_OF_GROUPS
from fleetlight.cells.kinds.ganeti.capacity import INSTANCE_QUERY as CAPACITY_OF_INSTANCES
from fleetlight.cells.kinds.ganeti.capacity import NODE_QUERY as CAPACITY_OF_NODES
from fleetlight.cells.kinds.ganeti.capacity import capacity_of
from fleetlight.cells.kinds.ganeti.client import Expression, GanetiApi
from fleetlight.cells.kinds.ganeti.instances import INSTANCE_QUERY, to_record
from fleetlight.cells.kinds.ganeti.values import record_of, stored
from fleetlight.cells.model import NO_INSTANCE, Cell, InstanceRow
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import Eq, keys_in
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID, Direction
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER
from fleetlight.resources.query_fields.configuration import OPERATING_SYSTEM
from fleetlight.resources.query_fields.definitions import QueryFields

_BEFORE_VARIANT = "+"
_LISTED = frozenset({"name", "valid", "variants", "parameters", "api_versions", "blacklisted", "hidden", "trusted"})


def operating_systems_of(listed: Sequence[Any]) -> Sequence[Record]:
    """Records of the operating systems. Raises UpstreamError if the answer is malformed."""
    if all(isinstance(each, str) for each in listed):
        return _named(listed)
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in listed):
        raise UpstreamError("the cluster lists an operating system that has no name")
    return [
        {name: stored(OPERATING_SYSTEM[name], value) for name, value in each.items() if name in _LISTED}
        for each in listed
    ]


def _named(names: Sequence[str]) -> Sequence[Record]:
    """Records from names alone, each with a variant if it has any; the cluster lists only those it can install."""
    variants: dict[str, list[str]] = {}
    for each in names:
        name, _, variant = each.partition(_BEFORE_VARIANT)
        variants.setdefault(name, []).extend([variant] if variant else [])
    return [{"name": name, "variants": found} for name, found in variants.items()]


def expression_of(request: PageRequest) -> Expression | None:
    """Ganeti's filter for the instances that a page may contain; None for all."""
    if (uuids := keys_in(request.filter, "uuid")) is not None:
        return ["|", *(["==", "uuid", uuid] for uuid in sorted(uuids))]
    first = request.order.keys[0]
    if request.after is not None and first.field == "uuid" and first.direction is Direction.ASC:
        return [">", "uuid", request.after[0]]
    return None


_TIMEOUT_S = 60.0
_CELL = "cell"

Result = TypeVar("Result")


class GanetiAdapter:
    """An ItemsAdapter (fleetlight.cells.model) for a cluster; thread-safe, with concurrent queries.

    timeout_s: of one query. Raises UpstreamError for an address that can never work.
    """

    def __init__(self, cell: Cell, *, timeout_s: float | None = None, clock: Clock = system_clock) -> None:
        self._cell = cell
        self._timeout_s = timeout_s or _TIMEOUT_S
        self._clock = clock
        self._idle = [self._open()]

    @property
    def cell(self) -> Cell:
        return self._cell

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        order, matches = request.order, matcher(request.filter, INSTANCE_FIELDS)
        after = None if request.after is None else order.comparable(request.after)

        def place(row: InstanceRow) -> tuple[Any, ...]:
            return order.comparable(order.values(row.record))

        rows = (row for row in self._instances(expression_of(request)) if matches(row.record))
        return nsmallest(request.limit, (row for row in rows if after is None or place(row) > after), key=place)

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        """The one request to the cluster, whose answer the adapter filters and sorts."""
        body = {"fields": INSTANCE_QUERY, "qfilter": expression_of(request)}
        return {"requests": [{"PUT /2/query/instance": body}], "filtered_in_python": True}

    def find(self, uuid: str) -> InstanceRow | None:
        return next(iter(self.read_page(PageRequest(Eq("uuid", uuid), INSTANCES_BY_UUID, 1))), None)

    def probe(self) -> None:
        """Query an instance that does not exist, by a field of the configuration, so that the cluster asks no node."""
        question = ["uuid"], ["==", "uuid", NO_INSTANCE]
        self._asking(lambda api, deadline_s: api.query("instance", *question, deadline_s))

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """As fleetlight.cells.model.ItemsAdapter; reads all items, since a cluster has few."""
        if item_type == CLUSTER:
            return [self._asking(lambda api, deadline_s: api.cluster(deadline_s))]
        known = ITEM_TYPES[item_type]
        if item_type == OPERATING_SYSTEM.name:
            return self._asking(lambda api, deadline_s: operating_systems_of(api.operating_systems(deadline_s)))
        asked = _asked_of(known, fields)
        rows = self._asking(lambda api, deadline_s: api.query(item_type, asked, None, deadline_s))
        return self._understanding(lambda: [record_of(known, row) for row in rows])

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        if item_type == OPERATING_SYSTEM.name:
            return {"requests": ["GET /2/os?bulk=1"]}
        body = {"fields": _asked_of(ITEM_TYPES[item_type], fields), "qfilter": None}
        return {"requests": [{f"PUT /2/query/{item_type}": body}]}

    def read_capacity(self) -> Sequence[NodeCapacity]:
        asked = sorted(CAPACITY_OF_INSTANCES)
        nodes = self.read_items("node", CAPACITY_OF_NODES)
        rows = self._asking(lambda api, deadline_s: api.query("instance", asked, None, deadline_s))
        groups = self.read_items("group", CAPACITY_OF_GROUPS)
        return self._understanding(lambda: capacity_of(nodes, rows, groups))

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _instances(self, wanted: Expression | None) -> Sequence[InstanceRow]:
        asked_at = self._clock()
        rows = self._asking(lambda api, deadline_s: api.query("instance", INSTANCE_QUERY, wanted, deadline_s))
        return self._understanding(lambda: self._rows(rows, asked_at))

    def _rows(self, rows: Sequence[Mapping[str, tuple[int, Any]]], asked_at: int) -> Sequence[InstanceRow]:
        records = [to_record(row) for row in rows]
        if len({record["uuid"] for record in records}) < len(records):
            raise UpstreamError("the cluster has two instances with one uuid")
        return [InstanceRow(self._cell.uuid, asked_at, record) for record in records]

    def _open(self) -> GanetiApi:
        return GanetiApi(UpstreamAddress.read(self._cell.database_url), timeout_s=self._timeout_s)

    def _asking(self, ask: Callable[[GanetiApi, float], Result]) -> Result:
        """The result of `ask`, called with a client for itself alone, and the deadline on the monotonic clock."""
        deadline_s = time.monotonic() + self._timeout_s
        try:
            api = self._idle.pop()
        except IndexError:
            api = self._understanding(self._open)
        try:
            return self._understanding(lambda: ask(api, deadline_s))
        finally:
            self._idle.append(api)

    def _understanding(self, read: Callable[[], Result]) -> Result:
        try:
            return read()
        except UpstreamError as error:
            raise CellUnreachableError(self._cell.name, str(error)) from error


def _asked_of(known: QueryFields, fields: Collection[str]) -> Sequence[str]:
    """The fields to request, including the unique one, which identifies the item of a record."""
    return sorted({*fields, known.unique} - {_CELL})
