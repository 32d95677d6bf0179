"""Inventories of nodes: reserved amounts and allocation ratios; and traits of nodes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sqlalchemy import Engine, delete, insert, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import HostNotFoundError
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, node_traits, services


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """A change of some hosts' nodes; sizes that it does not name stay unchanged.

    reserved: amounts by size (`vcpus`, `memory_mib`, `disk_gib`). ratios: allocation ratios of the rest by size,
        cut to thousandths. traits: the complete new set of traits.
    """

    reserved: Mapping[str, int] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    traits: Collection[str] | None = None


class Inventories:
    """The inventories of one native cell. Calls raise CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell) -> None:
        self._engine = engine
        self._cell = cell

    def change(self, hosts: Collection[str], change: InventoryChange) -> None:
        """Change the nodes of all these hosts. Instances stay even if they exceed the new inventory.

        Raises HostNotFoundError, and changes nothing, if a host does not exist.
        """
        values = {f"reserved_{size}": amount for size, amount in change.reserved.items()}
        values |= {f"{size}_permille": int(Fraction(str(ratio)) * 1000) for size, ratio in change.ratios.items()}
        of_hosts = (
            select(compute_nodes.c.id, services.c.host)
            .join_from(compute_nodes, services, services.c.id == compute_nodes.c.service_id)
            .where(services.c.host.in_(hosts))
        )
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            # Lock the rows like a claim, so that no concurrent claim uses the old inventory.
            found = connection.execute(of_hosts.order_by(compute_nodes.c.id).with_for_update(of=compute_nodes)).all()
            missing = set(hosts) - {row.host for row in found}
            if missing:
                raise HostNotFoundError(min(missing))
            nodes = [row.id for row in found]
            if values:
                connection.execute(update(compute_nodes).where(compute_nodes.c.id.in_(nodes)).values(values))
            if change.traits is not None:
                connection.execute(delete(node_traits).where(node_traits.c.node_id.in_(nodes)))
                rows = [{"node_id": node, "trait": trait} for node in nodes for trait in sorted(set(change.traits))]
                if rows:
                    connection.execute(insert(node_traits), rows)
