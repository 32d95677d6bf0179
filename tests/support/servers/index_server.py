"""The server of the index that tests and benches work on: Elasticsearch, or OpenSearch where the variable names one."""

import re
from functools import cache
from typing import Any, Literal

import httpx
from elastic_transport import HttpHeaders, Transport, TransportApiResponse
from elasticsearch import Elasticsearch

from fleetlight.indexer.backends.settings import IndexSettings

_OWN_MEDIA_TYPE = re.compile(r"application/vnd\.elasticsearch\+([a-z-]+); *compatible-with=\d+")


@cache
def backend_at(url: str) -> Literal["elasticsearch", "opensearch"]:
    """The value of index.backend for the server there."""
    version = httpx.get(url, timeout=30).json()["version"]
    return "opensearch" if version.get("distribution") == "opensearch" else "elasticsearch"


def index_at(url: str, prefix: str, **options: Any) -> IndexSettings:
    """Settings of an index there."""
    return IndexSettings(backend=backend_at(url), urls=(url,), prefix=prefix, **options)


def index_client(url: str, **options: Any) -> Elasticsearch:
    """The official client of Elasticsearch, for either server. It is closed by its caller."""
    return Elasticsearch(url, transport_class=_EitherServer, **options)


class _EitherServer(Transport):
    """Asks for plain JSON, which both servers speak, and lets the client take both for Elasticsearch."""

    def perform_request(self, *arguments: Any, **options: Any) -> TransportApiResponse:
        plain = {name: _OWN_MEDIA_TYPE.sub(r"application/\1", text) for name, text in options["headers"].items()}
        answer = super().perform_request(*arguments, **options | {"headers": plain})
        answer.meta.headers = HttpHeaders({**answer.meta.headers, "x-elastic-product": "Elasticsearch"})
        return answer
