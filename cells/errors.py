"""Errors of cells.

CellError
├── CellUnreachableError     the cell did not answer, or not in time; other cells are not affected
│   ├── UnreadableRowError       one of its rows is damaged; code that needs that row treats the cell as down
│   └── CellHangsError           it hung before, and is not queried until it answers a probe
├── CommitLogError           the log of a cell's database cannot be read, or lacks changes
├── UpstreamError            the compute API of other software does not answer, or not as one should
├── FleetUnreachableError    the fleet database did not answer
│   └── FleetUnusableError       it is another database, or lacks tables, so that an operator must act
├── NewerTablesError         a newer version of this program has upgraded the database
├── MixedTablesError         a backup was restored over tables of a newer version
├── DatabaseUrlError         the configured URL is not that of a usable database
├── UnknownCellError         no cell with that name or uuid
├── CellConflictError        a cell with that name exists, and is another one
├── CellInUseError           a cell that is not disabled, or is still being relayed, cannot be removed
├── InvalidValueError        the field of an instance cannot have this value
├── InstanceExistsError      an instance with that uuid exists already
├── InstanceNotFoundError    no such instance, or it is deleted
├── ChangeNotFoundError      the instance never had that revision
├── PastNotKeptError         the cell no longer knows its instances as of that moment
├── HostNotFoundError        no such host, service or node
├── HostInUseError           instances use the host, so it cannot be removed, or change its zone
├── ZoneTakenError           the host is in another zone already
├── AggregateInUseError      the aggregate has hosts, so it cannot be removed
├── ResourceNotFoundError    no such flavor, key pair, server group …
├── ResourceExistsError      such a flavor, key pair … exists already
├── QuotaExceededError       a project would have more than its quota allows
├── InvalidKeyError          the text is not a key of its type
├── NoValidHostError         no host may take the instance and has room for it
│   └── MaxRetriesExceededError  one had, but it failed, and so did every alternate
├── SupersededError          an action was given up for another one
├── WorkRefusedError         such work on the index runs already, or too much of it waits
├── NotResizedError          there is no resize to confirm or to revert
└── StateConflictError       the instance cannot do this now
    ├── InvalidTransitionError   its state does not allow the operation
    ├── InstanceLockedError      its owner or an administrator has locked it
    ├── InstanceNotReadyError    it is on no host
    ├── InstanceOfflineError     an operator has marked it offline: it is not to run
    └── MirroredDisksError       its disks are on two nodes, which only Ganeti's operations move
"""

from collections.abc import Sequence

from fleetlight.resources.suggestions import did_you_mean


class CellError(Exception):
    """Base of the errors of cells."""


class CellUnreachableError(CellError):
    """The cell named `cell` did not answer."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"cell '{cell}' cannot be reached: {reason}")
        self.cell = cell
        self.reason = reason


class UnreadableRowError(CellUnreachableError):
    """The row of the instance `uuid` was damaged, by hand or by its disk; other rows of the cell were not."""

    def __init__(self, cell: str, uuid: str, reason: str) -> None:
        super().__init__(cell, f"its row of instance {uuid} is damaged: {reason}")
        self.uuid = uuid


class CommitLogError(CellError):
    """The log of a database server cannot be followed; the text says why, and what to do.

    is_lasting: whether this stays so until an operator changes something.
    """

    def __init__(self, reason: str, *, is_lasting: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_lasting = is_lasting


class UpstreamError(CellError):
    """The compute API of other software does not answer, or not as it should; the text shows no credentials."""


class CellHangsError(CellUnreachableError):
    """The cell was not queried, because it hangs; the log has said so when this was found."""


class FleetUnreachableError(CellError):
    """The fleet database did not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the fleet database cannot be reached: {reason}")
        self.reason = reason


class FleetUnusableError(FleetUnreachableError):
    """The configured database is no fleet database of this version; `reason` says what would be right."""

    def __init__(self, reason: str) -> None:
        CellError.__init__(self, f"the fleet database cannot be used: {reason}")
        self.reason = reason


class NewerTablesError(CellError):
    """The tables of a database have the `revision` of a newer version, which this one does not know."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"a newer version of Fleetlight has upgraded its tables (to {revision}), and there is no way back: use "
            "that version, or restore a backup from before"
        )
        self.revision = revision


class MixedTablesError(CellError):
    """A migration did not find what the tables' revision promises; `reason` is the server's message."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"tables of another version are among its own ({reason}), as after a backup that was restored over newer "
            "tables: restore it into an empty database"
        )
        self.reason = reason


class DatabaseUrlError(CellError):
    """The database at `url`, shown without its password, cannot be used."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"database URL '{url}' cannot be used: {reason}")
        self.url = url
        self.reason = reason


class UnknownCellError(CellError):
    """No cell is called `name`; `known` are the existing names."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        hint = did_you_mean(name, known) or ";"
        super().__init__(f"no cell is called '{name}'{hint} known: {', '.join(known) or 'none'}")
        self.name = name
        self.known = known


class CellConflictError(CellError):
    """A cell called `name` is registered already, with another uuid or of another kind."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a cell called '{name}' is registered already, with another uuid or of another kind")
        self.name = name


class CellInUseError(CellError):
    """The cell named `cell` cannot be removed while it is used; `reason` says what to do first."""

    def __init__(self, cell: str, reason: str) -> None:
        super().__init__(f"cell '{cell}' cannot be removed: {reason}")
        self.cell = cell
        self.reason = reason


class InvalidValueError(CellError):
    """The field `field` of an instance cannot hold `value`."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"field '{field}' cannot be {value!r}: expected {expected}")
        self.field = field
        self.value = value


