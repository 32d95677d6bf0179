"""Changes of disks and interfaces: lists of `[what, (which,) parameters]` (contracts/ganeti-rapi, 6)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.opcodes.instance_parameters import Disk, Nic, ParameterPart
from fleetlight.manager.operations.opcodes.instances.configuration import DiskValues, NicValues, new_disk
from fleetlight.manager.operations.opcodes.instances.interfaces import (
    give_up_interface,
    move_up_interfaces,
    take_interface,
    wait_for_addresses,
)
from fleetlight.resources.query_fields.instance import MAX_DISKS, MAX_NICS

Changes = Annotated[list[list[Any]], Field(max_length=64)]
P = TypeVar("P", bound=ParameterPart)

_ADD, _REMOVE, _MODIFY = "add", "remove", "modify"
_KINDS = frozenset({_ADD, _REMOVE, _MODIFY, "attach", "detach"})
_LAST = -1
_INDEX = re.compile(r"-?[0-9]{1,9}")


def changed_disks(
    disks: Sequence[DiskValues], changes: Changes, *, may_change_size: bool
) -> tuple[Sequence[DiskValues], list[list[Any]]]:
    """Return the changed disks, and the changes as pairs of name and value. Raises PrerequisiteError.

    may_change_size: whether the instance is a reservation; only OP_INSTANCE_GROW_DISK changes the size of a real disk.
    """
    found, told = list(disks), list[list[Any]]()
    for kind, which, given in _read(changes, "disk"):
        if kind == _ADD:
            disk = _parsed(Disk, given, "disk")
            at = _place(which, found, "disk", is_new=True)
            found.insert(at, new_disk(disk))
            told.append([f"disk/{at}", f"add:size={disk.size},mode={disk.mode}"])
        elif kind == _REMOVE:
            at = _place(which, found, "disk")
            found.pop(at)
            told.append([f"disk/{at}", _REMOVE])
        else:
            at = _place(which, found, "disk")
            changed = _changed_disk(given, may_change_size=may_change_size)
            found[at] = {**found[at], **changed}
            told += [[f"disk.{name}/{at}", changed.get(name, value)] for name, value in given.items()]
    if len(found) > MAX_DISKS:
        raise PrerequisiteError(f"Instance has too many disks ({len(found)} of {MAX_DISKS})", Reason.WRONG_STATE)
    return found, told


def _changed_disk(given: Mapping[str, Any], *, may_change_size: bool) -> Mapping[str, Any]:
    *others, last = kept = ["name", "spindles", *["size"] * may_change_size]
    if unknown := sorted(given.keys() - {"mode", *kept}):
        may_be = f"mode, {', '.join(others)} and {last}"
        text = f"Of a disk that is there {may_be} can be changed, and not {', '.join(unknown)}"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    disk = _parsed(Disk, {"size": 0, **given}, "disk")
    return {name: getattr(disk, name) for name in kept if name in given}


def changed_nics(
    task: Task, nics: Sequence[NicValues], changes: Changes, *, mac_prefix: str, group_uuid: str | None
) -> tuple[Sequence[NicValues], list[list[Any]]]:
    """As `changed_disks`, and take and release addresses. mac_prefix, group_uuid: see `take_interfaces`.

    Raises PrerequisiteError.
    """
    found, told = list(nics), list[list[Any]]()
    uuid = task.instance.uuid

    def take(position: int, nic: Nic) -> NicValues:
        return take_interface(task.connection, uuid, position, nic, mac_prefix=mac_prefix, group_uuid=group_uuid)

    read = list(_read(changes, "NIC"))
    if read:
        wait_for_addresses(task.connection, [*nics, *(given for _, _, given in read)])
    for kind, which, given in read:
        if kind == _ADD:
            at = _place(which, found, "NIC", is_new=True)
            if at != len(found):
                raise PrerequisiteError("A new NIC comes behind the others", Reason.WRONG_INPUT)
            found.append(take(at, _parsed(Nic, given, "NIC")))
            told.append([f"nic/{at}", f"add:mac={found[at]['mac']},ip={found[at]['ip']}"])
        elif kind == _REMOVE:
            at = _place(which, found, "NIC")
            give_up_interface(task.connection, uuid, at, found.pop(at))
            move_up_interfaces(task.connection, uuid, at)
            told.append([f"nic/{at}", _REMOVE])
        else:
            at = _place(which, found, "NIC")
            found[at] = _changed_nic(task, found[at], at, given, take)
            told += [[f"nic.{name}/{at}", value] for name, value in given.items()]
    if len(found) > MAX_NICS:
        raise PrerequisiteError(
            f"Instance has too many network interfaces ({len(found)} of {MAX_NICS})", Reason.WRONG_STATE
        )
    return found, told


def _changed_nic(
    task: Task, nic: NicValues, at: int, given: Mapping[str, Any], take: Callable[[int, Nic], NicValues]
) -> NicValues:
    """Merge the given values over an interface; it keeps its addresses unless others are given."""
    own = {name: nic.get(name) for name in ("mac", "ip", "name", "network", "vlan")}
    if "network" not in given and own["network"] is None:
        own |= {"mode": nic.get("mode"), "link": nic.get("link")}
    wanted = _parsed(Nic, {name: value for name, value in {**own, **given}.items() if value is not None}, "NIC")
    give_up_interface(task.connection, task.instance.uuid, at, nic)
    return {**take(at, wanted), "uuid": nic.get("uuid")}


def _read(changes: Changes, what: str) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield the kind, the item and the parameters of each change. Raises PrerequisiteError."""
    for change in changes:
        match change:
            case [str() as kind, dict() as given] if kind in {_ADD, _REMOVE}:
                yield kind, _LAST, given
            case [str() as kind, (int() | str()) as which, dict() as given] if kind in _KINDS:
                if kind not in {_ADD, _REMOVE, _MODIFY}:
                    text = f"{what}: hosts of this cell cannot {kind} one"
                    raise PrerequisiteError(text, Reason.WRONG_INPUT)
                yield kind, which, given
            case [(int() | str()) as which, dict() as given]:
                yield _MODIFY, which, given
            case _:
                text = f"{what}: a change is [what, parameters] or [what, which, parameters], not {change!r:.200}"
                raise PrerequisiteError(text, Reason.WRONG_INPUT)


def _place(which: Any, found: Sequence[Mapping[str, Any]], what: str, *, is_new: bool = False) -> int:
    """Return the index of an item. which: index, -1 for the last, name, or uuid. Raises PrerequisiteError."""
    if isinstance(which, str) and not _INDEX.fullmatch(which):
        for index, each in enumerate(found):
            if which in {each.get("name"), each.get("uuid")}:
                return index
        raise PrerequisiteError(f"There is no {what} '{which}'", Reason.UNKNOWN)
    index = int(which)
    if index == _LAST:
        index = len(found) if is_new else len(found) - 1
    if not 0 <= index < len(found) + is_new:
        raise PrerequisiteError(f"There is no {what} {which}: there are {len(found)}", Reason.WRONG_INPUT)
    return index


def _parsed(part: type[P], given: Mapping[str, Any], what: str) -> P:
    try:
        return part.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        text = f"{what}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
        raise PrerequisiteError(text, Reason.WRONG_INPUT) from None
