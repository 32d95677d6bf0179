"""What Elasticsearch and OpenSearch do in different ways, of all that is asked of them; pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetlight.indexer.errors import IndexRequestError

_PRODUCT = "x-elastic-product"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two. title: its name for people. product: what its answers say that it is, in a header."""

    title: str
    product: str | None

    def check(self, headers: Mapping[str, str], addresses: str) -> None:
        """Raises IndexRequestError where an answer comes from a server of the other kind."""
        if headers.get(_PRODUCT) != self.product:
            other = next(name for name, dialect in DIALECTS.items() if dialect is not self)
            raise IndexRequestError(
                f"the server at {addresses} is not {self.title}, as index.backend says; "
                f"for {DIALECTS[other].title} set it to {other}"
            )


DIALECTS = {"elasticsearch": Dialect("Elasticsearch", "Elasticsearch"), "opensearch": Dialect("OpenSearch", None)}
"""By the value of index.backend."""
