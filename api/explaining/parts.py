"""What every explanation is made of: cells, sources, times."""

from collections.abc import Mapping
from typing import Any

from fleetlight.listing.answer import CellAnswer
from fleetlight.listing.explanation import Query


def cell_shown(answer: CellAnswer, *, why: str | None, matching: int | None) -> Mapping[str, Any]:
    """What a cell contributed. why: the reason for its route, unless it failed. matching: rows that it has in all."""
    if answer.failure is not None:
        why = f"it is down: {answer.failure}" if answer.is_down else f"it is not complete: {answer.failure}"
    return {
        "cell": answer.cell.name,
        "uuid": answer.cell.uuid,
        "route": answer.route.value,
        "complete": answer.is_complete,
        "watermark": answer.watermark,
        "age_s": None if answer.age_s is None else round(answer.age_s, 3),
        "matching": matching,
        "why": why,
    }


def source_shown(name: str, query: Query | None, *, batches: int, rows: int, duration_s: float) -> Mapping[str, Any]:
    """One source of the rows, and the compiled query."""
    return {"source": name, "batches": batches, "rows": rows, "duration_ms": milliseconds(duration_s), "query": query}


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
