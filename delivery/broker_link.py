"""The connection to a broker that a user has chosen, and that therefore is not trusted.

The addresses of its name are checked, and one of the checked ones is used, so that a later change of the name has no
effect (DNS rebinding). Little is read from the broker, and none of its text is passed on.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from errno import EHOSTUNREACH, ENETUNREACH
from itertools import islice
from socket import SHUT_RDWR, SOCK_STREAM, gaierror, getaddrinfo, socket
from typing import Any

import structlog
from amqp import Connection, Message  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.exceptions import AMQPError, NotFound, RecoverableConnectionError, UnexpectedFrame  # type: ignore[import-untyped]
from amqp.transport import SSLTransport, TCPTransport  # type: ignore[import-untyped]
from pydantic import SecretStr

from fleetlight.api.subscriptions.brokers import BrokerAddress
from fleetlight.api.subscriptions.events import CONTENT_TYPE, Event
from fleetlight.api.subscriptions.targets import InnerAddressError, TargetRules
from fleetlight.bus.confirms import Confirms
from fleetlight.delivery.outcomes import INNER, UNREACHABLE, UNTRUSTED, Away, Delivered, Outcome, Refused

_log = structlog.get_logger(__name__)

# Connecting to all addresses takes less than a broker may take for events (fleetlight.delivery.brokers).
_CONNECT_TIMEOUT_S = 4.0
_MOST_ADDRESSES = 3
_LAST_WORD_S = 1.0
# Enough besides the published messages, which come back if no queue takes them.
_MOST_READ = 65_536
_PERSISTENT = 2
_BROKE_OFF = "the connection broke off"
_ACCESS_REFUSED, _NOT_FOUND, _PRECONDITION_FAILED, _NOT_ALLOWED = 403, 404, 406, 530
_WHEN_PUBLISHING: dict[int, Outcome] = {
    _ACCESS_REFUSED: Refused("the user may not publish this event (403)"),
    _NOT_FOUND: Away("the exchange was removed (404)"),
    _PRECONDITION_FAILED: Refused("the broker takes no such message (406)"),
}
_WHEN_DECLARING: dict[int, Outcome] = {
    _ACCESS_REFUSED: Away("there is no such exchange, and the user may not make it (403)"),
}
_WHEN_CONNECTING: dict[int, Outcome] = {
    _ACCESS_REFUSED: Away("the broker refuses the user or the password (403)"),
    _NOT_ALLOWED: Away("there is no such virtual host, or the user may not use it (530)"),
}
# By class and method of AMQP, with which a broker names what it refuses.
_REFUSALS: dict[tuple[int, ...], dict[int, Outcome]] = {(60, 40): _WHEN_PUBLISHING, (40, 10): _WHEN_DECLARING}


class BlockedError(Exception):
    """The broker takes no messages from any client, for example for lack of memory or disk."""


class BrokerLink:
    """At most one connection, opened when there is something to publish. Used by one thread, except `abort`."""

    def __init__(self, address: BrokerAddress, password: SecretStr, rules: TargetRules) -> None:
        self._address = address
        self._password = password
        self._rules = rules
        self._connection: _Connection | None = None
        self._outlet: _Outlet | None = None

    def publish(self, events: Sequence[Event]) -> Sequence[Outcome]:
        """Publish events; returns the outcome of each."""
        outcomes: dict[int, Outcome] = {}
        try:
            if self._outlet is None:
                self._outlet = self._open()
            self._outlet.publish(events, outcomes)
        except Exception as error:  # noqa: BLE001  # the other side may send anything
            self.close()
            left = [place for place in range(len(events)) if place not in outcomes]
            outcome = _outcome_of(error)
            # A broker does not tell which of several messages it has refused.
            is_of_one = isinstance(outcome, Refused) and len(left) > 1
            found = self._publish_singly([events[place] for place in left]) if is_of_one else [outcome] * len(left)
            outcomes.update(zip(left, found, strict=True))
        return [outcomes[place] for place in range(len(events))]

    def close(self) -> None:
        """Close the connection; the broker has a second to answer."""
        connection, self._connection, self._outlet = self._connection, None, None
        if connection is None:
            return
        with suppress(Exception):
            if connection.connected:
                connection.used.sock.settimeout(_LAST_WORD_S)
                connection.close()
        with suppress(Exception):
            connection.collect()

    def abort(self) -> None:
        """Make the call fail that waits for the broker, in whatever thread."""
        connection = self._connection
        its_socket = None if connection is None or connection.used is None else connection.used.sock
        if its_socket is not None:
            with suppress(OSError):
                # Not the method of an SSLSocket, which would remove the encryption while the other thread uses it.
                socket.shutdown(its_socket, SHUT_RDWR)

    def _publish_singly(self, events: Sequence[Event]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for event in events:
            is_away = bool(outcomes) and isinstance(outcomes[-1], Away)
            outcomes += outcomes[-1:] if is_away else self.publish([event])
        return outcomes

    def _open(self) -> "_Outlet":
        connection, exchange = self._connect(), self._address.exchange
        try:
            connection.channel().exchange_declare(exchange, "topic", passive=True)
        except NotFound:
            connection.channel().exchange_declare(exchange, "topic", durable=True, auto_delete=False)
        return _Outlet(connection, exchange)

    def _connect(self) -> "_Connection":
        failure = OSError("the name has no address")
        found = getaddrinfo(self._address.host, self._address.port, type=SOCK_STREAM)
        for ip in islice(dict.fromkeys(str(place[0]) for *_, place in found), _MOST_ADDRESSES):
            try:
                self._rules.check_address(ip)
                self._connection = _connection(ip, self._address, self._password)
                self._connection.connect()
            except OSError as error:
                failure = error
            else:
                return self._connection
        raise failure


class _Outlet:
    """A channel with confirms on an open connection."""

    def __init__(self, connection: "_Connection", exchange: str) -> None:
        self._connection = connection
        self._exchange = exchange
        self._channel = connection.channel()
        self._confirms = Confirms()
        self._confirms.follow(self._channel)
        self._channel.events["basic_return"].add(self._on_return)
        self._returned: set[str] = set()

    def publish(self, events: Sequence[Event], outcomes: dict[int, Outcome]) -> None:
        """Publish, and store the outcome of each event by its place, even if others fail."""
        self._connection.used.room = _MOST_READ + sum(len(event.body.encode()) for event in events)
        self._returned.clear()
        begun: dict[int, int] = {}
        try:
            for place, event in enumerate(events):
                begun[self._confirms.begin()] = place
                self._send(event)
            while self._confirms.waiting:
                self._connection.drain_events()
        finally:
            answered = begun.keys() - self._confirms.waiting
            outcomes.update((begun[number], self._outcome(number, events[begun[number]])) for number in answered)

    def _send(self, event: Event) -> None:
        message = Message(
            event.body.encode(), content_type=CONTENT_TYPE, delivery_mode=_PERSISTENT, message_id=event.id
        )
        # mandatory: the broker returns a message that reaches no queue, instead of dropping it.
        self._channel.basic_publish(message, self._exchange, routing_key=event.type, mandatory=True)

    def _outcome(self, number: int, event: Event) -> Outcome:
        if number in self._confirms.refused:
            return Away("the broker did not take it (nack)")
        if event.id in self._returned:
            return Away(f"the exchange has no queue for {event.type}")
        return Delivered()

    def _on_return(self, _error: Exception, _exchange: str, _routing_key: str, message: Any) -> None:
        self._returned.add(str(message.properties.get("message_id")))


class _ReadsLittle:
    """room: the number of bytes that may still be read."""

    room = _MOST_READ

    def _read(self, size: int, initial: bool = False) -> bytes:
        self.room -= size
        if self.room < 0:
            raise UnexpectedFrame("the broker sends more than was asked for")
        read: bytes = super()._read(size, initial)  # type: ignore[misc]  # of the transport
        return read


class _Tcp(_ReadsLittle, TCPTransport):  # type: ignore[misc]
    """A transport without TLS."""


class _Tls(_ReadsLittle, SSLTransport):  # type: ignore[misc]
    """A transport with TLS."""


class _Connection(Connection):  # type: ignore[misc]
    """used: its transport, once connecting has begun."""

    used: Any = None

    def Transport(self, host: str, connect_timeout: float, ssl: object, *_timeouts: object, **options: object) -> Any:  # noqa: N802  # py-amqp calls it so
        self.used = (_Tls if ssl else _Tcp)(host, connect_timeout, ssl=ssl, **options)
        return self.used


def _connection(ip: str, address: BrokerAddress, password: SecretStr) -> _Connection:
    """A connection, not opened yet, to this IP address of the broker and no other."""
    host = f"[{ip}]" if ":" in ip else ip
    return _Connection(
        f"{host}:{address.port}",
        userid=address.user,
        password=password.get_secret_value(),
        login_method="PLAIN",
        virtual_host=address.virtual_host,
        ssl={"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": address.host} if address.is_encrypted else False,
        connect_timeout=_CONNECT_TIMEOUT_S,
        on_blocked=_on_blocked,
    )


def _on_blocked(_reason: str) -> None:
    raise BlockedError


def _outcome_of(error: Exception) -> Outcome:
    """The outcome of unconfirmed events, in words that reveal nothing of the internal network."""
    match error:
        case InnerAddressError():
            return Away(INNER)
        case ssl.SSLCertVerificationError():
            return Away(UNTRUSTED)
        case BlockedError():
            return Away("the broker takes no messages from any client now")
        case gaierror() | ConnectionRefusedError() | TimeoutError():
            return Away(UNREACHABLE)
        case OSError():
            return Away(UNREACHABLE if error.errno in {EHOSTUNREACH, ENETUNREACH} else _BROKE_OFF)
        case AMQPError() if error.method_sig is not None:
            return _refusal(tuple(error.method_sig), error.reply_code)
        case RecoverableConnectionError():
            return Away(_BROKE_OFF)
    # The other side may send anything, for which py-amqp may raise anything; it may also be our own mistake.
    _log.warning("deliverer.not_understood", exc_info=error)
    return Away("it does not speak AMQP 0-9-1")


def _refusal(method: tuple[int, ...], code: int) -> Outcome:
    known = _REFUSALS.get(method, _WHEN_CONNECTING)
    return known.get(code) or Away(f"{_BROKE_OFF} ({code})")
