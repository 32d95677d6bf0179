"""Which physical index a writer writes to: the one that it has prepared, and no other before it has looked at that one.

A rebuild may put another index in its place, even one of another program's version, in which documents of this one
would do harm. So documents are not sent to the alias that all writers share but to one that each physical index has for
itself; the index that was replaced takes none any more.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from elasticsearch import Elasticsearch

from indexer.backends.elasticsearch.client import send
from indexer.backends.elasticsearch.mapping import CONTINUES
from indexer.backends.elasticsearch.versions import require_usable
from indexer.errors import IndexReplacedError

_decode = msgspec.json.Decoder().decode


def mappings_of(client: Elasticsearch, name: str) -> dict[str, Any]:
    """Mappings by physical index of an index or alias; empty when there is none of that name."""
    answer = send(client, "GET", f"/{name}/_mapping?ignore_unavailable=true")
    return {index: found["mappings"] for index, found in _decode(answer).items()}


def index_uuid(client: Elasticsearch, name: str) -> str:
    """The uuid of the physical index behind a name, which no other one ever has."""
    [found] = _decode(send(client, "GET", f"/{name}/_settings/index.uuid")).values()
    return str(found["settings"]["index"]["uuid"])


class Target:
    """The physical index behind the alias `name`, once it is taken; `alias` is where documents are sent."""

    def __init__(self, client: Elasticsearch, name: str) -> None:
        self._client = client
        self._name = name
        self._taken = ""
        self.alias = name

    def take_next(self) -> None:
        """For what nobody else writes to, and nothing is put in the place of."""
        self._taken = index_uuid(self._client, self._name)

    def take(self) -> None:
        """Raises IndexVersionError."""
        mappings = mappings_of(self._client, self._name)
        require_usable(mappings)
        taken = index_uuid(self._client, self._name)
        for physical in mappings:
            alias = f"{physical}-write"
            send(self._client, "PUT", f"/{physical}/_alias/{alias}")
            self.alias = alias
        self._taken = taken

    def keep_up(self) -> None:
        """Take what a rebuild has put in the place of the index that was taken; nothing to do while that is there.

        Raises IndexReplacedError when it does not continue that one, and IndexVersionError.
        """
        if not self._taken or index_uuid(self._client, self._name) == self._taken:
            return
        if not _continues(mappings_of(self._client, self._name), self._taken):
            raise IndexReplacedError(self._name)
        self.take()


def _continues(mappings: Mapping[str, Any], uuid: str) -> bool:
    """Whether the index was filled by a rebuild with everything that the other one had."""
    return any(mapping.get("_meta", {}).get(CONTINUES) == uuid for mapping in mappings.values())
