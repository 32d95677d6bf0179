"""Which query parameters an address knows, and what becomes of others (contracts/nova-rest, section 0)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString

_LISTS_REFUSE_SINCE = 75
_OTHERS_REFUSE_SINCE = 102


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """names: of parameters, with the microversion 2.N from which each is known.

    refuses_unknown_since: from this microversion an unknown name gets 400, before it is ignored; None: the handler
        decides.
    once: names that may be given once at most, with the microversion from which that holds.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    refuses_unknown_since: int | None = _OTHERS_REFUSE_SINCE
    once: Mapping[str, int] = field(default_factory=dict)

    def accept(self, query: QueryString, minor: int) -> None:
        """Raises BadRequestError for a name that must not come twice, or at all, at microversion 2.`minor`."""
        for name, since in self.once.items():
            if minor >= since and len(query.all(name)) > 1:
                raise BadRequestError(f"Query parameter '{name}' must not be given more than once")
        if self.refuses_unknown_since is None or minor < self.refuses_unknown_since:
            return
        for name in query:
            if name not in self.names or minor < self.names[name]:
                raise BadRequestError(f"Additional query parameters are not allowed ('{name}' was unexpected)")


def list_parameters(names: Mapping[str, int]) -> QueryParameters:
    """Those of a list: strict earlier than others."""
    return QueryParameters(names, _LISTS_REFUSE_SINCE)


NO_PARAMETERS = QueryParameters()
