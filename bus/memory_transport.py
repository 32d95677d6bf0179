"""kombu's in-memory transport, safe for two threads of one process.

Unlike kombu's own, a receiver waits on the queue instead of polling it, requeued messages go to the front, and bodies
stay bytes. Nothing survives the process; outbox and watermark make up for that.
"""

from queue import Queue
from typing import Any, ClassVar

from kombu.transport import memory, virtual


class _Channel(memory.Channel):  # type: ignore[misc]  # kombu has no types
    queues: ClassVar[dict[str, "Queue[Any]"]] = {}
    body_encoding = None

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        # Called for each message, and creating a queue takes a while.
        if queue not in self.queues:
            self.queues.setdefault(queue, Queue())

    def _poll(self, cycle: Any, callback: Any, timeout: float | None = None) -> None:
        (queue,) = self._active_queues
        callback(self._queue_for(queue).get(timeout=timeout), queue)

    def _restore_at_beginning(self, message: Any) -> None:
        info = message.delivery_info
        info["redelivered"] = True
        raw = message.serializable()
        for name in self._lookup(info["exchange"], info["routing_key"]):
            queue = self._queue_for(name)
            with queue.mutex:
                queue.queue.appendleft(raw)
                queue.not_empty.notify()


class MemoryTransport(memory.Transport):  # type: ignore[misc]  # kombu has no types
    """The transport of `memory://`."""

    Channel = _Channel
    global_state = virtual.BrokerState()
