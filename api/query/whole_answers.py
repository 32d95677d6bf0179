"""Answers with all the items that there are, for the faces that have no pages: streamed, collected, or looked up."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetlight.api.compute.protocol.proof import AskedFreshness
from fleetlight.api.identity.caller import Caller
from fleetlight.api.query.answer import Answer
from fleetlight.api.query.answering import Answerer, proof_of
from fleetlight.api.query.named_items import columns_of, expression_of, looked_up
from fleetlight.api.query.question import question_of
from fleetlight.api.query.visible_fields import visible_fields
from fleetlight.listing.answer import Page
from fleetlight.query.filter_text import Expression
from fleetlight.views.query2.projection import Cells, Row, cells_of

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Asking:
    """What all questions of one request share.

    only: the uuids of the cells that are asked; None for all.
    """

    caller: Caller
    fresh: AskedFreshness
    only: Collection[str] | None = None


class RowStream:
    """The rows of an answer while they are read.

    proof: what the first batch covers. is_one_batch: whether there is no other. is_complete: whether all batches so far
    have every row. has_lost: whether a later batch lacks rows of a cell that the first one had in full.
    """

    def __init__(self, first: Answer, rest: AsyncIterator[Answer]) -> None:
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


async def parts_of(rows: RowStream, to_item: Callable[[Row], Any], begin: bytes, end: bytes) -> AsyncIterator[bytes]:
    """The JSON of the items that `to_item` makes of the rows, batch by batch, between `begin` and `end`."""
    yield begin
    separator = b""
    async for batch in rows.batches():
        if batch:
            yield separator + b",".join(_encode(to_item(row)) for row in batch)
            separator = b","
    yield end


def _incomplete(proof: Page) -> set[str]:
    """The cells that are not complete, by their uuids; the empty text for those that are not known."""
    unknown = set() if proof.has_all_cells else {""}
    return unknown | {answer.cell.uuid for answer in proof.cells if not answer.is_complete}


@dataclass(frozen=True, slots=True)
class Collected:
    """rows: the cells of each item. proof: of which cells they are, and how these were asked."""

    rows: Sequence[Cells]
    proof: Page


class WholeAnswers:
    """Asks the engine of queries for every item that an expression lets pass.

    Every question raises QueryError, BadRequestError, NotFoundError, ForbiddenError, FleetUnreachableError.
    """

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    async def stream(
        self, asking: Asking, item_type: str, names: Sequence[str], expression: Expression | None
    ) -> RowStream:
        """The rows, of which the first batch has been read; nothing else of them is kept."""
        batches = self._batches(asking, item_type, names, expression)
        return RowStream(await anext(batches), batches)

    async def collect(
        self, asking: Asking, item_type: str, names: Sequence[str], expression: Expression | None = None
    ) -> Collected:
        rows: list[Cells] = []
        proofs: list[Page] = []
        async for batch in self._batches(asking, item_type, names, expression):
            rows += (cells_of(cells) for _, cells in batch.rows)
            proofs.append(batch.proof)
        return Collected(rows, proof_of(proofs))

    async def look_up(
        self, asking: Asking, item_type: str, names: Sequence[str], wanted: Sequence[str | int]
    ) -> Collected:
        """The items called `wanted` (fleetlight.api.query.named_items), as often and in that order. Raises
        ItemLookupError too.
        """
        known = visible_fields(item_type, asking.caller)
        found = await self.collect(asking, item_type, columns_of(known, names), expression_of(known, wanted))
        rows = looked_up(known, names, wanted, found.rows, is_certain=found.proof.is_complete)
        return Collected(rows, found.proof)

    def _batches(
        self, asking: Asking, item_type: str, names: Sequence[str], expression: Expression | None
    ) -> AsyncIterator[Answer]:
        known = visible_fields(item_type, asking.caller)
        question = question_of(known, names, expression, all_projects=asking.caller.is_admin)
        return self._answerer.batches(question, asking.caller, asking.fresh, asking.only)
