"""How `fleetlight list` shows each type of items: default fields, and formats of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleetlight.cli.query_table import Format, joined

_NIC_LISTS = ("ips", "macs", "modes", "links", "bridges", "networks")


class ItemWord(StrEnum):
    """The types of items, as the command line names them."""

    INSTANCES = "instances"
    NODES = "nodes"
    GROUPS = "groups"
    NETWORKS = "networks"
    JOBS = "jobs"
    LOCKS = "locks"
    OPERATING_SYSTEMS = "os"
    EXPORTS = "exports"
    FILTERS = "filters"

    @property
    def item_type(self) -> str:
        """The name of the type in queries."""
        return self.value if self is ItemWord.OPERATING_SYSTEMS else self.value.removesuffix("s")


@dataclass(frozen=True, slots=True)
class ListForm:
    """fields: the default fields, those of contracts/ganeti-query, 7, and the cell.

    formats: formats of some fields, in place of the format of their kind.
    """

    fields: Sequence[str]
    formats: Mapping[str, Format] = field(default_factory=dict)


def _parameters(value: object) -> str:
    """Format parameters as name=value (contracts/ganeti-query, 7)."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name}={each}" for name, each in value.items()) or "(empty)"


def _pending(value: object) -> str:
    """Format each lock mode with the jobs that wait for it."""
    if not isinstance(value, list) or not value:
        return "-"
    return ",".join(f"{mode}:{','.join(owners)}" for mode, owners in value)


def _connections(value: object) -> str:
    """Format each group with mode, link and VLAN."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(f"{group} ({', '.join(map(str, how))})" for group, *how in value)


def _joined(*names: str) -> dict[str, Format]:
    return dict.fromkeys(names, joined)


LIST_FORMS: Mapping[ItemWord, ListForm] = {
    ItemWord.INSTANCES: ListForm(
        ("name", "cell", "pnode", "status", "be/memory"),
        _joined(
            "tags",
            "disk.sizes",
            "snodes",
            "snodes.group",
            "snodes.group.uuid",
            *(f"nic.{name}" for name in _NIC_LISTS),
        ),
    ),
    ItemWord.NODES: ListForm(
        ("name", "cell", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt"),
        _joined("pinst_list", "sinst_list", "tags"),
    ),
    ItemWord.GROUPS: ListForm(
        ("name", "cell", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams"),
        {**_joined("node_list", "pinst_list"), "ndparams": _parameters},
    ),
    ItemWord.NETWORKS: ListForm(
        ("name", "cell", "network", "gateway", "mac_prefix", "group_list", "tags"),
        {**_joined("inst_list", "tags"), "group_list": _connections},
    ),
    ItemWord.JOBS: ListForm(("id", "cell", "status", "summary"), _joined("summary")),
    ItemWord.LOCKS: ListForm(("name", "cell", "mode", "owner", "pending"), {**_joined("owner"), "pending": _pending}),
    ItemWord.OPERATING_SYSTEMS: ListForm(("name", "cell", "valid", "variants"), _joined("variants", "api_versions")),
    ItemWord.EXPORTS: ListForm(("node", "cell", "export")),
    ItemWord.FILTERS: ListForm(("uuid", "cell", "priority", "action")),
}


def first_fields(word: ItemWord, chosen: str | None) -> Sequence[str]:
    """The fields to list: the chosen ones, after the default fields if they begin with a +."""
    usual = LIST_FORMS[word].fields
    if chosen is None:
        return usual
    names = chosen.removeprefix("+").split(",")
    return (*usual, *names) if chosen.startswith("+") else names


def in_cell(expression: Sequence[Any] | None, cell: str | None) -> Sequence[Any] | None:
    """Restrict the expression to the items of one cell, if one is given."""
    if cell is None:
        return expression
    of_cell = ["==", "cell", cell]
    return of_cell if expression is None else ["&", of_cell, expression]
