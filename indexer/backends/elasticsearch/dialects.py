"""The differences between Elasticsearch and OpenSearch in all that we use."""

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
    """One of the two servers. title: its name for people. product: its value of a header that names the product.

    settings: those of each of our indexes that only this server has
    (fleetlight.indexer.backends.elasticsearch.mapping).
    """

    title: str
    product: str | None
    settings: Mapping[str, Any]

    def check(self, headers: Mapping[str, str], addresses: str) -> None:
        """Raises IndexRequestError if the answer comes from a server of the other kind."""
        if headers.get(_PRODUCT) != self.product:
            other = next(name for name, each in TRANSPORTS.items() if each.dialect is not self)
            raise IndexRequestError(
                f"the server at {addresses} is not {self.title}, as index.backend says; "
                f"for {TRANSPORTS[other].dialect.title} set it to {other}"
            )


class PlainTransport(Transport):
    """The transport of Elasticsearch's official client, adapted to both servers.

    The client asks for its own media type, which OpenSearch refuses, and accepts no other product. This asks for plain
    JSON, which both know, and checks the product itself.
    """

    dialect: ClassVar[Dialect]

    def perform_request(self, *arguments: Any, **options: Any) -> TransportApiResponse:
        """Send a request. Raises IndexRequestError if the server is of the other kind."""
        plain = {name: _OWN_MEDIA_TYPE.sub(r"application/\1", text) for name, text in options["headers"].items()}
        answer = super().perform_request(*arguments, **options | {"headers": plain})
        if _OK <= answer.meta.status < _REDIRECTED:
            self.dialect.check(answer.meta.headers, addresses_of(self))
            answer.meta.headers = HttpHeaders({**answer.meta.headers, _PRODUCT: _EXPECTED})
        return answer


class _ToElasticsearch(PlainTransport):
    # Documents are stored as they were sent, and texts of any length are searchable.
    dialect = Dialect(
        "Elasticsearch",
        _EXPECTED,
        {"mode": "standard", "mapping": {"source": {"mode": "stored"}, "ignore_above": 2**31 - 1}},
    )


class _ToOpenSearch(PlainTransport):
    # A replica that copies segments instead of documents may lack what a refresh has announced as searchable for some
    # time, and lists read any replica.
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
"""Transports by the value of index.backend."""


def addresses_of(transport: Transport) -> str:
    """The addresses of its nodes, without accounts."""
    return ", ".join(node.base_url for node in transport.node_pool.all())
