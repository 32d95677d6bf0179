"""Every item type of queries, by name."""

from collections.abc import Mapping

from fleetlight.resources.query_fields.configuration import EXPORT, JOB_FILTER, NETWORK, OPERATING_SYSTEM
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.query_fields.instance import INSTANCE
from fleetlight.resources.query_fields.job import JOB, LOCK
from fleetlight.resources.query_fields.node import GROUP, NODE

ITEM_TYPES: Mapping[str, QueryFields] = {
    fields.name: fields for fields in (INSTANCE, NODE, GROUP, NETWORK, JOB, LOCK, OPERATING_SYSTEM, EXPORT, JOB_FILTER)
}
