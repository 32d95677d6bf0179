"""Query strings as names and values in their order, and the parameters that an address knows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from fleetlight.api.http.errors import BadRequestError


class QueryString:
    """Names and values; a name may come several times."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = tuple(pairs)
        self._last = dict(self.pairs)

    @classmethod
    def parse(cls, raw: bytes, *, splits_at_semicolons: bool = False) -> "QueryString":
        """Parse a query string. splits_at_semicolons: like Nova, whose WebOb follows an older rule of HTML.

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
        """Iterate over the names, each once, in the order of their last occurrences."""
        return iter(self._last)

    def __contains__(self, name: str) -> bool:
        return name in self._last

    def last(self, name: str) -> str | None:
        """Return the last value of `name`, which counts where only one can; None without one."""
        return self._last.get(name)

    def all(self, name: str) -> list[str]:
        return [value for known, value in self.pairs if known == name]

    def with_marker(self, marker: str, repeatable: frozenset[str]) -> str:
        """Make the query string of the next page: sorted by name, all values of repeatable names, else the last."""
        kept = [
            (name, value)
            for name, last in sorted(self._last.items())
            for value in (self.all(name) if name in repeatable else [last])
        ]
        if "marker" in self._last:
            kept = [(name, marker if name == "marker" else value) for name, value in kept]
        else:
            kept.append(("marker", marker))
        return urlencode(kept)


_LISTS_REFUSE_SINCE = 75
_OTHERS_REFUSE_SINCE = 102


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """The parameters of an address, and the handling of unknown ones (contracts/nova-rest, section 0).

    names: the parameters, with the microversion 2.N from which each is known.
    refuses_unknown_since: from this microversion an unknown name gets 400; before, it is ignored; None: the handler
        decides.
    once: names that may occur only once, with the microversion from which that holds.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    refuses_unknown_since: int | None = _OTHERS_REFUSE_SINCE
    once: Mapping[str, int] = field(default_factory=dict)

    def accept(self, query: QueryString, minor: int) -> None:
        """Raise BadRequestError for a name that microversion 2.`minor` forbids, or allows only once."""
        for name, since in self.once.items():
            if minor >= since and len(query.all(name)) > 1:
                raise BadRequestError(f"Query parameter '{name}' must not be given more than once")
        if self.refuses_unknown_since is None or minor < self.refuses_unknown_since:
            return
        for name in query:
            if name not in self.names or minor < self.names[name]:
                raise BadRequestError(f"Additional query parameters are not allowed ('{name}' was unexpected)")


def list_parameters(names: Mapping[str, int]) -> QueryParameters:
    """Make the parameters of a list, which refuse unknown names earlier than others."""
    return QueryParameters(names, _LISTS_REFUSE_SINCE)


NO_PARAMETERS = QueryParameters()
