"""Examines our indexes in a cluster: versions, aliases, whether they accept documents, and disk usage."""

from collections.abc import Iterator, Mapping, Set
from contextlib import closing
from typing import Any

import msgspec

from fleetlight.indexer.backends.elasticsearch.client import open_client, send
from fleetlight.indexer.backends.elasticsearch.dialects import Dialect
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.elasticsearch.pause import is_marked
from fleetlight.indexer.backends.elasticsearch.physical import closed_of
from fleetlight.indexer.backends.elasticsearch.shape import deviations_of, shape_of, shapes
from fleetlight.indexer.backends.elasticsearch.versions import is_unusable
from fleetlight.indexer.backends.examination import FULL_PERCENT, MAKE, REBUILD, ROOM, IndexExamination, IndexProblem
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexForbiddenError

_decode = msgspec.json.Decoder().decode
_BLOCKS = {
    "write": "if no rebuild runs: PUT {index}/_settings with index.blocks.write: null",
    "read_only": "PUT {index}/_settings with index.blocks.read_only: null",
    "read_only_allow_delete": f"its disk is full: {ROOM}",
    "read": "PUT {index}/_settings with index.blocks.read: null",
    "metadata": "PUT {index}/_settings with index.blocks.metadata: null",
}
_RESTART = "restart the indexers, which put aliases right; if that does not help, `fleetlight index rebuild`"


def examine(settings: IndexSettings, timeout_s: float) -> IndexExamination:
    """Examine the index and its cluster. Raises IndexUnavailableError and IndexRequestError."""
    names = Names.of(settings.prefix)
    unknown: list[str] = []
    with closing(open_client(settings, timeout_s=timeout_s)) as client:

        def fetch(path: str, what: str) -> Any:
            try:
                return _decode(send(client, "GET", path))
            except IndexForbiddenError:
                unknown.append(what)
                return None

        root = fetch("/", "the version of the cluster")
        title = client.dialect.title
        server = title if root is None else f"{title} {root['version']['number']}"
        found = fetch(f"/{settings.prefix}-*?expand_wildcards=all&flat_settings=true", "indexes and aliases")
        closed = closed_of(client, may_be) if (may_be := _may_be_closed(found or {})) else frozenset()
        health = fetch("/_cluster/health?timeout=1s", "the health of the cluster")
        disks = fetch("/_nodes/stats/fs?filter_path=nodes.*.name,nodes.*.fs.total", "the disks of the cluster")
    name, problems = (None, []) if found is None else problems_of_indexes(found, closed, names)
    problems += problems_of_shapes(found or {}, names, client.dialect)
    return IndexExamination(server, name, [*problems, *problems_of_cluster(health, disks)], unknown)


def _may_be_closed(found: Mapping[str, Any]) -> list[str]:
    """Indexes with a setting that closed indexes have, but also open copies of closed ones."""
    return [name for name, each in found.items() if each["settings"].get("index.verified_before_close") == "true"]


def problems_of_indexes(
    found: Mapping[str, Any], closed: Set[str], names: Names
) -> tuple[str | None, list[IndexProblem]]:
    """The name of the current index, and its problems. found: indexes by name, as the cluster describes them.

    closed: the names of closed ones.
    """
    if not found:
        return None, [MAKE]
    behind = {alias: [index for index, each in found.items() if alias in each["aliases"]] for alias in _aliases(names)}
    problems = [
        IndexProblem(f"{alias} is an index, and has to be an alias of one", _stop_and_remove(alias))
        for alias in _aliases(names)
        if alias in found
    ]
    read, written = behind[names.read], behind[names.write]
    if not problems and (len(read) != 1 or read != written):
        says = f"{names.read} is an alias of {_listed(read)}, and {names.write} of {_listed(written)}"
        problems.append(IndexProblem(f"{says}: both have to be of the same one index", _RESTART))
    problems += [IndexProblem(f"{index} is closed", f"POST {index}/_open") for index in found if index in closed]
    for index, each in found.items():
        problems += _problems_of_index(index, each, is_current=index in written)
    return (written[0] if len(written) == 1 else None), problems


def _problems_of_index(name: str, index: Mapping[str, Any], *, is_current: bool) -> Iterator[IndexProblem]:
    if is_current and is_unusable(index["mappings"]):
        yield IndexProblem(f"{name} is of another version than this program uses", REBUILD)
    # An index that a rebuild has replaced stays blocked for as long as it is kept.
    is_kept = not is_current and is_marked(index["mappings"])
    for block, remedy in _BLOCKS.items():
        if block == "write" and is_kept:
            continue
        if index["settings"].get(f"index.blocks.{block}") == "true":
            yield IndexProblem(f"{name} is blocked (index.blocks.{block})", remedy.format(index=name))


def problems_of_shapes(found: Mapping[str, Any], names: Names, dialect: Dialect) -> Iterator[IndexProblem]:
    """Deviations that make lists do without the index (docs/decisions/0032). found: as in `problems_of_indexes`."""
    known = shapes(names, dialect)
    for index, each in found.items():
        shape = shape_of(each, index, known)
        is_of_instances = shape is known[names.read]
        if shape is None or (is_of_instances and is_unusable(each["mappings"])):
            continue
        deviations = deviations_of(each, shape)
        for says in deviations.says:
            remedy = "an indexer that runs puts it right, and compares the index with all cells"
            if says in deviations.final:
                remedy = REBUILD if is_of_instances else _stop_and_remove(index)
            yield IndexProblem(f"{index}: {says}", remedy)


def problems_of_cluster(health: Mapping[str, Any] | None, disks: Mapping[str, Any] | None) -> Iterator[IndexProblem]:
    if health is not None and health["status"] == "red":
        yield IndexProblem("the cluster is red: shards are missing", "see GET _cluster/allocation/explain")
    for node in ({} if disks is None else disks.get("nodes", {})).values():
        total, free = (node["fs"]["total"][key] for key in ("total_in_bytes", "available_in_bytes"))
        percent = 100 - 100 * free // max(1, total)
        if percent >= FULL_PERCENT:
            yield IndexProblem(f"the disk of node {node['name']} is {percent} % full", ROOM)


def _aliases(names: Names) -> tuple[str, str]:
    return names.read, names.write


def _listed(indexes: list[str]) -> str:
    return ", ".join(sorted(indexes)) or "nothing"


def _stop_and_remove(name: str) -> str:
    return f"stop the indexers, DELETE {name}, and start them again: they make what is missing, and fill it"
