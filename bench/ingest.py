"""`scripts/bench ingest`: what our way into the index writes, against a bare loop of the same client.

Both write the same documents, in batches of the same size and as many at once as the consumer does, into an index of
the same shape; the bare loop gets them encoded beforehand and looks at no answer but its status.
"""

import os
import sqlite3
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

from elasticsearch import Elasticsearch
from msgspec.structs import replace

from bench import bus
from bench import fleet as made_up
from bench.measure import Figure, at_least, figure, seconds
from fleetlight.indexer.backends.base import Document, IndexWriter, WriteResult
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.schema import row_of, upsert_statement
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.transform.documents import to_document

_BATCH = 500
# As settings say: one write at a time into a SQLite file, which shares our processor.
_IN_FLIGHT = IndexerSettings().writes_in_flight


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 2,000 documents a round instead of 10,000. Elasticsearch only where its URL is in the environment."""
    count = 2_000 if quick else 10_000
    rounds = 4 if quick else 8
    cell = made_up.cell_uuids(1)[0]
    documents = [to_document(cell, 1, record) for record in made_up.records(count)]
    yield _sqlite(directory, documents, rounds)
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if url:
        yield _elasticsearch(url, documents, rounds)
    yield from bus.run(quick)


def _sqlite(directory: Path, documents: Sequence[Document], rounds: int) -> Figure:
    writer = open_writer(IndexSettings(path=directory / "ours.db"))
    writer.prepare()
    bare_path = directory / "bare.db"
    open_writer_of_bare = open_writer(IndexSettings(path=bare_path))
    open_writer_of_bare.prepare()  # the same tables and indexes
    open_writer_of_bare.close()
    connection = sqlite3.connect(bare_path, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    statement = upsert_statement()

    def bare(batches: Sequence[list[tuple[Any, ...]]]) -> None:
        for rows in batches:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")

    result = _rounds(
        "ingest.write.sqlite",
        documents,
        rounds,
        writer,
        prepare=lambda batch: [row_of(document) for document in batch],
        bare=bare,
        apply=map,
    )
    connection.close()
    writer.close()
    return result


def _elasticsearch(url: str, documents: Sequence[Document], rounds: int) -> Figure:
    prefixes = [f"fleetlight-bench-{uuid4().hex}" for _ in range(2)]
    ours, theirs = (
        open_writer(IndexSettings(backend="elasticsearch", urls=(url,), prefix=prefix)) for prefix in prefixes
    )
    client = Elasticsearch(url)
    threads = ThreadPoolExecutor(_IN_FLIGHT)
    path = f"/{prefixes[1]}-instances-write/_bulk"
    headers = {"content-type": "application/x-ndjson", "accept": "application/json"}

    def send(body: bytes) -> None:
        assert client.perform_request("POST", path, headers=headers, body=body).meta.status == 200

    try:
        ours.prepare()
        theirs.prepare()
        return _rounds(
            "ingest.write.elasticsearch",
            documents,
            rounds,
            ours,
            prepare=lambda batch: next(to_bulks(batch, {})).body,
            bare=lambda bodies: list(threads.map(send, bodies)),
            apply=threads.map,
        )
    finally:
        threads.shutdown()
        ours.close()
        theirs.close()
        names = [name for prefix in prefixes for name in client.indices.get(index=f"{prefix}*").body]
        client.indices.delete(index=names)
        client.close()


def _rounds(
    name: str,
    documents: Sequence[Document],
    rounds: int,
    writer: IndexWriter,
    *,
    prepare: Callable[[list[Document]], Any],
    bare: Callable[[Sequence[Any]], object],
    apply: Callable[[Callable[[list[Document]], WriteResult], Sequence[list[Document]]], Iterable[WriteResult]],
) -> Figure:
    """Each round writes a newer version of all documents, ours and the bare loop in turn; the first warms up."""
    rates: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        newer = [replace(document, version=number + 1) for document in documents]
        batches = [newer[start : start + _BATCH] for start in range(0, len(newer), _BATCH)]
        prepared = [prepare(batch) for batch in batches]

        def ours(batches: Sequence[list[Document]] = batches) -> None:
            for batch, written in zip(batches, apply(writer.write, batches), strict=True):
                assert written.applied == len(batch)

        def theirs(prepared: Sequence[Any] = prepared) -> None:
            bare(prepared)

        if number % 2:
            ours_s, bare_s = seconds(ours), seconds(theirs)
        else:
            bare_s, ours_s = seconds(theirs), seconds(ours)
        if number:
            rates.append((len(newer) / ours_s, len(newer) / bare_s))
    ours_rate, bare_rate = (statistics.median(rate[side] for rate in rates) for side in (0, 1))
    return figure(
        name,
        statistics.median(one / other for one, other in rates),
        "ratio",
        f"{ours_rate:,.0f} documents/s from documents to the index / {bare_rate:,.0f} of a bare loop of that client, "
        f"{len(documents)} documents a round",
        runs=rounds,
        goal=at_least(0.8),
    )
