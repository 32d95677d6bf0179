"""Confirms of a broker: which of the messages that were published on a channel it has taken."""

from typing import Any


class Confirms:
    """waiting, refused: numbers of messages, as `begin` gives them, that are not answered yet, and that it refused."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.refused: set[int] = set()
        self._begun = 0

    def follow(self, channel: Any) -> None:
        """Let the broker confirm what is published on a channel of py-amqp from now on, which nothing was yet."""
        channel.confirm_select()
        channel.events["basic_ack"].add(self._settle)
        channel.events["basic_nack"].add(self._on_nack)

    def begin(self) -> int:
        """The number of the message that is published next."""
        self._begun += 1
        self.waiting.add(self._begun)
        return self._begun

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self.refused |= self._settle(tag, multiple)

    def _settle(self, tag: int, multiple: bool) -> set[int]:
        settled = {other for other in self.waiting if other <= tag} if multiple else {tag}
        self.waiting -= settled
        return settled
