"""Calls agents over HTTPS. Connections are kept open and used again; a call that fails is a value.

Nothing is remembered here: fleetlight.manager.operations.nodes.rpc does that.
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
# Of a host with ten thousand guests it has a tenth of that. All nodes of a cell may answer at once.
_LARGEST_ANSWER = 8 * 1024 * 1024
# Of what a node says when it fails: it goes into jobs, notifications and logs.
_LONGEST_REASON = 1000
# Of one node, open and idle; more are closed after their call.
_KEPT_CONNECTIONS = 4
_LOOK_INTERVAL_S = 1.0
_MALFORMED = "RPC layer error: the answer is not a list of success and payload"


class AgentClient:
    """May be used by any number of threads. files: our certificate, and the authorities that we trust. Raises
    CertificateError.

    connect_timeout_s: how long a node may take to accept a connection.
    """

    def __init__(self, files: TlsFiles, *, connect_timeout_s: float = 5.0) -> None:
        self._tls = RenewedContext(files, is_server=False)
        self._looked_at = time.monotonic()
        # What was wrong with the files at the last look.
        self._told: str | None = None
        self._connect_timeout_s = connect_timeout_s
        self._guard = Lock()
        self._pools: dict[tuple[str, str], TimedSecurePool] = {}

    @property
    def opened_connections(self) -> int:
        """How many connections were opened so far."""
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

        key: of a call that changes something; the agent carries out the same key once, so it may be called again.
        order: a number; a call on an instance is refused when one with a higher one was made.
        """
        given = {"arguments": arguments, "key": key, "order": order}
        body = msgspec.json.encode({name: value for name, value in given.items() if value is not None})
        ends_s = time.monotonic() + timeout_s
        pool = self._pool(node)
        try:
            try:
                answer = self._request(pool, name, body, ends_s)
            except ProtocolError:
                # An agent that has started again has closed the connections that we keep.
                answer = self._request(pool, name, body, ends_s)
        except NewConnectionError as error:
            return failure(node.name, name, f"cannot connect to {node.address}: {_reason(error)}")
        except ConnectTimeoutError:
            # Nothing was sent: as of a host that is off, which answers nothing at all.
            return failure(node.name, name, f"cannot connect to {node.address}: no answer")
        except (TimeoutError, Urllib3TimeoutError):
            return failure(node.name, name, f"no answer within {timeout_s:g} s", is_timeout=True)
        except (HTTPError, OSError) as error:
            # Whether it got there is not known, except where the certificate is that of another node.
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
                    # The certificate names the node, wherever it is.
                    server_hostname=node.name,
                )
                self._pools[node.name, node.address] = pool
            return pool

    def _renew(self) -> None:
        reason = None
        try:
            self._tls.renew()
        except CertificateError as error:
            # Of the two files one may be written already.
            reason = str(error)
            if reason != self._told:
                _log.warning("nodes.certificate_unusable", reason=reason)
        self._told = reason

    def _request(self, pool: TimedSecurePool, name: str, body: bytes, ends_s: float) -> HttpAnswer:
        """Raises as `request_in_time`."""
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
    """The result that an answer means."""
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
    """One line of it: no database keeps a zero character, and no terminal obeys a host."""
    shown = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."
    return "".join(each if each.isprintable() else " " for each in shown)


def _reason(error: Exception) -> str:
    """What happened, without the objects that it happened to."""
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """What began it."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    return error
