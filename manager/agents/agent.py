"""Execution of calls: checks them, carries none out twice, and makes one change of an instance at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import structlog
from pydantic import ValidationError

from fleetlight.manager.agents.arguments import Arguments
from fleetlight.manager.agents.calls import CALLS, Call
from fleetlight.manager.agents.drivers.driver import Driver
from fleetlight.manager.agents.errors import CallRefusedError, CallUnderWayError, DriverError
from fleetlight.manager.agents.journal import Journal
from fleetlight.manager.agents.rpcs import Effect, rpc
from fleetlight.manager.agents.wire import CallRequest, failed, succeeded

_log = structlog.get_logger(__name__)


class Agent:
    """Carries out calls. name: of the node in its cell. Calls block; any thread may make them."""

    def __init__(self, name: str, driver: Driver, journal: Journal) -> None:
        self.name = name
        self._driver = driver
        self._journal = journal
        self._changing = _NamedLocks()
        self._under_way = _UniqueKeys()

    def call(self, name: str, request: CallRequest) -> Any:
        """Carry out a call; returns the answer, `[true, payload]` or `[false, text]`.

        Raises CallRefusedError, after which nothing was done, and CallUnderWayError.
        """
        call = CALLS.get(name)
        if call is None:
            raise CallRefusedError(f"this agent knows no call '{name}'; it answers {', '.join(CALLS)}")
        arguments = _arguments(call, request.arguments)
        try:
            if rpc(name).effect is Effect.READS:
                self._driver.before(name)
                return succeeded(call.run(self._driver, arguments))
            if request.key is None:
                raise CallRefusedError(f"{name} changes something, and needs a key")
            with self._under_way.holding(request.key):
                return succeeded(self._change(name, call, arguments, request, request.key))
        except DriverError as error:
            _log.warning("agent.call_failed", call=name, reason=str(error))
            return failed(str(error))

    def _change(self, name: str, call: Call, arguments: Arguments, request: CallRequest, key: str) -> Any:
        """Carry out a changing call, unless the journal has it already.

        A driver that shares the journal's transaction carries it out exactly once. Any other driver may repeat it after
        a crash of the agent, so its changes set a wanted state instead of applying a difference.
        """
        given, instance = request.arguments, str(getattr(arguments, "instance", ""))
        with self._changing.holding(instance):
            done = self._journal.find(key, name, given)
            if done is not None:
                return done.payload
            if instance and request.order is not None:
                self._journal.begin(instance, request.order)
            self._driver.before(name)
            with self._driver.changing():
                payload = call.run(self._driver, arguments)
                self._journal.add(key, name, given, payload)
            _log.info("agent.changed", call=name, key=key, **given)
            return payload


def _arguments(call: Call, given: Mapping[str, Any]) -> Arguments:
    try:
        return call.arguments.model_validate(given)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
        raise CallRefusedError("; ".join(problems)) from None


class _NamedLocks:
    """Locks by name, kept while they are in use."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._locks: dict[str, tuple[Lock, int]] = {}

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(name, (Lock(), 0))
            self._locks[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks[name]
                if users == 1:
                    del self._locks[name]
                else:
                    self._locks[name] = (lock, users - 1)


class _UniqueKeys:
    """Keys, each held by at most one thread."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._held: set[str] = set()

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Hold a key in the block. Raises CallUnderWayError instead of waiting, since waiting occupies a thread."""
        with self._guard:
            if key in self._held:
                raise CallUnderWayError(key)
            self._held.add(key)
        try:
            yield
        finally:
            with self._guard:
                self._held.discard(key)
