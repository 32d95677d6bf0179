"""Cells that fail as a test says."""

import threading
from collections.abc import Sequence

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow
from fleetlight.query.page import PageRequest


class Faults:
    """What is wrong with each cell (name): `down` fails at once, `hang` answers when `gate` is set, `slow` late."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}
        self.gate = threading.Event()

    def meet(self, cell: str) -> None:
        match self.of.get(cell):
            case "down":
                raise CellUnreachableError(cell, "it is stopped")
            case "hang":
                self.gate.wait(120)
            case "slow":
                threading.Event().wait(0.02)

    def heal(self) -> None:
        self.of.clear()
        self.gate.set()
        self.gate = threading.Event()


class FaultyAdapter(NativeAdapter):
    def __init__(self, cell: Cell, faults: Faults) -> None:
        super().__init__(cell)
        self._faults = faults

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self._faults.meet(self.cell.name)
        return super().read_page(request)

    def find(self, uuid: str) -> InstanceRow | None:
        self._faults.meet(self.cell.name)
        return super().find(uuid)


class FaultyNovaAdapter(NovaDbAdapter):
    def __init__(self, cell: Cell, faults: Faults) -> None:
        super().__init__(cell)
        self._faults = faults

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self._faults.meet(self.cell.name)
        return super().read_page(request)


def open_faulty(cell: Cell, faults: Faults) -> CellAdapter:
    return FaultyAdapter(cell, faults) if cell.kind is CellKind.NATIVE else FaultyNovaAdapter(cell, faults)
