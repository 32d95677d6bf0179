"""One open connection to a cell's bus: publishes with confirms, and reads what arrives. Internal to the bus.

A link that has failed cannot be used again: abandon it and open another one.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import BoundedSemaphore
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from amqp.exceptions import (  # type: ignore[import-untyped]  # as kombu, which it belongs to
    AMQPError,
    ChannelError,
    NotFound,
    PreconditionFailed,
)
from kombu import Connection
from kombu.exceptions import KombuError

from fleetlight.bus import topology
from fleetlight.bus.amqp_transport import AmqpTransport
from fleetlight.bus.confirms import Confirms
from fleetlight.bus.external_exchange import Binding, split_address
from fleetlight.bus.memory_transport import MemoryTransport
from fleetlight.bus.read_ahead import ReadAheadTransport
from fleetlight.bus.settings import BusSettings
from fleetlight.notifications.errors import BusError, BusUnavailableError, MessageRefusedError

# The number of unconfirmed messages: 500 gave 12 times the rate of awaiting each confirm (measured).
CONFIRM_WINDOW = 500
# The in-memory bus has no disk to spill to; if the limit stops a relay, its changes stay in the outbox.
MEMORY_QUEUE_LIMIT = 20_000
_NOT_FOUND = "404"
# Class and method of AMQP that a broker names when it closes a channel because of a published message.
_BASIC_PUBLISH = (60, 40)
_ALARM = (
    ": the broker takes no messages from any producer, as while it lacks memory or disk "
    "(`rabbitmq-diagnostics check_local_alarms` on its machine says what)"
)
_ADDRESS = itemgetter("port", "userid", "password", "virtual_host")
# Of a thousand connections opened at once, brokers closed many that did not answer in time.
_opening = BoundedSemaphore(8)
_MEMORY = "memory"
_SCHEMES = ("amqp", "amqps", _MEMORY)


class Link:
    """A connection to `transport_url` with one channel, on which the cell's topology is declared.

    binding: an exchange of other software whose messages the cell's queue gets too. address: for error messages.
    Only one thread at a time may use it. Raises BusError for an address that can never work, and BusUnavailableError,
    after which only `abandon` may be called.
    """

    def __init__(
        self,
        transport_url: str,
        cell_uuid: str,
        settings: BusSettings,
        *,
        heartbeat_s: int = 0,
        binding: Binding | None = None,
        declares: bool = True,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._confirm_timeout_s = settings.confirm_timeout_s
        self.is_memory, self._connection = _connection(transport_url, settings, heartbeat_s)
        self.address = _address(self._connection, is_memory=self.is_memory)
        self._confirms = Confirms()
        self._is_blocked = False
        try:
            with _few_at_once(settings.connect_timeout_s), self.translated():
                self._connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
                # Use the open connection itself: kombu's methods would silently open another one, without our channel.
                self._raw = self._connection.connection
                self._transport = self._connection.transport
                self.channel = self._connection.channel()
                if declares or self.is_memory:
                    self._declare(cell_uuid)
                if binding is not None:
                    # On a channel of its own, since a refusal closes it.
                    find_exchange(self._transport.create_channel(self._raw), binding, self.address)
                    topology.bind(self.channel, cell_uuid, binding)
                if not self.is_memory:
                    self.channel.auto_decode = False
                    self._raw.on_blocked, self._raw.on_unblocked = self._on_blocked, self._on_unblocked
                    self._confirms.follow(self.channel)
        except BusError:
            self.abandon()
            raise

    def publish(self, exchange: str, messages: Sequence[tuple[bytes, str, dict[str, int | str]]]) -> None:
        """Publish (body, routing key, headers) in order; return when the broker has taken all."""
        for start in range(0, len(messages), CONFIRM_WINDOW):
            if self.is_memory:
                self._check_room()
            with self.translated():
                for body, routing_key, headers in messages[start : start + CONFIRM_WINDOW]:
                    self._send(exchange, body, routing_key, headers)
            self._await_confirms()

    def drain(self, timeout_s: float) -> bool:
        """Handle the next frame; returns False if none arrives within `timeout_s`. Raises BusUnavailableError."""
        try:
            self._transport.drain_events(self._raw, timeout=timeout_s)
        except TimeoutError:
            return False
        except (OSError, AMQPError) as error:
            raise self._unavailable(error) from error
        return True

    @contextmanager
    def taken(self, queue: str, limit: int, max_bytes: int) -> Iterator[list[tuple[bytes, str, dict[str, int | str]]]]:
        """Take up to `limit` messages, or `max_bytes`, from `queue`. They are removed if the block succeeds, else they
        stay.

        They use a channel of their own, since an acknowledgement on the other one can cover all earlier messages.
        """
        with self.translated():
            channel = self._transport.create_channel(self._raw) if not self.is_memory else self._connection.channel()
            if not self.is_memory:
                channel.auto_decode = False
        try:
            messages: list[Any] = []
            size = 0
            with self.translated():
                while len(messages) < limit and size < max_bytes and (message := channel.basic_get(queue)) is not None:
                    messages.append(message)
                    size += len(message.body)
            yield [(body_of(each), each.delivery_info["routing_key"], each.headers or {}) for each in messages]
            with self.translated():
                for message in messages:
                    channel.basic_ack(message.delivery_tag)
        finally:
            with self.translated():
                channel.close()

    def heartbeat(self) -> None:
        """Send a heartbeat if one is due, and detect missing ones of the broker; call this every few seconds."""
        if not self.is_memory:
            with self.translated():
                self._transport.heartbeat_check(self._raw)

    def close(self) -> None:
        """Close the connection in an orderly way."""
        try:
            with self.translated():
                self._connection.release()
        except BusUnavailableError:
            self.abandon()

    def abandon(self) -> None:
        """Drop the connection without telling the broker, which may be down."""
        self._connection.collect()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate failures in the block, from any use of `channel`, to our errors. Raises BusUnavailableError."""
        try:
            yield
        except (OSError, AMQPError, KombuError) as error:
            raise self._unavailable(error) from error

    def _declare(self, cell_uuid: str) -> None:
        try:
            topology.declare(self.channel, cell_uuid, has_quorum_queues=not self.is_memory)
        except PreconditionFailed as error:
            raise BusError(
                f"bus {self.address}: a queue exists with other arguments, most likely from an earlier version: "
                f"{error}; delete it when it is empty (rabbitmqctl delete_queue), and it is made again"
            ) from error

    def _unavailable(self, error: Exception) -> BusUnavailableError:
        is_refusal = isinstance(error, PreconditionFailed) and tuple(error.method_sig) == _BASIC_PUBLISH
        kind = MessageRefusedError if is_refusal else BusUnavailableError
        return kind(self.address, str(error) or type(error).__name__)

    def _send(self, exchange: str, body: bytes, routing_key: str, headers: dict[str, int | str]) -> None:
        message = self.channel.prepare_message(
            body,
            content_type="application/json",
            content_encoding="utf-8",
            headers=dict(headers),
            properties={"delivery_mode": 2},
        )
        # mandatory: the broker returns a message that reaches no queue, which counts as a failure, instead of dropping
        # it.
        self.channel.basic_publish(message, exchange=exchange, routing_key=routing_key, mandatory=True)
        if not self.is_memory:
            self._confirms.begin()

    def _await_confirms(self) -> None:
        deadline = monotonic() + self._confirm_timeout_s
        while self._confirms.waiting:
            remaining_s = deadline - monotonic()
            if remaining_s <= 0 or not self.drain(remaining_s):
                waiting = len(self._confirms.waiting)
                why = _ALARM if self._is_blocked else ""
                raise BusUnavailableError(
                    self.address, f"{waiting} messages were not confirmed within {self._confirm_timeout_s} s{why}"
                )
        if refused := self._confirms.refused:
            raise BusUnavailableError(self.address, f"the broker refused {len(refused)} messages")

    def _on_blocked(self, _reason: str) -> None:
        self._is_blocked = True

    def _on_unblocked(self) -> None:
        self._is_blocked = False

    def waiting(self, queue: str) -> int:
        """The number of messages in a queue that exists. Raises BusUnavailableError."""
        with self.translated():
            return int(self.channel.queue_declare(queue=queue, passive=True).message_count)

    def _check_room(self) -> None:
        if self.waiting(topology.work_queue_name(self._cell_uuid)) >= MEMORY_QUEUE_LIMIT:
            raise BusUnavailableError(self.address, f"{MEMORY_QUEUE_LIMIT} messages are waiting already")


