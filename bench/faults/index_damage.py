"""What a person, a second program or a broken disk does to the indexes in Elasticsearch."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from elasticsearch import BadRequestError, Elasticsearch

from tests.support.waiting import wait_until


class IndexDamage:
    """What is done to the indexes with names that begin with `prefix`."""

    def __init__(self, client: Elasticsearch, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def physical(self, name: str) -> str:
        [physical] = self._client.indices.get(index=f"{self._prefix}-{name}").body
        return str(physical)

    def delete(self, name: str) -> None:
        self._client.indices.delete(index=self.physical(name))

    def restore(self, name: str) -> None:
        """An older copy in its place: the same documents under the same names, and another uuid."""
        physical = self.physical(name)
        [found] = self._client.indices.get(index=physical).body.values()
        copy = f"{physical}-copy"
        self._client.indices.put_settings(index=physical, settings={"index.blocks.write": True})
        self._client.indices.clone(index=physical, target=copy)

        def put_in_place() -> bool:
            # An indexer may have made an empty one already.
            self._client.indices.delete(index=physical, ignore_unavailable=True)
            with suppress(BadRequestError):
                target = {"settings": {"index.blocks.write": None}, "aliases": found["aliases"]}
                self._client.indices.clone(index=copy, target=physical, body=target)
                return True
            return False

        wait_until(put_in_place)
        self._client.indices.delete(index=copy)

    def close(self, name: str) -> None:
        self._client.indices.close(index=self.physical(name))

    def block(self, name: str) -> None:
        self._client.indices.put_settings(index=self.physical(name), settings={"index.blocks.read_only": True})

    def block_reading(self, name: str) -> None:
        self._client.indices.put_settings(index=self.physical(name), settings={"index.blocks.read": True})

    def take_alias_away(self, name: str) -> None:
        self._client.indices.delete_alias(index=self.physical(name), name=f"{self._prefix}-{name}")

    def alter_documents(self) -> None:
        """Two documents go, and two say something else, with the revision that they have."""
        instances = self.physical("instances")
        self._client.indices.refresh(index=instances)
        hits = self._client.search(index=instances, size=4, sort="uuid_high", source=False)["hits"]["hits"]
        for number, hit in enumerate(hits):
            if number % 2:
                self._client.delete(index=instances, id=hit["_id"])
            else:
                altered = {"source": "ctx._source.display_name = 'altered'"}
                self._client.update(index=instances, id=hit["_id"], script=altered)

    def delete_everything(self) -> None:
        self._client.indices.delete(index=list(self._client.indices.get(index=f"{self._prefix}-*").body))


ALL = ("instances", "items", "progress", "state")
DAMAGES: dict[str, Callable[[IndexDamage], None]] = {
    **{f"{name} deleted": partial(IndexDamage.delete, name=name) for name in ALL},
    **{f"{name} closed": partial(IndexDamage.close, name=name) for name in ALL},
    **{f"{name} restored": partial(IndexDamage.restore, name=name) for name in ALL},
    "instances blocked": partial(IndexDamage.block, name="instances"),
    "read alias gone": partial(IndexDamage.take_alias_away, name="instances"),
    "write alias gone": partial(IndexDamage.take_alias_away, name="instances-write"),
    "an empty cluster": IndexDamage.delete_everything,
    "documents altered": IndexDamage.alter_documents,
}
