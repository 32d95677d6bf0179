"""The addresses that the interfaces of instances have taken: MAC addresses, and those of networks."""

from sqlalchemy import Connection, delete

from fleetlight.cells.tables import network_nics, nic_macs


def give_up_interfaces(connection: Connection, instance_uuid: str) -> None:
    """The addresses of an instance are free again."""
    for table in (nic_macs, network_nics):
        connection.execute(delete(table).where(table.c.instance_uuid == instance_uuid))
