"""The physical indexes behind our names, as the server has them at one moment.

A name can refer to another index at any time: an operator may remove one, restore a snapshot or move an alias. The
server gives each physical index, also a restored one, a uuid that no other ever has.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.backends.elasticsearch.rows import decoded

_ASKED = (
    "*.aliases,*.mappings._meta,*.mappings.dynamic,"
    "*.settings.index.uuid,*.settings.index.blocks,*.settings.index.verified_before_close"
)
# Members of `index.blocks`. The server itself sets and ends `read_only_allow_delete` when a disk is full.
_ENDED_BLOCKS = ("read_only", "write")


class _Blocks(msgspec.Struct):
    write: str | None = None
    read_only: str | None = None


class _IndexSettings(msgspec.Struct):
    uuid: str
    blocks: _Blocks = msgspec.field(default_factory=_Blocks)
    # Closed indexes have it, but also open copies of closed ones.
    verified_before_close: str | None = None


class _Settings(msgspec.Struct):
    index: _IndexSettings


class _Alias(msgspec.Struct):
    """filter, index_routing, search_routing: see `is_plain`."""

    is_write_index: bool = False
    filter: dict[str, Any] | None = None
    index_routing: str | None = None
    search_routing: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it stands for the whole index."""
        return self.filter is None and self.index_routing is None and self.search_routing is None


class _Mappings(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)
    dynamic: str | bool | None = None


class PhysicalIndex(msgspec.Struct):
    """One physical index. aliases: by name. is_closed: set by `physical_indexes`."""

    settings: _Settings
    mappings: _Mappings = msgspec.field(default_factory=_Mappings)
    aliases: dict[str, _Alias] = msgspec.field(default_factory=dict)
    is_closed: bool = False

    @property
    def uuid(self) -> str:
        return self.settings.index.uuid

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.mappings.meta

    @property
    def is_ours(self) -> bool:
        """Whether this program created it, and not the server for a document that came before the index."""
        return self.mappings.dynamic == "strict"

    @property
    def may_be_closed(self) -> bool:
        return self.settings.index.verified_before_close == "true"

    @property
    def blocks(self) -> Sequence[str]:
        """The members of `index.blocks` that keep documents out, in the order in which they can be removed."""
        return [name for name in _ENDED_BLOCKS if getattr(self.settings.index.blocks, name) == "true"]


class _ResolvedIndex(msgspec.Struct):
    name: str
    attributes: tuple[str, ...] = ()


class _Resolved(msgspec.Struct):
    indices: tuple[_ResolvedIndex, ...] = ()


_RESOLVED = msgspec.json.Decoder(_Resolved)
_INDEXES = msgspec.json.Decoder(dict[str, PhysicalIndex])


def physical_indexes(client: Client, *names: str) -> dict[str, PhysicalIndex]:
    """The indexes behind some names and aliases, by physical name.

    Takes one request, and one more if some of them may be closed.
    """
    answer = send(client, "GET", f"/{','.join(names)}?ignore_unavailable=true&filter_path={_ASKED}")
    found: dict[str, PhysicalIndex] = decoded(_INDEXES, answer)
    if unsure := [name for name, index in found.items() if index.may_be_closed]:
        closed = closed_of(client, unsure)
        for name in unsure:
            found[name].is_closed = name in closed
    return found


def closed_of(client: Client, indexes: Sequence[str]) -> Set[str]:
    """The closed ones among these indexes; missing ones count as open."""
    path = f"/_resolve/index/{','.join(indexes)}?expand_wildcards=all&ignore_unavailable=true"
    resolved = decoded(_RESOLVED, send(client, "GET", path))
    return {each.name for each in resolved.indices if "closed" in each.attributes}


def behind(found: Mapping[str, PhysicalIndex], name: str) -> PhysicalIndex | None:
    """Our index to which a name or an alias refers."""
    named = (index for physical, index in found.items() if name == physical or name in index.aliases)
    return next((index for index in named if index.is_ours), None)


def drop_guessed(client: Client, *names: str) -> None:
    """Drop indexes that the server created itself, with a guessed mapping, for documents that came too early."""
    for name, index in physical_indexes(client, *names).items():
        if not index.is_ours and name in names:
            send(client, "DELETE", f"/{name}?ignore_unavailable=true")


def make_usable(client: Client, *names: str) -> None:
    """Open closed indexes, and end blocks on writing."""
    for name, index in physical_indexes(client, *names).items():
        for block in index.blocks:
            # One by one, since OpenSearch accepts no other change of a read-only index together with this one.
            send(client, "PUT", f"/{name}/_settings", {f"index.blocks.{block}": None})
        if index.is_closed:
            send(client, "POST", f"/{name}/_open?wait_for_active_shards=1")


def alias_changes(
    found: Mapping[str, PhysicalIndex], physical: str, read: str, write: str
) -> Sequence[Mapping[str, Any]]:
    """The changes that make two aliases refer to `physical` alone; empty if they do.

    found: all indexes behind the two aliases, and `physical`.
    """
    others = [(name, alias) for name, index in found.items() if name != physical for alias in index.aliases]
    changes: list[Mapping[str, Any]] = [
        {"remove": {"index": name, "alias": alias}} for name, alias in others if alias in (read, write)
    ]
    own = found[physical].aliases
    if read not in own or not own[read].is_plain:
        changes.append({"add": {"index": physical, "alias": read}})
    if write not in own or not own[write].is_write_index or not own[write].is_plain:
        changes.append({"add": {"index": physical, "alias": write, "is_write_index": True}})
    return changes
