"""How `fleetlight index status` and `index verify` report on the mappings of instances."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

from fleetlight.cells.findings import FindingKind
from fleetlight.cells.fleet.adoption import MappingDifferences, compare_mappings
from fleetlight.cells.fleet.compared_mappings import ComparedMappings
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.output import print_error, print_notice, print_result
from fleetlight.listing.findings import of_compared_mappings

_SHOWN = 20


def report_mappings(cells: Sequence[Cell], compared: Mapping[str, ComparedMappings], now: int) -> bool:
    """Print faults in mappings, and recent repairs. Returns whether all is well. now: Unix time in microseconds."""
    is_well = True
    for each in chain.from_iterable(of_compared_mappings(cell, compared.get(cell.uuid), now) for cell in cells):
        is_past = each.kind is FindingKind.MAPPING_REPAIRED
        is_well = is_well and is_past
        (print_notice if is_past else print_error)(f"{each.cell}: {each.evidence}; {each.remedy}")
    return is_well


def mappings_as_json(known: ComparedMappings | None) -> dict[str, Any] | None:
    """A cell's compared mappings as JSON; None if they were never compared."""
    if known is None:
        return None
    return {
        "compared_at": known.compared_at,
        "repaired": known.repaired,
        "repaired_at": known.repaired_at,
        "elsewhere": known.elsewhere,
    }


def compared_mappings_of(cell: Cell, fleet: Fleet, *, repair: bool) -> MappingDifferences | None:
    """Compare the mappings of a cell with its rows; None for a cell that the fleet database does not map.

    Raises CellUnreachableError and FleetUnreachableError.
    """
    if not cell.can.takes_changes:
        return None
    with closing(open_adapter(cell)) as adapter:
        return compare_mappings(adapter, fleet, repair=repair)


def print_mapping_differences(cell: Cell, found: MappingDifferences, *, repair: bool) -> None:
    """Print the first differences of each kind."""
    ending = "; repaired" if repair else ""
    _print(cell, found.missing, f"is not mapped in the fleet database{ending}")
    _print(cell, found.changed, f"is mapped with another project, user or deletion{ending}")
    _print(cell, found.gone, f"is mapped, and the cell does not have it{ending}")
    for uuid, other in sorted(found.elsewhere.items())[:_SHOWN]:
        print_result(f"{cell.name}: instance {uuid} is mapped to cell {other}; not repaired")


def differences_as_json(found: MappingDifferences) -> dict[str, Any]:
    return {
        "missing": sorted(found.missing),
        "changed": sorted(found.changed),
        "gone": sorted(found.gone),
        "elsewhere": dict(sorted(found.elsewhere.items())),
    }


def _print(cell: Cell, uuids: Collection[str], what: str) -> None:
    for uuid in sorted(uuids)[:_SHOWN]:
        print_result(f"{cell.name}: instance {uuid} {what}")
    if len(uuids) > _SHOWN:
        print_result(f"{cell.name}: and {len(uuids) - _SHOWN} more that {what} (--output json lists them all)")
