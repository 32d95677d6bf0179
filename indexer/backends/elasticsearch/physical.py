"""The physical indexes behind our names, as the server has them at one moment.

A name can stand for another index at any time: an operator removes one, restores a snapshot or moves an alias. The
server gives each physical index a uuid that no other one ever has, a restored one neither.
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
# Of `index.blocks`. The one that a full disk causes, `read_only_allow_delete`, the server sets and ends by itself.
_ENDED_BLOCKS = ("read_only", "write")


class _Blocks(msgspec.Struct):
    write: str | None = None
    read_only: str | None = None


class _IndexSettings(msgspec.Struct):
    uuid: str
    blocks: _Blocks = msgspec.field(default_factory=_Blocks)
    # A closed index has it, and a copy of one, which is open.
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
        """Whether it stands for all that is in the index."""
        return self.filter is None and self.index_routing is None and self.search_routing is None


class _Mappings(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)
    dynamic: str | bool | None = None


class PhysicalIndex(msgspec.Struct):
    """What is known of one. aliases: by name. is_closed: as `physical_indexes` has found out."""

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
        """Whether it was made by this program, and not by the server for a document that came when there was none."""
        return self.mappings.dynamic == "strict"

    @property
    def may_be_closed(self) -> bool:
        return self.settings.index.verified_before_close == "true"

    @property
    def blocks(self) -> Sequence[str]:
        """Which of `index.blocks` keep documents out until they are ended, in the order in which they can be."""
        return [name for name in _ENDED_BLOCKS if getattr(self.settings.index.blocks, name) == "true"]


class _ResolvedIndex(msgspec.Struct):
    name: str
    attributes: tuple[str, ...] = ()


class _Resolved(msgspec.Struct):
    indices: tuple[_ResolvedIndex, ...] = ()


_RESOLVED = msgspec.json.Decoder(_Resolved)
_INDEXES = msgspec.json.Decoder(dict[str, PhysicalIndex])


def physical_indexes(client: Client, *names: str) -> dict[str, PhysicalIndex]:
    """What is behind some names and aliases, by the name of the physical index.

    One request, and one more where some may be closed.
    """
    answer = send(client, "GET", f"/{','.join(names)}?ignore_unavailable=true&filter_path={_ASKED}")
    found: dict[str, PhysicalIndex] = decoded(_INDEXES, answer)
    if unsure := [name for name, index in found.items() if index.may_be_closed]:
        closed = closed_of(client, unsure)
        for name in unsure:
            found[name].is_closed = name in closed
    return found


def closed_of(client: Client, indexes: Sequence[str]) -> Set[str]:
    """Which of these are closed; those that are not there are not."""
    path = f"/_resolve/index/{','.join(indexes)}?expand_wildcards=all&ignore_unavailable=true"
    resolved = decoded(_RESOLVED, send(client, "GET", path))
    return {each.name for each in resolved.indices if "closed" in each.attributes}


def behind(found: Mapping[str, PhysicalIndex], name: str) -> PhysicalIndex | None:
    """The one of ours that a name or an alias stands for."""
    named = (index for physical, index in found.items() if name == physical or name in index.aliases)
    return next((index for index in named if index.is_ours), None)


def drop_guessed(client: Client, *names: str) -> None:
    """Drop what the server has made by itself, with a mapping that it guessed, for a document that came too early."""
    for name, index in physical_indexes(client, *names).items():
        if not index.is_ours and name in names:
            send(client, "DELETE", f"/{name}?ignore_unavailable=true")


def make_usable(client: Client, *names: str) -> None:
    """Open what is closed, and let documents be written to what is blocked."""
    for name, index in physical_indexes(client, *names).items():
        for block in index.blocks:
            # One by one: OpenSearch lets nothing else of a read-only index be changed with it.
            send(client, "PUT", f"/{name}/_settings", {f"index.blocks.{block}": None})
        if index.is_closed:
            send(client, "POST", f"/{name}/_open?wait_for_active_shards=1")


def alias_changes(
    found: Mapping[str, PhysicalIndex], physical: str, read: str, write: str
) -> Sequence[Mapping[str, Any]]:
    """What has to be done so that two aliases stand for `physical` alone; nothing where they do.

    found: everything behind the two, and `physical`.
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