@contextmanager
def _few_at_once(longest_wait_s: float) -> Iterator[None]:
    """Wait until few other threads open connections, but no longer than for a broker, since theirs may be down."""
    has_room = _opening.acquire(timeout=longest_wait_s)
    try:
        yield
    finally:
        if has_room:
            _opening.release()


def body_of(message: Any) -> bytes:
    """The body as it was sent; the in-memory bus keeps text as text."""
    body = message.body
    return body if isinstance(body, bytes) else str(body).encode()


def count_messages(transport_url: str, queue: str, settings: BusSettings) -> int:
    """The number of messages in `queue`; 0 if it does not exist. Raises BusError, BusUnavailableError."""
    try:
        with bare_channel(transport_url, settings) as channel:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
    except BusUnavailableError as error:
        refusal = error.__cause__
        if isinstance(refusal, ChannelError) and str(refusal.reply_code) == _NOT_FOUND:  # a string on the in-memory bus
            return 0
        raise


@dataclass(frozen=True, slots=True)
class QueueState:
    """messages: the number that wait. readers: the number of consumers, including those that stand by."""

    name: str
    messages: int
    readers: int


def queue_states(transport_url: str, names: Sequence[str], settings: BusSettings) -> Sequence[QueueState]:
    """The states of those queues that exist, over one connection. Raises BusError, BusUnavailableError."""
    found: list[QueueState] = []
    with bare_channel(transport_url, settings) as first:
        for name in names:
            # A broker closes the channel on which a missing queue was requested.
            channel = first.connection.channel()
            try:
                told = channel.queue_declare(queue=name, passive=True)
            except NotFound:
                continue
            found.append(QueueState(name, int(told.message_count), int(told.consumer_count)))
            channel.close()
    return found


