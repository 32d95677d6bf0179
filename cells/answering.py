"""Connections to PostgreSQL that give up a server which is there and does not answer: one that was stopped, say.

What TCP can tell is only whether the machine receives what was sent, and a limit for statements is kept by the server.
"""

import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.waiting import Ready
from sqlalchemy import Engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import ConnectionPoolEntry


def limit_answers(engine: Engine, timeout_s: float) -> None:
    """No connection that `engine` opens from now on waits longer for what it asks at once; it is closed then."""

    class Connection(_AnsweringConnection):
        answer_timeout_s = timeout_s

    def connect(
        _dialect: Dialect, _entry: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]
    ) -> psycopg.Connection[Any]:
        return Connection.connect(*arguments, **options)

    event.listen(engine, "do_connect", connect)


class _AnsweringConnection(psycopg.Connection[Any]):
    answer_timeout_s: float

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        return super().wait(self._within_limit(gen), *arguments, **options)

    def _within_limit(self, question: PQGen[RV]) -> PQGen[RV]:
        """psycopg goes on with a question whenever the socket is ready, and several times in a second if it is not."""
        gives_up_s = time.monotonic() + self.answer_timeout_s
        try:
            awaited = next(question)
            while True:
                ready = yield awaited
                if ready == Ready.NONE and time.monotonic() > gives_up_s:
                    # So that nobody takes it for one that can be asked something else.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"it has not answered for {self.answer_timeout_s:g} s")
                awaited = question.send(ready)
        except StopIteration as answered:
            answer: RV = answered.value
            return answer
