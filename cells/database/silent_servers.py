"""Connections to PostgreSQL that give up a server which is there and does not answer: one that was stopped, say.

What TCP can tell is only whether the machine receives what was sent, and a limit for statements is kept by the server
(docs/decisions/0005).
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
"""How long nothing may come from a server before it is looked whether it is there."""

# Once one connection was given up, the others that are open need not all wait as long to find out the same.
_SILENT_TOO_AFTER_S = 3.0


def limit_answers(engine: Engine, timeout_s: float | None = None) -> None:
    """Connections that `engine` opens from now on give up a silent server: OperationalError, and they are closed.

    Silent is one from which nothing has come for SILENT_AFTER_S, and which accepts no other connection either. One
    that does is busy with what it was asked, and may be so for as long as that takes.
    timeout_s: for longer than this no question is waited for, whatever else the server answers.
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
    """given_up_at_s: when the engine last gave up one of its connections, or could not open one in time."""

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
        """psycopg goes on with a question whenever the socket is ready, and several times in a second if it is not."""
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
        """Raises OperationalError."""
        type(self).given_up_at_s = time.monotonic()
        # So that it is not taken for one that can be asked something else.
        self.pgconn.finish()
        raise psycopg.OperationalError(reason)

    def _lets_others_in(self) -> bool:
        """Whether the very server that this connection is to answers a new connection, be it with a refusal."""
        arguments, options = self.opened_with
        # Its name may be that of another server by now.
        address = {"host": self.info.host, "hostaddr": self.info.hostaddr, "port": self.info.port}
        try:
            psycopg.connect(*arguments, **options | {key: value for key, value in address.items() if value}).close()
        except ConnectionTimeout:
            return False
        except psycopg.Error:
            return True
        return True
