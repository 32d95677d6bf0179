"""Checks of parameters set on a cluster, a group or a node, and their merge over the previous ones.

The word `default` removes a value. As in Ganeti, numbers and booleans may be texts, and sizes may have a unit.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.opcodes.instance_parameters import BackendParameters
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.cluster_parameters import (
    DISK_DEFAULTS,
    DISK_TEMPLATES,
    HYPERVISOR_DEFAULTS,
    POLICY_DEFAULTS,
    Parameters,
)
from fleetlight.resources.query_fields.parameters import BACKEND_PARAMETERS, NODE_PARAMETERS
from fleetlight.resources.units import MIB_IN, MOST_EXACT

NIC_MODES = ("bridged", "routed", "openvswitch")
_DEFAULT = "default"
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SIZE = re.compile(r"([0-9]{1,9})(?:\.[0-9]+)?\s*(m|g|t)?(?:i?b)?", re.IGNORECASE)
_RIGHT = {
    Kind.BOOL: "true or false",
    Kind.NUMBER: "a whole number",
    Kind.UNIT: "a size in MiB, or with a unit",
    Kind.FLOAT: "a number",
    Kind.OTHER: "a text",
}
_KINDS_OF_TYPES = {bool: Kind.BOOL, int: Kind.NUMBER, str: Kind.OTHER}
_NIC_PARAMETERS = {"mode": Kind.OTHER, "link": Kind.OTHER, "vlan": Kind.OTHER}
_LIMITS = frozenset(POLICY_DEFAULTS["std"])
_RATIOS = frozenset({"spindle-ratio", "vcpu-ratio"})


_MAC_PREFIX = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){2}")


def check_mac_prefix(prefix: str | None) -> None:
    """Raises PrerequisiteError for an invalid prefix of MAC addresses."""
    if prefix is not None and not _MAC_PREFIX.fullmatch(prefix):
        raise wrong(f"Invalid MAC address prefix '{prefix}'")


def wrong(text: str) -> PrerequisiteError:
    """Return the error of invalid input."""
    return PrerequisiteError(text, Reason.WRONG_INPUT)


def node_parameters(own: Parameters, given: Parameters) -> Parameters:
    """Merge `given` over the parameters of a node, group or cluster. Raises PrerequisiteError for invalid ones."""
    return _merged(own, given, NODE_PARAMETERS, "node")


def backend_parameters(own: Parameters, given: Parameters) -> Parameters:
    """Merge backend parameters; `memory` sets minmem and maxmem. Raises PrerequisiteError for invalid ones."""
    memory = given.get("memory")
    named = {name: value for name, value in given.items() if name != "memory"}
    if memory is not None:
        named = {"minmem": memory, "maxmem": memory, **named}
    merged = _merged(own, named, BACKEND_PARAMETERS, "backend")
    try:
        BackendParameters.model_validate(merged)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False, include_input=False)
        raise wrong(f"Invalid backend parameters: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return merged


def check_memory(backend: Parameters) -> None:
    """Raises PrerequisiteError if minmem is more than maxmem. backend: all backend parameters."""
    if backend["minmem"] > backend["maxmem"]:
        raise wrong(f"minmem ({backend['minmem']}) is more than maxmem ({backend['maxmem']})")


def hypervisor_parameters(hypervisor: str, own: Parameters, given: Parameters) -> Parameters:
    """Merge the parameters of one hypervisor. Raises PrerequisiteError for an unknown hypervisor or parameter."""
    if hypervisor not in HYPERVISOR_DEFAULTS:
        raise wrong(f"Unknown hypervisor '{hypervisor}'; there is: {', '.join(HYPERVISOR_DEFAULTS)}")
    return _merged(own, given, _kinds(HYPERVISOR_DEFAULTS[hypervisor]), f"hypervisor '{hypervisor}'")


def nic_parameters(own: Parameters, given: Parameters) -> Parameters:
    """Merge the parameters of network interfaces. Raises PrerequisiteError for invalid ones, such as unknown modes."""
    merged = _merged(own, given, _NIC_PARAMETERS, "network interface")
    if (mode := merged.get("mode", NIC_MODES[0])) not in NIC_MODES:
        raise wrong(f"Invalid mode of a network interface '{mode}'; there is: {', '.join(NIC_MODES)}")
    return merged


def disk_parameters(own: Parameters, given: Parameters) -> Parameters:
    """Merge parameters by disk template. Raises PrerequisiteError for an unknown template or parameter."""
    merged = dict(own)
    for template, values in given.items():
        if template not in DISK_DEFAULTS:
            raise wrong(f"Unknown disk template '{template}'; there is: {', '.join(DISK_TEMPLATES)}")
        kinds = _kinds(DISK_DEFAULTS[template])
        merged[template] = _merged(own.get(template, {}), object_of(values, template), kinds, f"disk ({template})")
    return merged


def instance_policy(own: Parameters, given: Parameters, *, is_of_group: bool) -> Parameters:
    """Merge instance policies; groups may not set `std`. Raises PrerequisiteError for invalid keys and values."""
    merged = dict(own)
    for name, value in given.items():
        if value in (None, _DEFAULT):
            merged.pop(name, None)
        elif name == "minmax":
            merged[name] = [_bounds(each) for each in _list_of(value, name)]
        elif name == "std" and not is_of_group:
            merged[name] = _limits(value, name)
        elif name in _RATIOS:
            merged[name] = _number(value, name)
        elif name == "disk-templates":
            merged[name] = _templates(_list_of(value, name))
        else:
            raise wrong(f"Invalid keys in ipolicy: '{name}'")
    return merged


def object_of(value: Any, what: str) -> Parameters:
    """Return `value`. Raises PrerequisiteError if it is no object."""
    if not isinstance(value, Mapping):
        raise wrong(f"Parameters of '{what}' have to be an object, not {shown(value)}")
    return value


def _kinds(defaults: Parameters) -> Mapping[str, Kind]:
    return {name: _KINDS_OF_TYPES[type(value)] for name, value in defaults.items()}


def _merged(own: Parameters, given: Parameters, kinds: Mapping[str, Kind], what: str) -> Parameters:
    merged = dict(own)
    for name, value in given.items():
        if name not in kinds:
            raise wrong(f"Unknown {what} parameter '{name}'")
        if value == _DEFAULT:
            merged.pop(name, None)
        else:
            merged[name] = _value(value, kinds[name], name)
    return merged


def _value(value: Any, kind: Kind, name: str) -> Any:
    text = value.strip().lower() if isinstance(value, str) else None
    match kind:
        case Kind.BOOL if isinstance(value, bool):
            return value
        case Kind.BOOL if text in _TRUE + _FALSE:
            return text in _TRUE
        case Kind.NUMBER | Kind.UNIT if (
            isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_EXACT
        ):
            return value
        case Kind.NUMBER if text is not None and re.fullmatch(r"-?[0-9]{1,15}", text):
            return int(text)
        case Kind.UNIT if text is not None and (size := _SIZE.fullmatch(text)) is not None:
            return int(size[1]) * MIB_IN[size[2] or "m"]
        case Kind.FLOAT if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_EXACT:
            return _real(value)
        case Kind.OTHER if isinstance(value, str):
            return value
        case Kind.OTHER if value is False:
            # Ganeti's clients send False to clear a text.
            return ""
    raise wrong(invalid(name, value, _RIGHT[kind]))


def _bounds(value: Any) -> Parameters:
    bounds = object_of(value, "minmax")
    if set(bounds) != {"min", "max"}:
        raise wrong("Each member of ipolicy minmax has to have 'min' and 'max'")
    low, high = _limits(bounds["min"], "min"), _limits(bounds["max"], "max")
    for name in sorted(_LIMITS):
        if low[name] > high[name]:
            raise wrong(f"Invalid specification of min and max values for {name}: {low[name]} > {high[name]}")
    return {"min": low, "max": high}


def _limits(value: Any, what: str) -> Mapping[str, int]:
    limits = object_of(value, what)
    if set(limits) != _LIMITS:
        raise wrong(f"ipolicy {what} has to have: {', '.join(sorted(_LIMITS))}")
    return {name: _value(limit, Kind.NUMBER, name) for name, limit in limits.items()}


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < MOST_EXACT:
        raise wrong(f"Invalid value {shown(value)} for {name} in ipolicy")
    return _real(value)


def _real(value: float) -> float:
    """Convert a whole number to int, as Ganeti stores and shows it."""
    return int(value) if float(value).is_integer() else value


def _list_of(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise wrong(f"ipolicy {name} has to be a list with members, not {shown(value)}")
    return value


def _templates(names: list[Any]) -> list[Any]:
    if unknown := [name for name in names if name not in DISK_TEMPLATES]:
        raise wrong(f"Invalid disk template in ipolicy: {shown(unknown[0])}")
    return names


def invalid(name: str, value: Any, right: str) -> str:
    """Return the error text for the value of a parameter. right: describes valid values."""
    return f"Invalid value {shown(value)} for parameter '{name}': it has to be {right}"


def shown(value: Any) -> str:
    """Return a given value as errors show it, in at most 100 characters."""
    return repr(value)[:100]
