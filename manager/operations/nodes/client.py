"""Calls of agents over HTTPS, with persistent connections; a failed call is a value.

The state of nodes is cached by fleetlight.manager.operations.nodes.rpc, and not here.
"""

import ssl
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError

from fleetlight.cells.upstream.timed_requests import HttpAnswer, TimedSecurePool, request_in_time
from fleetlight.manager.agents.errors import CertificateError
from fleetlight.manager.agents.tls import RenewedContext, TlsFiles
from fleetlight.manager.agents.wire import CALLS, PORT, UNDER_WAY
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure
from fleetlight.resources.malformed_json import MALFORMED_JSON

_log = structlog.get_logger(__name__)

_HEADERS = {"Content-Type": "application/json"}
# Ten times the answer of a host with ten thousand guests. All nodes of a cell may answer at once.
_LARGEST_ANSWER = 8 * 1024 * 1024
# Limit on a node's error text, which goes into jobs, notifications and logs.
_LONGEST_REASON = 1000
# Idle connections kept open to one node.
_KEPT_CONNECTIONS = 4
_LOOK_INTERVAL_S = 1.0
_MALFORMED = "RPC layer error: the answer is not a list of success and payload"


class AgentClient:
    """A client for any number of threads. files: our certificate and the trusted authorities. Raises CertificateError.

    connect_timeout_s: time limit of opening a connection.
    """

    def __init__(self, files: TlsFiles, *, connect_timeout_s: float = 5.0) -> None:
        self._tls = RenewedContext(files, is_server=False)
        self._looked_at = time.monotonic()
        # The last logged fault of the files.
        self._told: str | None = None
        self._connect_timeout_s = connect_timeout_s
        self._guard = Lock()
        self._pools: dict[tuple[str, str], TimedSecurePool] = {}

    @property
    def opened_connections(self) -> int:
        """The number of connections opened so far."""
        with self._guard:
            return sum(pool.num_connections for pool in self._pools.values())

    def call(
        self,
        node: AgentNode,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult:
        """Call an agent, once, and wait for at most `timeout_s`.

        key: of a changing call; the agent carries out a key once, so the call may be repeated.
        order: the agent refuses a call on an instance after one with a higher order.
        """
        given = {"arguments": arguments, "key": key, "order": order}
        body = msgspec.json.encode({name: value for name, value in given.items() if value is not None})
        ends_s = time.monotonic() + timeout_s
        pool = self._pool(node)
        try:
            try:
                answer = self._request(pool, name, body, ends_s)
            except ProtocolError:
                # A restarted agent has closed our idle connections, so try a new one.
                answer = self._request(pool, name, body, ends_s)
        except NewConnectionError as error:
            return failure(node.name, name, f"cannot connect to {node.address}: {_reason(error)}")
        except ConnectTimeoutError:
            # Nothing was sent; the host may be off.
            return failure(node.name, name, f"cannot connect to {node.address}: no answer")
        except (TimeoutError, Urllib3TimeoutError):
            return failure(node.name, name, f"no answer within {timeout_s:g} s", is_timeout=True)
        except (HTTPError, OSError) as error:
            # The call may have arrived, except if the certificate is another node's.
            return failure(
                node.name,
                name,
                f"the connection to {node.address} failed: {_reason(error)}",
                is_timeout=not isinstance(_cause(error), ssl.SSLCertVerificationError),
            )
        if answer.status == UNDER_WAY:
            return NodeResult(node.name, name, fail_msg="the call is under way", is_timeout=True, is_under_way=True)
        return _read(node.name, name, answer.body)

    def close(self) -> None:
        with self._guard:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()

    def _pool(self, node: AgentNode) -> TimedSecurePool:
        now = time.monotonic()
        with self._guard:
            if now - self._looked_at >= _LOOK_INTERVAL_S:
                self._looked_at = now
                self._renew()
            pool = self._pools.get((node.name, node.address))
            if pool is None:
                parts = urlsplit(f"//{node.address}")
                pool = TimedSecurePool(
                    parts.hostname or "",
                    parts.port or PORT,
                    maxsize=_KEPT_CONNECTIONS,
                    ssl_context=self._tls.context,
                    # The certificate names the node instead of its address.
                    server_hostname=node.name,
                )
                self._pools[node.name, node.address] = pool
            return pool

    def _renew(self) -> None:
        reason = None
        try:
            self._tls.renew()
        except CertificateError as error:
            # Only one of both files may be written yet.
            reason = str(error)
            if reason != self._told:
                _log.warning("nodes.certificate_unusable", reason=reason)
        self._told = reason

    def _request(self, pool: TimedSecurePool, name: str, body: bytes, ends_s: float) -> HttpAnswer:
        """Send a request. Raises the errors of `request_in_time`."""
        return request_in_time(
            pool,
            "POST",
            CALLS + name,
            _HEADERS,
            body,
            ends_s=ends_s,
            largest_bytes=_LARGEST_ANSWER,
            connect_timeout_s=self._connect_timeout_s,
        )


def _read(node: str, call: str, text: bytes) -> NodeResult:
    """Convert an answer to a result."""
    try:
        data = msgspec.json.decode(text)
    except MALFORMED_JSON:
        return failure(node, call, _MALFORMED)
    match data:
        case [True, payload]:
            return NodeResult(node, call, data=data, payload=payload)
        case [False, str(reason)]:
            return failure(node, call, _printable(reason), data)
        case _:
            return failure(node, call, _MALFORMED, data)


def _printable(reason: str) -> str:
    """Return a reason in one line without control characters, which could break databases and terminals."""
    shown = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
    return "".join(each if each.isprintable() else " " for each in shown)


def _reason(error: Exception) -> str:
    """Return the reason of an error, without representations of objects."""
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """Return the original cause of an error."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return error
