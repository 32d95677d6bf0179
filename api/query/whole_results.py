"""Results with all items, for faces without pages: streamed, collected, or looked up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import Wanted, query_of
from fleetlight.api.query.named_items import (
    CALLED_BY_OTHERS,
    NamedItem,
    columns_of,
    filter_of,
    found_of,
    looked_up,
    lost_job,
)
from fleetlight.api.query.results import QueryResult
from fleetlight.api.query.scope import visible_fields
from fleetlight.listing.admission import Admission
from fleetlight.listing.answer import Page, ReadOptions, proof_of
from fleetlight.views.query2.projection import Cells, Row, cells_of

MAX_LOOKED_UP_BYTES = 64 * 2**20
"""The size limit of an answer with lookups by name, which holds all items to order them."""
PIECE_BYTES = 64 * 1024

_encode = msgspec.json.Encoder().encode
_raw_cells = msgspec.json.Decoder(list[msgspec.Raw]).decode
_cell = msgspec.json.Decoder(tuple[int, Any]).decode


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The context that all queries of one request share.

    only: uuids of the cells to ask; None for all. parts: number of parts of the request's body; many parts are handled
    in a thread (fleetlight.api.limits.large_bodies).
    """

    caller: Caller
    fresh: ReadOptions
    only: Collection[str] | None = None
    parts: int = 0


class RowStream:
    """The rows of an answer while they are read.

    proof: coverage of the first batch. is_one_batch: whether it is the only one. is_complete: whether all batches so
    far are complete. has_lost: whether a later batch lacks rows of a cell that the first one had in full.
    """

    def __init__(self, first: QueryResult, rest: AsyncIterator[QueryResult]) -> None:
        self._first = first
        self._rest = rest
        self.proof = first.proof
        self.is_one_batch = first.after is None
        self.is_complete = first.proof.is_complete
        self.has_lost = False

    async def batches(self) -> AsyncIterator[Sequence[Row]]:
        yield self._first.rows
        async for batch in self._rest:
            self.is_complete = self.is_complete and batch.proof.is_complete
            self.has_lost = self.has_lost or bool(_incomplete(batch.proof) - _incomplete(self.proof))
            yield batch.rows


@dataclass(frozen=True, slots=True)
class LookedUp:
    """Items looked up by name.

    rows: the JSON of each item, in the order of the names and as often. size: their bytes.
    proof: see Collected. admission: the limits of the request.
    """

    rows: Sequence[msgspec.Raw]
    size: int
    proof: Page
    admission: Admission


async def parts_of(rows: RowStream, to_item: Callable[[Row], Any], begin: bytes, end: bytes) -> AsyncIterator[bytes]:
    """Yield the JSON of `to_item` of each row, batch by batch, between `begin` and `end`."""
    yield begin
    separator = b""
    async for batch in rows.batches():
        if batch:
            yield separator + b",".join(_encode(to_item(row)) for row in batch)
            separator = b","
    yield end


async def pieces_of(items: LookedUp, to_item: Callable[[Any], Any], begin: bytes, end: bytes) -> AsyncIterator[bytes]:
    """As `parts_of`, for looked-up items. A repeated item is written each time, and kept once."""
    with items.admission.handing_over(items.size):
        piece = bytearray(begin)
        for number, item in enumerate(items.rows):
            piece += b"," if number else b""
            piece += _encode(to_item(item))
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
                # Let other requests run, even if the caller takes everything at once.
                await asyncio.sleep(0)
        yield bytes(piece) + end


def _incomplete(proof: Page) -> set[str]:
    """Return the uuids of incomplete cells, and the empty text if there may be unknown cells."""
    unknown = set() if proof.has_all_cells else {""}
    return unknown | {answer.cell.uuid for answer in proof.cells if not answer.is_complete}


@dataclass(frozen=True, slots=True)
class Collected:
    """All items. rows: the values of each. proof: the cells asked, and their routes."""

    rows: Sequence[Cells]
    proof: Page


class WholeResults:
    """Reads every item that matches an expression, by the query engine.

    Each query raises QueryError, BadRequestError, NotFoundError, ForbiddenError, FleetUnreachableError.
    """

    def __init__(self, query_engine: QueryEngine) -> None:
        self._query_engine = query_engine

    async def stream(self, asking: QueryContext, item_type: str, names: Sequence[str], expression: Wanted) -> RowStream:
        """Begin a query; returns its rows after the first batch was read."""
        batches = await self._batches(asking, item_type, names, expression)
        return RowStream(await anext(batches), batches)

    async def collect(
        self, asking: QueryContext, item_type: str, names: Sequence[str], expression: Wanted = None
    ) -> Collected:
        rows: list[Cells] = []
        proofs: list[Page] = []
        async for batch in await self._batches(asking, item_type, names, expression):
            rows += (cells_of(cells) for _, cells in batch.rows)
            proofs.append(batch.proof)
        return Collected(rows, proof_of(proofs))

    async def look_up(
        self, asking: QueryContext, item_type: str, names: Sequence[str], wanted: Sequence[str | int]
    ) -> LookedUp:
        """Return the items named `wanted` (fleetlight.api.query.named_items), in that order and as often.

        Also raises ItemLookupError, and BadRequestError for items of more than MAX_LOOKED_UP_BYTES together.
        """
        known = visible_fields(item_type, asking.caller)
        proofs: list[Page] = []
        if (others := CALLED_BY_OTHERS.get(item_type)) is not None:
            proofs.append((await self.look_up(asking, others, [], wanted)).proof)
        columns = columns_of(known, names)
        before = len(columns) - len(names)
        found: list[NamedItem[msgspec.Raw]] = []
        size = 0
        expression = await made_aside(asking.parts, lambda: filter_of(known, wanted))
        async for batch in await self._batches(asking, item_type, columns, expression):
            proofs.append(batch.proof)
            for _, raw in batch.rows:
                cells = _raw_cells(raw)
                rest = msgspec.Raw(_encode(cells[before:]))
                size += len(rest)
                found.append(found_of(known, [_cell(each) for each in cells[:before]], rest))
            if size > MAX_LOOKED_UP_BYTES:
                most = f"{MAX_LOOKED_UP_BYTES // 2**20} MiB"
                raise BadRequestError(f"The answer has more than {most}; ask for fewer names, or fewer fields, at once")
        proof = proof_of(proofs)

        def lost(number: str | int) -> msgspec.Raw:
            return msgspec.Raw(_encode(lost_job(known, names, number, is_certain=proof.is_complete)))

        rows = await made_aside(
            len(wanted) + len(found), lambda: looked_up(known, wanted, found, lost, is_certain=proof.is_complete)
        )
        return LookedUp(rows, size, proof, asking.fresh.admission)

    async def _batches(
        self, asking: QueryContext, item_type: str, names: Sequence[str], expression: Wanted
    ) -> AsyncIterator[QueryResult]:
        known = visible_fields(item_type, asking.caller)
        question = await made_aside(
            asking.parts, lambda: query_of(known, names, expression, all_projects=asking.caller.is_admin)
        )
        return self._query_engine.all_rows(question, asking.caller, asking.fresh, asking.only)
