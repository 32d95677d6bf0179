"""What can go wrong between an event and its readers.

NotificationError
├── EnvelopeError              not a notification as oslo.messaging sends them, or one that cannot be sent
│   └── UnversionedError       its payload is no object, which is for other readers
├── PayloadError               a field is missing or has a wrong value; `problems` names each
├── UnknownPayloadError        no payload is registered under this namespace and name
├── UnsupportedVersionError    a major version of a payload that is not read here
├── ProducerKeyError           a text is not the key of a producer
└── BusError                   the bus cannot be used as asked: bad address, unknown kind of transport
    └── BusUnavailableError    the broker is away or did not confirm in time: trying again later may succeed
        └── MessageRefusedError  it does not take one of the messages, most likely for its size; it takes others
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong where.

    where: path of the field in the names of the wire, with the object wrappers left out: `flavor.vcpus`.
    what: what is wrong, and what would be right.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class NotificationError(Exception):
    """Base of the errors of notifications and the bus."""


class EnvelopeError(NotificationError):
    """The message is not a notification: `what` is wrong at `where`."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.problem = Problem(where, what)


class UnversionedError(EnvelopeError):
    """The payload of an unversioned notification is not an object but a `found`; it may be any JSON."""

    def __init__(self, event_type: str, found: str) -> None:
        super().__init__("payload", f"must be object, not {found}")
        self.event_type = event_type


class PayloadError(NotificationError):
    """The payload called `payload` does not hold what its version promises.

    problems: at least one.
    """

    def __init__(self, payload: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{payload}: " + "; ".join(map(str, problems)))
        self.payload = payload
        self.problems = tuple(problems)

    @property
    def field(self) -> str:
        """Path of the first field that is wrong."""
        return self.problems[0].where


class UnknownPayloadError(NotificationError):
    """No payload is registered as `name` in `namespace`."""

    def __init__(self, namespace: str, name: str, known: Sequence[str]) -> None:
        close = get_close_matches(name, known, n=3)
        if close:
            hint = f"did you mean {' or '.join(close)}?"
        else:
            hint = f"known there: {', '.join(known)}" if known else "nothing is known there"
        super().__init__(f"no payload '{name}' is known in namespace '{namespace}'; {hint}")
        self.namespace = namespace
        self.name = name


class UnsupportedVersionError(NotificationError):
    """The sender's `version` of a payload has another major version than the `supported` ones.

    where: path of the version on the wire; the payload may be nested in another.
    """

    def __init__(
        self, namespace: str, name: str, version: str, supported: str, *, where: str = "nova_object.version"
    ) -> None:
        major = supported.partition(".")[0]
        super().__init__(f"{namespace} {name} {version} is not supported: {supported} (any {major}.x) is read here")
        self.namespace = namespace
        self.name = name
        self.version = version
        self.supported = supported
        self.where = where


class ProducerKeyError(NotificationError):
    """The text is not a producer's key. It is not shown, since it may be a key that was copied badly."""

    def __init__(self) -> None:
        super().__init__("this is not the key of a producer as `fleetlight accounts producer` makes it")


class BusError(NotificationError):
    """The bus cannot be used as asked."""


class BusUnavailableError(BusError):
    """The broker at `address` (without password) cannot be used now."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"bus {address} is unavailable: {reason}")
        self.address = address
        self.reason = reason


class MessageRefusedError(BusUnavailableError):
    """The broker closed the channel because of a message that it never takes, for example above `max_message_size`."""
