"""The parameters of an instance: set on it, taken from its flavor, or filled in from its cell's defaults.

An instance that the compute API made has the operating system of its image, and the default hypervisor of its cell.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER, DEFAULT, Parameters, system_parameters
from fleetlight.resources.query_fields.ganeti import own_value
from fleetlight.resources.query_fields.parameters import BACKEND_PARAMETERS, HYPERVISOR_PARAMETERS, IN_FLAVOR
from fleetlight.views.query2.values import (
    NO_DATA,
    SYSTEMS,
    UNAVAILABLE,
    Cell,
    Facts,
    Value,
    known,
    made_of,
    normal,
    not_had_of_cell,
    of_record,
)

_OF_SYSTEM = ("image_ref", "forthcoming", "ganeti")


def configured(make: Callable[[Facts, Parameters], Cell], *needs: str, of_cell: Collection[str] = ()) -> Value:
    """Make a value from the facts and the cell's configuration. needs: fields of the record."""

    def make_if_known(facts: Facts) -> Cell:
        cluster = facts.cell.cluster
        return not_had_of_cell(facts) if cluster is None else make(facts, cluster)

    return Value(make_if_known, frozenset(needs), of_cell=frozenset({CLUSTER, *of_cell}))


def parameter_values() -> Iterator[tuple[str, Value]]:
    """Yield the values of fields about parameters."""
    of_system = frozenset({SYSTEMS})
    yield "os", Value(_system, frozenset(_OF_SYSTEM), of_cell=of_system)
    yield "hypervisor", configured(_hypervisor, "forthcoming", "ganeti")
    yield from _of_backend()
    yield "hvparams", configured(_of_hypervisor, *_OF_SYSTEM, of_cell=of_system)
    for name in HYPERVISOR_PARAMETERS:
        yield f"hv/{name}", configured(partial(_one_of_hypervisor, name), *_OF_SYSTEM, of_cell=of_system)
    yield "osparams", configured(_of_system, *_OF_SYSTEM, of_cell=of_system)
    for name in ("custom_hvparams", "custom_osparams"):
        yield name, made_of(partial(_own_object, name), "ganeti")


def _of_backend() -> Iterator[tuple[str, Value]]:
    needs = ("flavor", "ganeti")
    yield "beparams", Value(_backend, frozenset(needs), of_cell=frozenset({CLUSTER}))
    yield "custom_beparams", made_of(lambda record: normal(_set_on(record)), *needs)
    for name in BACKEND_PARAMETERS:
        made = Value(partial(_one_of_backend, name), frozenset(needs), of_cell=frozenset({CLUSTER}))
        yield f"be/{name}", of_record(IN_FLAVOR[name]) if name in IN_FLAVOR else made


def _own_object(name: str, record: Record) -> Cell:
    return normal(own_value(record, name) or {})


def _system(facts: Facts) -> Cell:
    record = facts.record
    own = own_value(record, "os")
    if own is not None:
        return normal(own)
    if not record["image_ref"]:
        return NO_DATA if record["forthcoming"] else UNAVAILABLE
    systems = facts.cell.systems
    return not_had_of_cell(facts) if systems is None else known(systems.get(record["image_ref"]), UNAVAILABLE)


def _hypervisor(facts: Facts, cluster: Parameters) -> Cell:
    own = own_value(facts.record, "hypervisor")
    if own is not None or facts.record["forthcoming"]:
        return known(own)
    return known(next(iter(cluster["enabled_hypervisors"]), None))


def _of_hypervisor(facts: Facts, cluster: Parameters) -> Cell:
    status, hypervisor = _hypervisor(facts, cluster)
    if hypervisor is None:
        return status, None
    given = facts.cell.hypervisor_parameters(cluster, hypervisor, _system(facts)[1])
    own = own_value(facts.record, "custom_hvparams")
    return normal({**given, **own} if own else given)


def _one_of_hypervisor(name: str, facts: Facts, cluster: Parameters) -> Cell:
    status, parameters = _of_hypervisor(facts, cluster)
    return (status, None) if parameters is None else known(parameters.get(name), UNAVAILABLE)


def _of_system(facts: Facts, cluster: Parameters) -> Cell:
    own = own_value(facts.record, "custom_osparams") or {}
    return normal(system_parameters(cluster, _system(facts)[1], own))


def _set_on(record: Record) -> dict[str, Any]:
    """Return the backend parameters set on an instance; for one of the compute API, those of its flavor."""
    own: dict[str, Any] | None = own_value(record, "custom_beparams")
    of_flavor = _of_flavor(record)
    return of_flavor if own is None else {name: of_flavor.get(name, value) for name, value in own.items()}


def _of_flavor(record: Record) -> dict[str, Any]:
    flavor = record["flavor"]
    if not flavor:
        return {}
    found = {name: flavor.get(of_flavor) for name, of_flavor in IN_FLAVOR.items()}
    # A guest of the compute API always has its whole memory; Ganeti's instances have a minimum of their own.
    return found if record["ganeti"] is not None else {"minmem": flavor.get("memory_mb"), **found}


def _without_defaults(record: Record) -> dict[str, Any]:
    """Return the parameters that are set, preferring the flavor's, which both faces change."""
    return {**(own_value(record, "custom_beparams") or {}), **_of_flavor(record)}


def _backend(facts: Facts) -> Cell:
    found = _without_defaults(facts.record)
    if not found:
        return NO_DATA
    cluster = facts.cell.cluster
    if cluster is not None:
        return normal({**cluster["beparams"][DEFAULT], **found})
    return NO_DATA if facts.cell.is_configured_here else normal(found)


def _one_of_backend(name: str, facts: Facts) -> Cell:
    found = _without_defaults(facts.record)
    if found.get(name) is not None:
        return normal(found[name])
    if not found:
        return NO_DATA
    cluster = facts.cell.cluster
    return not_had_of_cell(facts) if cluster is None else known(cluster["beparams"][DEFAULT].get(name))
