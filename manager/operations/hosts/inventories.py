"""How much of a node instances may take up: without what is reserved, by its ratios; and the traits of a node."""

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
    """What is set of the nodes of some hosts; what is not named stays as it is.

    reserved: amounts by size (`vcpus`, `memory_mib`, `disk_gib`). ratios: how much of what is left instances may take
        up, by size; in thousandths, below them nothing counts. traits: all that the nodes have from now on.
    """

    reserved: Mapping[str, int] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    traits: Collection[str] | None = None


class Inventories:
    """Those of one native cell. Calls raise CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell) -> None:
        self._engine = engine
        self._cell = cell

    def change(self, hosts: Collection[str], change: InventoryChange) -> None:
        """Set it for the nodes of all these hosts, or of none: raises HostNotFoundError for one that there is not.

        Instances that are there stay, also beyond what the nodes have for them then. Raises HostNotFoundError.
        """
        values = {f"reserved_{size}": amount for size, amount in change.reserved.items()}
        values |= {f"{size}_permille": int(Fraction(str(ratio)) * 1000) for size, ratio in change.ratios.items()}
        of_hosts = (
            select(compute_nodes.c.id, services.c.host)
            .join_from(compute_nodes, services, services.c.id == compute_nodes.c.service_id)
            .where(services.c.host.in_(hosts))
        )
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            # Locked as for a claim, so that none is made by what was before.
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
