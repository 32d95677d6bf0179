"""The nodes of a native cell with an agent, for code that queries the nodes themselves."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress, read_agents
from fleetlight.cells.model import Cell
from fleetlight.resources.fields import Record

AGENT = "agent"
"""The type of these items, which no list shows; records have the fields of AgentAddress."""

_FIELDS = tuple(each.name for each in fields(AgentAddress))


def read_agent_records(
    connection: Connection, _cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    return [{name: getattr(agent, name) for name in _FIELDS} for agent in read_agents(connection)]
