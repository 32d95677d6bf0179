"""Which fields a caller may ask for: only administrators learn of hosts and cells, as in the compute API.

A field that a caller may not see is one that does not exist: in columns, in filters and in orders.
"""

from functools import cache

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import NotFoundError
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.query_fields.instance import MAX_NICS
from fleetlight.resources.query_fields.parameters import HYPERVISOR_PARAMETERS

_OF_LINKS = ("mode", "link", "bridge", "vlan")
_OF_ADMINISTRATORS = frozenset(
    {
        *(name for name, member in INSTANCE_FIELDS.members.items() if member.is_for_admins),
        "cell",
        "launched_on",
        # Its details are for administrators; what owners may read of it, the compute API shows.
        "fault",
        "hidden",
        "instance_type_id",
        "pnode",
        "pnode.group",
        "pnode.group.uuid",
        "snodes",
        "snodes.group",
        "snodes.group.uuid",
        "hypervisor",
        "console",
        # Paths and devices of hosts.
        "network_port",
        "hvparams",
        "custom_hvparams",
        *(f"hv/{name}" for name in HYPERVISOR_PARAMETERS),
        "custom_nicparams",
        *(f"nic.{each}s" for each in _OF_LINKS),
        *(f"nic.{each}/{index}" for each in _OF_LINKS for index in range(MAX_NICS)),
    }
)


def visible_fields(item_type: str, caller: Caller) -> QueryFields:
    """The fields of an item type that `caller` may ask for. Raises NotFoundError for what is no item type."""
    known = ITEM_TYPES.get(item_type)
    if known is None or not (caller.is_admin or item_type == "instance"):
        there_is = ", ".join(ITEM_TYPES) if caller.is_admin else "instance"
        raise NotFoundError(f"There is no item type '{item_type}'; there is: {there_is}.")
    return known if caller.is_admin else _of_owners(item_type)


@cache
def _of_owners(item_type: str) -> QueryFields:
    return ITEM_TYPES[item_type].without(_OF_ADMINISTRATORS)
