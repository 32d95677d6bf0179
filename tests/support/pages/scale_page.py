"""Tables of docs/explanation/scale.md, made of what `scripts/bench scale` measured, which is in `measured.json` beside
the bench: `python -m tests.support.pages.scale_page build/scale.jsonl` takes that over first.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.scale.run import CELL_COUNTS, SIZES, of_cells

_ROOT = Path(__file__).parents[3]
PAGE = _ROOT / "docs" / "explanation" / "scale.md"
_MEASURED = _ROOT / "bench" / "scale" / "measured.json"
_BEGIN = "<!-- measured: python -m tests.support.pages.scale_page build/scale.jsonl -->\n"
_END = "<!-- end of what was measured -->\n"

Measured = Mapping[str, float]
"""Values by the names of the figures."""

_OF_INSTANCES = {
    "first page of 50, ms": "lists.page_50",
    "first page of 1,000, ms": "lists.page_1000",
    "page of 50 behind nine tenths of all, ms": "lists.deep",
    "page of 50 of a project with 1 %, ms": "lists.project",
    "page of 50 of one host and state, 0.04 %, ms": "lists.filter",
    "page of 50 by a pattern of the name, ms": "lists.name",
    "counting all, ms": "counts.all",
    "counting by state and host, ms": "counts.groups",
    "first sync, s": "sync.recovery.synced",
    "`fleetlight index rebuild`, s": "rebuild.recovery.rebuild",
    "comparing revisions of all cells, s": "comparison.revisions",
    "a deleted document is found and repaired, s": "audit.audit.hole",
    "an added document is found and removed, s": "audit.audit.surplus",
    "the audit takes, processors": "audit_share.audit.share",
    "index, merged, bytes an instance": "bytes.index",
    "databases of the cells, bytes an instance": "bytes.cells",
    "memory of the relay, MiB": "memory.relay",
    "memory of the indexer, MiB": "memory.indexer",
    "memory of the API, MiB": "memory.api",
    "memory of Elasticsearch, 1 GiB of it heap, MiB": "memory.elasticsearch",
    "memory of RabbitMQ, MiB": "memory.rabbitmq",
    "memory of PostgreSQL, MiB": "memory.postgresql",
    "lists from the index after the relay was killed, s": "processes.recovery.relay_killed",
    "after the indexer was, s": "processes.recovery.indexer_killed",
    "after the API was, s": "processes.recovery.api_killed",
    "after Elasticsearch was, from when it answers, s": "servers.recovery.elasticsearch_killed",
    "after RabbitMQ was, from when it answers, s": "servers.recovery.rabbitmq_killed",
    "after PostgreSQL was, from when it answers, s": "servers.recovery.postgresql_killed",
    "after all indexes were deleted, s": "emptied.recovery.emptied",
}
_OF_CELLS = {
    "until `fleetlight up` works, s": "one_command.start",
    "until relay, worker and indexer work, s": "followers.start",
    "how far the index is, read by an API process, ms": "followers.progress",
}
_IDLE = {
    "`fleetlight up`": "one_command.up",
    "relay": "followers.relay",
    "worker": "followers.worker",
    "indexer": "followers.indexer",
}
_USES = {
    "processors": "share",
    "memory, MiB": "memory",
    "threads": "threads",
    "open files": "files",
    "of them sockets": "connections",
}


def page(measured: Measured | None = None) -> str:
    """The whole page: that which is there, with other tables. measured: what was kept unless given."""
    if measured is None:
        measured = json.loads(_MEASURED.read_text(encoding="utf-8"))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return "".join([before, _BEGIN, "\n", *(f"{line}\n" for line in _tables(measured)), _END, rest.partition(_END)[2]])


def taken_over(kept: str) -> Measured:
    """The values of all figures in a file of fleetlight's bench, a measurement in each line."""
    return {each["name"]: each["value"] for line in kept.splitlines() for each in json.loads(line)["figures"]}


def _tables(measured: Measured) -> Iterator[str]:
    yield from _head(["instances", *(f"{size:,}" for size in SIZES)])
    for what, name in _OF_INSTANCES.items():
        yield _row([what, *(_value(measured, f"{size}.{name}") for size in SIZES)])
    yield ""
    yield from _head(["cells", *(f"{count:,}" for count in CELL_COUNTS)])
    for what, name in _OF_CELLS.items():
        yield _row([what, *(_value(measured, f"{count}_cells.{name}") for count in CELL_COUNTS)])
    yield ""
    yield from _head(["idle", "cells", *_USES])
    for process, name in _IDLE.items():
        way = name.partition(".")[0]
        for count in (count for count in CELL_COUNTS if f"{count}_cells.{way}" in of_cells(count)):
            values = [_value(measured, f"{count}_cells.{name}.{use}") for use in _USES.values()]
            yield _row([process, f"{count:,}", *values])
    yield ""


def _head(titles: Sequence[str]) -> Sequence[str]:
    return _row(titles), _row(["---"] * len(titles))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _value(measured: Measured, name: str) -> str:
    """`-` where it was not measured."""
    value = measured.get(f"scale.{name}")
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def main(arguments: Sequence[str]) -> None:
    """arguments: the file of the bench, or nothing to make the page of what was taken over before."""
    for file in arguments:
        values = dict(taken_over(Path(file).read_text(encoding="utf-8")))
        _MEASURED.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