class InstanceExistsError(CellError):
    """One of `uuids` belongs to an existing instance, which may be deleted; nothing was created."""

    def __init__(self, uuids: Sequence[str]) -> None:
        super().__init__(f"an instance exists already with uuid {' or '.join(uuids)}")
        self.uuids = tuple(uuids)


class ChangeNotFoundError(CellError):
    """The instance `uuid` never had a `revision` this high."""

    def __init__(self, uuid: str, revision: int) -> None:
        super().__init__(f"instance {uuid} has no revision {revision}")
        self.uuid = uuid
        self.revision = revision


class PastNotKeptError(CellError):
    """The cell has no data from before the moment `earliest`, in microseconds. reason: why."""

    def __init__(self, cell: str, earliest: int, reason: str) -> None:
        super().__init__(f"cell '{cell}' cannot tell what it was like before {earliest}: {reason}")
        self.cell = cell
        self.earliest = earliest
        self.reason = reason


class InstanceNotFoundError(CellError):
    """No live instance has this uuid."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"Instance {uuid} could not be found.")
        self.uuid = uuid


class HostNotFoundError(CellError):
    """No host, service or node is called `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Compute host {name} could not be found.")
        self.name = name


class HostInUseError(CellError):
    """Instances use the host `host`."""

    def __init__(self, host: str) -> None:
        super().__init__(f"There are instances on host {host}")
        self.host = host


class ZoneTakenError(CellError):
    """The host `host` is in the availability zone `zone` already."""

    def __init__(self, host: str, zone: str) -> None:
        super().__init__(f"Host {host} is in availability zone {zone} already")
        self.host = host
        self.zone = zone


class AggregateInUseError(CellError):
    """The aggregate `number` has hosts."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Aggregate {number} is not empty")
        self.number = number


class NoValidHostError(CellError):
    """No host may take the instance and has room for it.

    unsupported: extra specs of its flavor that no host supports, such as `hw:numa_nodes=2`.
    """

    def __init__(self, unsupported: Sequence[str] = ()) -> None:
        reason = "There are not enough hosts available."
        if unsupported:
            reason = f"No host supports these extra specs of the flavor: {', '.join(unsupported)}."
        super().__init__(f"No valid host was found. {reason}")


class MaxRetriesExceededError(NoValidHostError):
    """The hosts chosen for the instance `uuid` have failed, or could not be claimed any more."""

    def __init__(self, uuid: str) -> None:
        CellError.__init__(
            self,
            "Exceeded maximum number of retries. "
            f"Exhausted all hosts available for retrying build failures for instance {uuid}.",
        )
        self.uuid = uuid


class SupersededError(CellError):
    """An action was given up because `action` was accepted."""

    def __init__(self, action: str) -> None:
        super().__init__(f"Given up for '{action}'.")
        self.action = action


class ResourceNotFoundError(CellError):
    """No `kind` (a word such as "Flavor") is called `name`."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name} could not be found.")
        self.kind = kind
        self.name = name


class ResourceExistsError(CellError):
    """A resource with the same identity exists; the text says which."""


class QuotaExceededError(CellError):
    """`requested` more of `resource` would exceed the `limit`, of which `in_use` are taken."""

    def __init__(self, resource: str, *, requested: int, in_use: int, limit: int) -> None:
        super().__init__(
            f"Quota exceeded for {resource}: Requested {requested}, but already used {in_use} of {limit} {resource}"
        )
        self.resource = resource


class InvalidKeyError(CellError):
    """The text is not a key of its type."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Keypair data is invalid: {reason}")
        self.reason = reason


class NotResizedError(CellError):
    """There is no resize of `uuid` to confirm or to revert."""

    def __init__(self, uuid: str) -> None:
        super().__init__("Instance has not been resized.")
        self.uuid = uuid


class WorkRefusedError(CellError):
    """Work on the index is not begun now; the text says why."""


class StateConflictError(CellError):
    """The instance `uuid` cannot do this now (contracts/nova-rest, 2.3, has the forms of the text)."""

    def __init__(self, uuid: str, text: str) -> None:
        super().__init__(text)
        self.uuid = uuid


class InvalidTransitionError(StateConflictError):
    """`action` is not allowed while `attribute` (vm_state, task_state, …) is `value`."""

    def __init__(self, uuid: str, action: str, value: str | None, *, attribute: str = "vm_state") -> None:
        if value is None:
            text = f"Instance {uuid} is in an invalid state for '{action}'"
        else:
            text = f"Cannot '{action}' instance {uuid} while it is in {attribute} {value}"
        super().__init__(uuid, text)
        self.action = action
        self.attribute = attribute
        self.value = value


class MirroredDisksError(StateConflictError):
    """The disks of the instance `uuid` are mirrored, but the compute API knows only one node of an instance."""

    def __init__(self, uuid: str) -> None:
        text = f"Instance {uuid} has mirrored disks, which are moved by Ganeti's remote API (migrate, failover)"
        super().__init__(uuid, text)


class InstanceOfflineError(StateConflictError):
    """An operator has marked the instance `uuid` offline, a state that the compute API does not have."""

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, f"Instance {uuid} is marked offline, until Ganeti's remote API modifies it to be online")


class InstanceLockedError(StateConflictError):
    """Only an administrator may change a locked instance."""

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, f"Instance {uuid} is locked")


class InstanceNotReadyError(StateConflictError):
    """The instance is on no host."""

    def __init__(self, uuid: str) -> None:
        super().__init__(uuid, f"Instance {uuid} is not ready")