def broker_version(transport_url: str, settings: BusSettings, *, has_others: bool = False) -> str:
    """The product and version of a broker, such as `RabbitMQ 3.13.7`. Raises BusError, BusUnavailableError.

    has_others: whether other software sends to it; its exchange must then exist, unless indexers declare it.
    """
    with bare_channel(transport_url, settings) as channel:
        told = channel.connection.server_properties
        address, binding = split_address(transport_url)
        if has_others and binding.durable is None:
            find_exchange(channel, binding, urlsplit(address).netloc.rpartition("@")[2])
    return f"{told.get('product', 'a broker')} {told.get('version', '')}".strip()


def find_exchange(channel: Any, binding: Binding, address: str) -> None:
    """Check that the exchange of other software exists, or declare it if the binding says how; closes the channel.

    address: for error messages. Raises BusError, BusUnavailableError.
    """
    try:
        if binding.durable is None:
            channel.exchange_declare(binding.exchange, "topic", passive=True)
        else:
            channel.exchange_declare(binding.exchange, "topic", durable=binding.durable, auto_delete=False)
    except NotFound as error:
        raise BusUnavailableError(
            address,
            f"there is no exchange '{binding.exchange}' yet: no producer has sent notifications to this broker and "
            "virtual host. Once there is one it is bound; to have it made, add durable=true to the address if "
            "amqp_durable_queues is true in nova.conf, else durable=false",
        ) from error
    except PreconditionFailed as error:
        raise BusError(
            f"bus {address}: exchange '{binding.exchange}' exists and is not what the address says with "
            f"durable={str(binding.durable).lower()}; leave that out, and it is taken as it is: {error}"
        ) from error
    else:
        channel.close()


@contextmanager
def bare_channel(transport_url: str, settings: BusSettings) -> Iterator[Any]:
    """Open a channel for the block, and declare nothing on it. Raises BusError, BusUnavailableError."""
    is_memory, connection = _connection(transport_url, settings, heartbeat_s=0)
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        yield connection.channel()
    except (OSError, AMQPError, KombuError) as error:
        address = _address(connection, is_memory=is_memory)
        raise BusUnavailableError(address, str(error) or type(error).__name__) from error
    finally:
        connection.collect()


def is_in_memory(transport_url: str) -> bool:
    """Whether this is the address of the in-memory bus, which ends with its process."""
    return _scheme(transport_url) == _MEMORY


def check_address(transport_url: str) -> None:
    """Check an address without connecting. Raises BusError, without any password, if it can never be that of a bus."""
    _connection(transport_url, BusSettings(), heartbeat_s=0)


def _tls(settings: BusSettings) -> dict[str, object]:
    """Options of py-amqp, which by default verifies a certificate but not that it belongs to this host."""
    return {
        "cert_reqs": ssl.CERT_REQUIRED,
        "ca_certs": settings.ca_certs and str(settings.ca_certs),
        "server_hostname": None,  # the host in the address
    }


def _address(connection: Any, *, is_memory: bool) -> str:
    """The address for error messages, without the password."""
    if is_memory:
        return "memory://"
    # kombu itself would show the name of the transport's class.
    scheme = "amqps" if connection.ssl else "amqp"
    return str(connection.as_uri(getfields=lambda info: (*_ADDRESS(info), scheme)))


def _scheme(transport_url: str) -> str:
    return transport_url.partition("://")[0]


def _connection(transport_url: str, settings: BusSettings, heartbeat_s: int) -> tuple[bool, Any]:
    transport_url, _ = split_address(transport_url)
    scheme = _scheme(transport_url)
    if scheme not in _SCHEMES:
        # The rest of the address may hold a password.
        raise BusError(f"no bus speaks '{scheme}': the address must begin with amqp:// or amqps://")
    is_memory = scheme == _MEMORY
    of_brokers = ReadAheadTransport if settings.read_ahead else AmqpTransport
    options = {"polling_interval": 0.02} if is_memory else {"write_timeout": settings.confirm_timeout_s}
    try:
        connection = Connection(
            "memory://localhost" if is_memory else transport_url,
            # The account in the address itself takes precedence.
            userid=settings.username,
            password=settings.password and settings.password.get_secret_value(),
            ssl=_tls(settings) if scheme == "amqps" else False,
            transport=MemoryTransport if is_memory else of_brokers,
            connect_timeout=settings.connect_timeout_s,
            heartbeat=heartbeat_s,
            transport_options=options,
        )
    except (ValueError, TypeError):
        # kombu's error may contain part of a password: one with a slash ends up as the port.
        raise BusError(
            f"the address of the bus cannot be read: it must be like {scheme}://user:password@host:5672/vhost, "
            "with special characters of the password as %XX"
        ) from None
    return is_memory, connection
