"""What tags mean for placing instances: exclusion, locations, and migration between nodes.

Source: contracts/ganeti-htools, 3.
"""

from collections.abc import Iterable, Sequence
from typing import Final

_EXCLUSION: Final = "htools:iextags:"
_LOCATION: Final = "htools:nlocation:"
_WANTED_LOCATION: Final = "htools:desiredlocation:"
_MIGRATION: Final = "htools:migration:"
_ALLOWED_MIGRATION: Final = "htools:allowmigration:"
_BETWEEN: Final = "::"


def exclusions(cluster_tags: Iterable[str], instance_tags: Iterable[str]) -> tuple[str, ...]:
    """The tags of an instance that no other primary instance of its node should have."""
    prefixes = tuple(prefix for prefix in _after(_EXCLUSION, cluster_tags) if prefix)
    return tuple(tag for tag in instance_tags if prefixes and tag.startswith(prefixes))


def wanted_locations(cluster_tags: Iterable[str], instance_tags: Iterable[str]) -> frozenset[str]:
    """The locations that an instance should be at."""
    prefixes = tuple(prefix for prefix in _after(_WANTED_LOCATION, cluster_tags) if prefix)
    return frozenset(tag for tag in instance_tags if prefixes and tag.startswith(prefixes))


def locations(cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    """What a node has in common with others that fail with it."""
    return _labels(_LOCATION, cluster_tags, node_tags)


def sent_migrations(cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    """What a node has to be allowed for by one that its instances go to."""
    return _labels(_MIGRATION, cluster_tags, node_tags)


def received_migrations(cluster_tags: Sequence[str], node_tags: Sequence[str]) -> frozenset[str]:
    """What nodes may have whose instances go to this one."""
    own = sent_migrations(cluster_tags, node_tags)
    pairs = (text.split(_BETWEEN) for text in _after(_ALLOWED_MIGRATION, cluster_tags))
    return own.union(pair[0] for pair in pairs if len(pair) == 2 and pair[1] in own)


def _labels(prefix: str, cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    wanted = tuple(f"{name}:" for name in _after(prefix, cluster_tags))
    return frozenset(tag for tag in node_tags if wanted and tag.startswith(wanted))


def _after(prefix: str, tags: Iterable[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
