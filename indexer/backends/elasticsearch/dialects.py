"""What Elasticsearch and OpenSearch do in different ways, of all that is asked of them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from elastic_transport import HttpHeaders, Transport, TransportApiResponse

from fleetlight.indexer.errors import IndexRequestError

_PRODUCT = "x-elastic-product"
_EXPECTED = "Elasticsearch"
_OWN_MEDIA_TYPE = re.compile(r"application/vnd\.elasticsearch\+([a-z-]+); *compatible-with=\d+")
_OK, _REDIRECTED = 200, 300


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two. title: its name for people. product: what its answers say that it is, in a header.

    settings: of each of our indexes, besides what both have (fleetlight.indexer.backends.elasticsearch.mapping).
    """

    title: str
    product: str | None
    settings: Mapping[str, Any]

    def check(self, headers: Mapping[str, str], addresses: str) -> None:
        """Raises IndexRequestError where an answer comes from a server of the other kind."""
        if headers.get(_PRODUCT) != self.product:
            other = next(name for name, each in TRANSPORTS.items() if each.dialect is not self)
            raise IndexRequestError(
                f"the server at {addresses} is not {self.title}, as index.backend says; "
                f"for {TRANSPORTS[other].dialect.title} set it to {other}"
            )


class PlainTransport(Transport):
    """Below the official client of Elasticsearch: asks for plain JSON, which both speak, and knows what it talks to.

    The client asks for a media type of its own, which OpenSearch refuses, and takes nothing but Elasticsearch.
    """

    dialect: ClassVar[Dialect]

    def perform_request(self, *arguments: Any, **options: Any) -> TransportApiResponse:
        """As the transport's. Raises IndexRequestError for a server of the other kind."""
        plain = {name: _OWN_MEDIA_TYPE.sub(r"application/\1", text) for name, text in options["headers"].items()}
        answer = super().perform_request(*arguments, **options | {"headers": plain})
        if _OK <= answer.meta.status < _REDIRECTED:
            self.dialect.check(answer.meta.headers, addresses_of(self))
            answer.meta.headers = HttpHeaders({**answer.meta.headers, _PRODUCT: _EXPECTED})
        return answer


class _ToElasticsearch(PlainTransport):
    # Documents are kept as they were sent, and a text of any length can be found.
    dialect = Dialect(
        "Elasticsearch",
        _EXPECTED,
        {"mode": "standard", "mapping": {"source": {"mode": "stored"}, "ignore_above": 2**31 - 1}},
    )


class _ToOpenSearch(PlainTransport):
    # A copy that gets segments instead of documents has what was written some time after a refresh has said that it can
    # be found, and lists read any copy.
    dialect = Dialect(
        "OpenSearch",
        None,
        {
            "replication": {"type": "DOCUMENT"},
            "derived_source": {"enabled": False},
            "search": {"default_pipeline": "_none"},
        },
    )


TRANSPORTS: Mapping[str, type[PlainTransport]] = {"elasticsearch": _ToElasticsearch, "opensearch": _ToOpenSearch}
"""By the value of index.backend."""


def addresses_of(transport: Transport) -> str:
    """Where its nodes are, without accounts."""
    return ", ".join(node.base_url for node in transport.node_pool.all())
