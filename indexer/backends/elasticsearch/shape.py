"""The required properties of our indexes apart from documents: settings, mapping and aliases, all of which decide what
a search finds, or how a document is stored.

A site's template can add to these when an index is created, and its administrators can change them later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import Client, send
from fleetlight.indexer.backends.elasticsearch.dialects import Dialect
from fleetlight.indexer.backends.elasticsearch.mapping import (
    OWN_SETTINGS,
    index_settings,
    instance_mapping,
    items_mapping,
    progress_mapping,
    sizes,
    state_mapping,
)
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.rows import decoded

# Settings that a server accepts only when an index is created.
_FINAL = ("index.mapping.", "index.mode", "index.replication.", "index.derived_source.")
# Affects how fast lists are, not what they have.
_FREE = "index.sort."
# Members of a mapping that do not matter for documents that a strict one accepts.
_HARMLESS = {
    *("dynamic", "properties", "_meta"),
    *("dynamic_templates", "date_detection", "numeric_detection", "dynamic_date_formats"),
}
# Elasticsearch's runtime fields and OpenSearch's derived fields, which scripts compute during a search.
_MADE_BY_SCRIPTS = ("runtime", "derived")
_HARMLESS_OF_ALIASES = {"is_write_index", "is_hidden"}
_INDEXES = msgspec.json.Decoder(dict[str, dict[str, Any]])


@dataclass(frozen=True, slots=True)
class Shape:
    """The required properties of one index. settings: nested, as the server accepts them. mapping: its `mappings`."""

    settings: Mapping[str, Any]
    mapping: Mapping[str, Any]

    def body(self, *, shards: int = 1, replicas: int | None) -> dict[str, Any]:
        """The body of a request that creates such an index."""
        return {
            "settings": {**self.settings, **sizes(shards=shards, replicas=replicas)},
            "mappings": self.mapping,
        }


@dataclass(slots=True)
class Deviations:
    """How one of our indexes differs from its required properties.

    says: a sentence for each difference. final: those that only a new index can correct. settings, mapping, aliases:
    what to send to the server to correct the others; aliases keep their other properties.
    """

    says: list[str] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    mapping: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def shape_of_instances(dialect: Dialect) -> Shape:
    return Shape(_merged(index_settings(), dialect.settings), instance_mapping())


def shape_of_progress(dialect: Dialect, instances_index: str = "") -> Shape:
    """instances_index: the index that the progress is about."""
    return Shape(_merged(OWN_SETTINGS, dialect.settings), progress_mapping(instances_index))


def shape_of_state(dialect: Dialect) -> Shape:
    return Shape(_merged(OWN_SETTINGS, dialect.settings), state_mapping())


def shape_of_items(dialect: Dialect) -> Shape:
    return Shape(_merged(OWN_SETTINGS, dialect.settings), items_mapping())


def shapes(names: Names, dialect: Dialect) -> Mapping[str, Shape]:
    """The shapes by each name or alias of our indexes."""
    instances, progress = shape_of_instances(dialect), shape_of_progress(dialect)
    return {
        **dict.fromkeys((names.read, names.write, names.next), instances),
        **dict.fromkeys((names.progress, names.next_progress), progress),
        names.state: shape_of_state(dialect),
        names.items: shape_of_items(dialect),
    }


def shape_of(found: Mapping[str, Any], name: str, known: Mapping[str, Shape]) -> Shape | None:
    """The shape of the index with that name, from `shapes`; None if it is not ours."""
    return next((known[each] for each in (name, *found["aliases"]) if each in known), None)


def deviating(client: Client, names: Names, *those: str) -> dict[str, Deviations]:
    """The deviations of those of our indexes behind some names that have any, by physical name."""
    answer = send(client, "GET", f"/{','.join(those)}?ignore_unavailable=true&flat_settings=true")
    known = shapes(names, client.dialect)
    deviating: dict[str, Deviations] = {}
    for name, found in decoded(_INDEXES, answer).items():
        shape = shape_of(found, name, known)
        if shape is not None and (deviations := deviations_of(found, shape)).says:
            deviating[name] = deviations
    return deviating


def deviations_of(found: Mapping[str, Any], wanted: Shape) -> Deviations:
    """Compare an index with its shape. found: as the server describes it, with flat settings."""
    deviations = Deviations()
    _compare_settings(found["settings"], dict(_flat(wanted.settings, "index")), deviations)
    _compare_mappings(found["mappings"], wanted.mapping, deviations)
    for alias, options in found["aliases"].items():
        if more := options.keys() - _HARMLESS_OF_ALIASES:
            deviations.says.append(f"the alias {alias} has {', '.join(sorted(more))}")
            deviations.aliases[alias] = {name: options[name] for name in options.keys() & _HARMLESS_OF_ALIASES}
    return deviations


def _compare_settings(found: Mapping[str, Any], wanted: Mapping[str, str], deviations: Deviations) -> None:
    for name, value in wanted.items():
        # A setting that was not given at creation has the server's default, which is the value we want.
        is_final = name.startswith(_FINAL)
        if name.startswith(_FREE) or found.get(name, value if is_final else None) == value:
            continue
        says = f"{name} is {found.get(name, 'not set')}, not {value}"
        deviations.says.append(says)
        if is_final:
            deviations.final.append(says)
        else:
            deviations.settings[name] = value


def _compare_mappings(found: Mapping[str, Any], wanted: Mapping[str, Any], deviations: Deviations) -> None:
    if found.get("dynamic") != wanted["dynamic"]:
        deviations.says.append("the mapping takes any field")
        deviations.mapping["dynamic"] = wanted["dynamic"]
    for name in found.keys() - _HARMLESS:
        if not found[name]:
            continue
        if name in _MADE_BY_SCRIPTS:
            deviations.says.append(f"fields are made by scripts: {', '.join(found[name])}")
            deviations.mapping[name] = dict.fromkeys(found[name])
        else:
            _add_final(deviations, f"the mapping has {name}")
    properties = found.get("properties", {})
    for name, definition in wanted["properties"].items():
        if name not in properties:
            deviations.says.append(f"the mapping lacks the field {name}")
            deviations.mapping.setdefault("properties", {})[name] = definition
        elif properties[name] != definition:
            # Documents may have been stored under this definition, and a search by the field cannot find those.
            _add_final(deviations, f"the field {name} is mapped as {properties[name]}, not as {definition}")


def _add_final(deviations: Deviations, says: str) -> None:
    deviations.says.append(says)
    deviations.final.append(says)


def _merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; values in `more` take precedence."""
    both = {name: _merged(settings[name], more[name]) for name in settings.keys() & more.keys()}
    return {**settings, **more, **both}


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Flatten settings as the server returns them: full names, and values as text."""
    for name, value in settings.items():
        full = f"{prefix}.{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, full)
        else:
            yield full, str(value).lower() if isinstance(value, bool) else str(value)
