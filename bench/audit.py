"""`scripts/bench audit`: what the audit takes at 1,000,000 instances, and how soon it finds what is wrong.

The fleet is that of `scripts/bench recovery`, larger. Processor time of the indexer, PostgreSQL and Elasticsearch is
that of two minutes in which nothing changes, less that of two minutes with an audit that does next to nothing. Before
that, a document is deleted, one is added and one is altered, one after the other.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from elasticsearch import Elasticsearch

from bench.measure import Figure, Goal, at_most, figure
from bench.process_tree import processor_shares
from bench.recovery import Followed, followed_fleet
from tests.support.waiting import wait_until

_COUNT, _QUICK_COUNT = 1_000_000, 8_000
_WINDOW_S, _QUICK_WINDOW_S = 120.0, 20.0
_TIMEOUT_S = 300.0
_NO_AUDIT = "\n[indexer]\naudit_share = 0.00001\naudit_interval_s = 1000000\n"
_SHARE_GOAL, _FOUND_GOAL = at_most(0.05), at_most(60)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 8,000 instances instead of 1,000,000, and shorter windows."""
    count, window_s = (_QUICK_COUNT, _QUICK_WINDOW_S) if quick else (_COUNT, _WINDOW_S)
    with followed_fleet(directory, count) as followed:
        followed.wait()
        yield from repaired(followed, ("hole", "surplus", "altered"))
        yield share(followed, window_s, goal=None if quick else _SHARE_GOAL)


def share(followed: Followed, window_s: float = _WINDOW_S, *, goal: Goal | None = _SHARE_GOAL) -> Figure:
    """What the audit takes of a processor. After that it does next to nothing any more."""
    pids = {kind: followed.servers[kind].pid for kind in ("postgresql", "elasticsearch")}
    indexer, config = followed.processes["indexer"], followed.world.config
    with_audit = processor_shares({"indexer": indexer.pid, **pids}, window_s)
    config.write_text(config.read_text() + _NO_AUDIT)
    indexer.kill()
    indexer.start()
    followed.wait()
    without = processor_shares({"indexer": indexer.pid, **pids}, window_s)
    shares = {name: with_audit[name] - without[name] for name in with_audit}
    parts = ", ".join(f"{name} {share:.3f} ({with_audit[name]:.3f} in all)" for name, share in shares.items())
    return figure(
        "audit.share",
        sum(shares.values()) * 1e6 / max(followed.count, 1e6),
        "processors",
        f"what the audit of {followed.count} instances in {len(followed.world.cells)} cells takes at its default pace: "
        f"{parts}",
        runs=1,
        goal=goal,
    )


def repaired(followed: Followed, names: Sequence[str]) -> Iterator[Figure]:
    """How long it takes until the audit has repaired what was done to a document: a "hole", "surplus", "altered"."""
    index = f"{followed.world.settings.index.prefix}-instances-write"
    with Elasticsearch(followed.world.servers.elasticsearch, request_timeout=60) as client:
        hole, altered, copied = client.search(index=index, size=3, sort="uuid_high")["hits"]["hits"]
        stranger = str(uuid4())
        surplus = {**copied["_source"], "uuid": stranger}

        def name_of(uuid: str) -> str | None:
            found = client.options(ignore_status=404).get(index=index, id=uuid).body
            return str(found["_source"]["display_name"]) if found.get("found") else None

        def alter() -> None:
            client.update(index=index, id=altered["_id"], script={"source": "ctx._source.display_name = 'altered'"})

        def add() -> None:
            client.index(index=index, id=stranger, document=surplus, version=1, version_type="external")

        causes: dict[str, tuple[Callable[[], object], Callable[[], bool]]] = {
            "hole": (lambda: client.delete(index=index, id=hole["_id"]), lambda: name_of(hole["_id"]) is not None),
            "surplus": (add, lambda: name_of(stranger) is None),
            "altered": (alter, lambda: name_of(altered["_id"]) != "altered"),
        }
        for name in names:
            cause, is_repaired = causes[name]
            cause()
            begun_s = time.monotonic()
            is_in_time = True
            try:
                wait_until(is_repaired, timeout_s=_TIMEOUT_S)
            except AssertionError:
                is_in_time = False
            took_s = time.monotonic() - begun_s
            what = f"{took_s:.1f} s until it is repaired" if is_in_time else f"not repaired within {took_s:.0f} s"
            # What documents say has no minute: it is read at what the digests leave of the share.
            goal = None if name == "altered" else _FOUND_GOAL
            yield figure(f"audit.{name}", took_s, "s", what, runs=1, goal=goal)
