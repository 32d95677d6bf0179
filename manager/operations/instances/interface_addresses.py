"""The MAC and network addresses of instances' interfaces."""

from sqlalchemy import Connection, delete

from fleetlight.cells.tables import network_nics, nic_macs


def give_up_interfaces(connection: Connection, instance_uuid: str) -> None:
    """Release the addresses of an instance."""
    for table in (nic_macs, network_nics):
        connection.execute(delete(table).where(table.c.instance_uuid == instance_uuid))
