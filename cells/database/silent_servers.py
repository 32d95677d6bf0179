"""Connections to PostgreSQL that give up a server which is reachable but does not answer, such as a halted one.

TCP only tells whether the machine receives data, and statement timeouts are kept by the server (docs/decisions/0005).
"""

import time
from typing import Any, ClassVar

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.errors import ConnectionTimeout
from psycopg.waiting import Ready
from sqlalchemy import Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import ConnectionPoolEntry

SILENT_AFTER_S = 15.0
"""How long a server may be silent before this checks whether it still accepts connections."""

# A shorter limit for the other open connections, once one connection was given up.
_SILENT_TOO_AFTER_S = 3.0


def limit_answers(engine: Engine, timeout_s: float | None = None) -> None:
    """Let new connections of `engine` give up a silent server: they raise OperationalError, and are closed.

    A server is silent if nothing came for SILENT_AFTER_S and it accepts no other connection. A server that does accept
    connections is busy with the query, and may take any time.
    timeout_s: no query is awaited for longer than this, whatever else the server answers.
    """

    class Connection(_AnsweringConnection):
        answer_timeout_s = timeout_s

    def connect(
        _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        try:
            connection = Connection.connect(*arguments, **options)
        except ConnectionTimeout:
            Connection.given_up_at_s = time.monotonic()
            raise
        connection.opened_with = (arguments, options)
        return connection

    event.listen(engine, "do_connect", connect)


class _AnsweringConnection(psycopg.Connection[Any]):
    """given_up_at_s: when the engine last gave up a connection, or failed to open one in time."""

    answer_timeout_s: ClassVar[float | None]
    given_up_at_s: ClassVar[float] = float("-inf")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.opened_with: tuple[list[Any], dict[str, Any]] = ([], {})
        self._answered_at_s = time.monotonic()

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        answer = super().wait(self._within_limit(gen), *arguments, **options)
        self._answered_at_s = time.monotonic()
        return answer

    def _within_limit(self, question: PQGen[RV]) -> PQGen[RV]:
        """Check the limits whenever psycopg resumes a query: when its socket is ready, and several times a second."""
        asked_s = heard_s = time.monotonic()
        deadline_s, limit_s = SILENT_AFTER_S, self.answer_timeout_s
        if self._answered_at_s < self.given_up_at_s:
            deadline_s = min(deadline_s, _SILENT_TOO_AFTER_S)
            limit_s = None if limit_s is None else min(limit_s, _SILENT_TOO_AFTER_S)
        try:
            awaited = next(question)
            while True:
                ready = yield awaited
                now_s = time.monotonic()
                if ready != Ready.NONE:
                    heard_s = now_s
                elif limit_s is not None and now_s - asked_s > limit_s:
                    self._give_up(f"it has not answered for {limit_s:g} s")
                elif now_s - heard_s > deadline_s:
                    if not self._lets_others_in():
                        self._give_up(f"it has been silent for {deadline_s:g} s and accepts no other connection")
                    heard_s, deadline_s = time.monotonic(), SILENT_AFTER_S
                awaited = question.send(ready)
        except StopIteration as answered:
            answer: RV = answered.value
            return answer

    def _give_up(self, reason: str) -> None:
        """Close the connection. Raises OperationalError."""
        type(self).given_up_at_s = time.monotonic()
        # Mark it closed, so that it is not used for another query.
        self.pgconn.finish()
        raise psycopg.OperationalError(reason)

    def _lets_others_in(self) -> bool:
        """Whether the server of this connection answers a new one, even by refusing it."""
        arguments, options = self.opened_with
        # By address, since the name may belong to another server by now.
        address = {"host": self.info.host, "hostaddr": self.info.hostaddr, "port": self.info.port}
        try:
            psycopg.connect(*arguments, **options | {key: value for key, value in address.items() if value}).close()
        except ConnectionTimeout:
            return False
        except psycopg.Error:
            return True
        return True
