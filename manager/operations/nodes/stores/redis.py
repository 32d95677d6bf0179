"""Node state in a Redis or Valkey that the processes of a cell share (docs/decisions/0022).

Each step is one script, which the server carries out with nothing between. What it cannot be sure of it does not have:
after a start, after a failover, and after its clock was set back everything is a miss. A change that it cannot be told
of must not be made, so a server that is away stops changes and slows reading.
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
# With another form of entries it gets another number.
_VERSION = 1
_TIMEOUT_S = 1.0
# A server that did not answer is not asked again before that: each of a thousand reads would wait for it.
_REST_S = 2.0


class RedisStore:
    """url: redis:// or rediss://, with the database. cell: its uuid; cells do not see each other.

    ttl_s: as in MemoryStore. timeout_s: how long one step may take. clock: seconds; unless given, the server's.
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
            # A connection that was idle may have been closed. Each step may be carried out twice.
            retry=Retry(NoBackoff(), 1),
        )
        self._run = self._client.register_script(_SCRIPT)
        # Braces: in a cluster of servers all keys of a cell are on one.
        self._prefix = f"fleetlight:nodes:{_VERSION}:{{{cell}}}"
        self._ttl_s = ttl_s
        self._clock = clock
        self._guard = Lock()
        self._rests_until = 0.0
        self._reason = ""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        names = list(nodes)
        # Sent together: a thousand answers, each waited for, would take as long as a call.
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
        """What the script returns. nodes: None: all. Raises StoreUnreachableError."""
        if nodes is not None and not nodes:
            return None
        return self._steps(step, [nodes], *arguments)[0]

    def _steps(self, step: str, each: Sequence[Collection[str] | None], *arguments: str | bytes | int) -> Sequence[Any]:
        """What the script returns for each of some steps, which are sent together; others may come in between.

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
    """Without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path}"
