"""Publisher confirms: which messages of a channel the broker has taken."""

from typing import Any


class Confirms:
    """waiting, refused: numbers of messages, from `begin`, that the broker has not answered yet, or refused."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.refused: set[int] = set()
        self._begun = 0

    def follow(self, channel: Any) -> None:
        """Turn on confirms for a channel of py-amqp, on which nothing was published yet."""
        channel.confirm_select()
        channel.events["basic_ack"].add(self._settle)
        channel.events["basic_nack"].add(self._on_nack)

    def begin(self) -> int:
        """Return the number of the message that is published next."""
        self._begun += 1
        self.waiting.add(self._begun)
        return self._begun

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self.refused |= self._settle(tag, multiple)

    def _settle(self, tag: int, multiple: bool) -> set[int]:
        settled = {other for other in self.waiting if other <= tag} if multiple else {tag}
        self.waiting -= settled
        return settled
