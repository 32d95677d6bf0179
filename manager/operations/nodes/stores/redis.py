"""Node state in a Redis or Valkey that the processes of a cell share (docs/decisions/0022).

Each step is one script, which the server runs atomically. The store loses its entries whenever it may have missed a
change: after a start, a failover, or a step back of its clock. Processes must announce changes to it, so a server that
is away stops changes, and makes reads slower.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleetlight.manager.operations.nodes.errors import StoreUnreachableError
from fleetlight.manager.operations.nodes.stores.store import UNKNOWN_END_S, StateChange, StoredEntry, Ticket, new_name

_SCRIPT = files("fleetlight.manager.operations.nodes.stores").joinpath("steps.lua").read_text(encoding="utf-8")
# Increased when the form of entries changes.
_VERSION = 1
_TIMEOUT_S = 1.0
# Pause after a failed step, since each of a thousand reads would wait for the timeout.
_REST_S = 2.0


class RedisStore:
    """A store on a server. url: redis:// or rediss://, with the database. cell: uuid, which is part of all keys.

    ttl_s: after which an entry is expired; 0: never. timeout_s: of one step. clock: seconds; None: the server's clock.
    """

    def __init__(
        self,
        url: str,
        cell: str,
        ttl_s: float,
        *,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._address = _address(url)
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # Retry once, since the server may have closed an idle connection; every step may run twice.
            retry=Retry(NoBackoff(), 1),
        )
        self._run = self._client.register_script(_SCRIPT)
        # The braces keep all keys of a cell on one server of a Redis cluster.
        self._prefix = f"fleetlight:nodes:{_VERSION}:{{{cell}}}"
        self._ttl_s = ttl_s
        self._clock = clock
        self._guard = Lock()
        self._rests_until = 0.0
        self._reason = ""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        names = list(nodes)
        # One pipeline, since a thousand round trips would take as long as a call of a node.
        answers = self._steps("find", [[name] for name in names])
        return {name: self._found(*each) for name, each in zip(names, answers, strict=True) if each is not None}

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        generation, number, entry = self._step("begin_fetch", [node])
        return Ticket(generation.decode() or None, int(number)), entry

    def is_current(self, node: str, ticket: Ticket) -> bool:
        return bool(self._step("is_current", [node], ticket.generation or ""))

    def put(self, node: str, ticket: Ticket, content: bytes, age_s: float) -> bool:
        return bool(self._step("put", [node], ticket.generation or "", ticket.number, content, _ms(age_s)))

    def begin_change(self, change: StateChange) -> None:
        self._step("note_change", change.nodes, change.name, _ms(change.timeout_s + UNKNOWN_END_S))

    def end_change(self, change: StateChange, *, is_known: bool) -> None:
        if is_known:
            self._step("end_change", change.nodes, change.name)
        else:
            self._step("note_change", change.nodes, change.name, _ms(UNKNOWN_END_S))

    def drop(self, nodes: Collection[str] | None) -> None:
        self._step("drop", nodes)

    def close(self) -> None:
        self._client.close()

    def _found(self, content: bytes, age_ms: bytes) -> StoredEntry:
        age_s = float(age_ms) / 1000
        return StoredEntry(content, age_s, 0 < self._ttl_s < age_s)

    def _step(self, step: str, nodes: Collection[str] | None, *arguments: str | bytes | int) -> Any:
        """Run one step. nodes: None: all. Returns the script's value. Raises StoreUnreachableError."""
        if nodes is not None and not nodes:
            return None
        return self._steps(step, [nodes], *arguments)[0]

    def _steps(self, step: str, each: Sequence[Collection[str] | None], *arguments: str | bytes | int) -> Sequence[Any]:
        """Run several steps in one pipeline, which is not atomic; returns the script's values.

        Raises StoreUnreachableError.
        """
        if not each:
            return []
        if time.monotonic() < self._rests_until:
            raise StoreUnreachableError(self._address, self._reason)
        now = "" if self._clock is None else _ms(self._clock())
        try:
            if len(each) == 1:
                return [self._run(self._keys(each[0]), [step, new_name(), now, *arguments])]
            with self._client.pipeline(transaction=False) as sent:
                for nodes in each:
                    self._run(self._keys(nodes), [step, new_name(), now, *arguments], client=sent)
                answers: Sequence[Any] = sent.execute()
                return answers
        except redis.RedisError as error:
            with self._guard:
                self._rests_until, self._reason = time.monotonic() + _REST_S, str(error) or type(error).__name__
            raise StoreUnreachableError(self._address, self._reason) from error

    def _keys(self, nodes: Collection[str] | None) -> list[str]:
        keys = [f"{self._prefix}:all", f"{self._prefix}:changes"]
        for node in nodes or ():
            keys += [f"{self._prefix}:node:{node}", f"{self._prefix}:changes:{node}"]
        return keys


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _address(url: str) -> str:
    """Return a URL without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
