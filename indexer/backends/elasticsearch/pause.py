"""The pause of all writing, in which a rebuild replaces the current index.

A pause is marked in the mapping, to distinguish the pause of a killed rebuild from a block that an operator has set and
alone may end.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.errors import RebuildError

_decode = msgspec.json.Decoder().decode
_MARK = "paused"


def pause_writes(client: Client, index: str) -> None:
    """Return when no write is under way any more. Raises RebuildError if an operator has blocked the index."""
    answer = send(client, "GET", f"/{index}/_settings/index.blocks.write")
    # An index without the setting is not in the answer.
    is_blocked = any(found["settings"]["index"]["blocks"]["write"] == "true" for found in _decode(answer).values())
    if is_blocked and not _is_marked(client, index):
        raise RebuildError(
            f"writing to index {index} is blocked (index.blocks.write), and not by a rebuild: end that first"
        )
    _mark(client, index, is_paused=True)
    send(client, "PUT", f"/{index}/_block/write")


def end_pause(client: Client, index: str) -> None:
    """Allow writing again, unless an operator has blocked the index (a name or an alias)."""
    if _is_marked(client, index):
        send(client, "PUT", f"/{index}/_settings", {"index": {"blocks.write": None}})
        _mark(client, index, is_paused=False)


def is_marked(mappings: Mapping[str, Any]) -> bool:
    """Whether a rebuild has blocked the index with these mappings: the current one, or one that it has replaced."""
    return _MARK in mappings.get("_meta", {})


def _is_marked(client: Client, index: str) -> bool:
    return _MARK in _meta(client, index)


def _mark(client: Client, index: str, *, is_paused: bool) -> None:
    meta = _meta(client, index)
    meta.pop(_MARK, None)
    send(client, "PUT", f"/{index}/_mapping", {"_meta": {**meta, **({_MARK: True} if is_paused else {})}})


def _meta(client: Client, index: str) -> dict[str, Any]:
    [found] = _decode(send(client, "GET", f"/{index}/_mapping")).values()
    meta: dict[str, Any] = found["mappings"].get("_meta", {})
    return meta
