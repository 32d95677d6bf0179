"""The query string of a request as names and values, in the order they came in."""

from collections.abc import Iterator, Sequence
from urllib.parse import parse_qsl, urlencode

from fleetlight.api.http.errors import BadRequestError


class QueryString:
    """Names and values; a name may come several times."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = tuple(pairs)
        self._last = dict(self.pairs)

    @classmethod
    def parse(cls, raw: bytes, *, splits_at_semicolons: bool = False) -> "QueryString":
        """splits_at_semicolons: as Nova's does, whose WebOb goes by an older rule of HTML.

        Raises BadRequestError when the text is not UTF-8, or has a NUL character, which no stored text can have.
        """
        raw = raw.replace(b";", b"&") if splits_at_semicolons else raw
        try:
            pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise BadRequestError("Query string is not UTF-8 encoded") from None
        if any("\0" in name or "\0" in value for name, value in pairs):
            raise BadRequestError("Query string must not contain NUL characters")
        return cls(pairs)

    def __iter__(self) -> Iterator[str]:
        """Each name once, by its last occurrence."""
        return iter(self._last)

    def __contains__(self, name: str) -> bool:
        return any(name == known for known, _ in self.pairs)

    def last(self, name: str) -> str | None:
        """The value that counts where only one can: the last."""
        return self._last.get(name)

    def all(self, name: str) -> list[str]:
        return [value for known, value in self.pairs if known == name]

    def with_marker(self, marker: str, repeatable: frozenset[str]) -> str:
        """The query string of the next page: sorted by name, what may be repeated in its order, the rest once."""
        kept = [
            (name, value)
            for name, last in sorted(self._last.items())
            for value in (self.all(name) if name in repeatable else [last])
        ]
        if "marker" in self:
            kept = [(name, marker if name == "marker" else value) for name, value in kept]
        else:
            kept.append(("marker", marker))
        return urlencode(kept)
