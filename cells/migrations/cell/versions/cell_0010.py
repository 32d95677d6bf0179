"""A cell has what Ganeti's clusters have: networks, operating systems, filters of jobs, parameters of its own.

Its hosts are simulated ones, which can install what the simulator's instances are made from.

Revision ID: cell_0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.resources.clock import system_clock

revision = "cell_0010"
down_revision = "cell_0009"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")
_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UUID = sa.String(36)
_SYSTEMS = {
    "cirros-0.6.3": "70a599e0-31e7-49b7-b260-868f441e862b",
    "debian-12": "3a8bc58e-4d60-546d-aa62-66b5b8bf0435",
    "rocky-9": "21eb97bb-faf1-58a0-a8b8-3119f3d1b613",
    "ubuntu-24.04": "2b4163e9-5d90-500c-95e3-bd5d29f078a7",
}


def upgrade() -> None:
    _create_networks()
    op.create_table(
        "job_filters",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("predicates", _JSON_VALUE, nullable=False),
        sa.Column("action", _JSON_VALUE, nullable=False),
        sa.Column("watermark", sa.BigInteger, nullable=False),
        sa.Column("reason_trail", _JSON_VALUE, nullable=False),
        sa.UniqueConstraint("uuid", name="uq_job_filters_uuid"),
    )
    _create_systems()
    _create_parameters()


def _create_networks() -> None:
    op.create_table(
        "networks",
        sa.Column("id", _ROW_NUMBER, primary_key=True),
        sa.Column("uuid", _UUID, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("gateway", sa.Text),
        sa.Column("network6", sa.Text),
        sa.Column("gateway6", sa.Text),
        sa.Column("mac_prefix", sa.Text),
        sa.Column("external_reservations", _JSON_VALUE, nullable=False),
        sa.Column("tags", _JSON_VALUE, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("uuid", name="uq_networks_uuid"),
        sa.UniqueConstraint("name", name="uq_networks_name"),
    )
    op.create_table(
        "network_connections",
        sa.Column("network_uuid", _UUID, primary_key=True),
        sa.Column("group_uuid", _UUID, primary_key=True),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("link", sa.Text, nullable=False),
        sa.Column("vlan", sa.Text, nullable=False),
    )
    op.create_table(
        "network_nics",
        sa.Column("instance_uuid", _UUID, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("network_uuid", _UUID, nullable=False),
        sa.Column("address", sa.Text),
        sa.UniqueConstraint("network_uuid", "address", name="uq_network_nics_network_uuid_address"),
    )


def _create_systems() -> None:
    systems = op.create_table(
        "operating_systems",
        sa.Column("name", _BINARY_TEXT, primary_key=True),
        sa.Column("image_ref", sa.Text),
        sa.Column("variants", _JSON_VALUE, nullable=False),
        sa.Column("api_versions", _JSON_VALUE, nullable=False),
        sa.Column("parameters", _JSON_VALUE, nullable=False),
        sa.Column("trusted", sa.Boolean, nullable=False),
    )
    op.bulk_insert(
        systems,
        [
            {
                "name": name,
                "image_ref": image,
                "variants": [],
                "api_versions": [20],
                "parameters": [],
                "trusted": True,
            }
            for name, image in _SYSTEMS.items()
        ],
    )


def _create_parameters() -> None:
    parameters = op.create_table(
        "cluster_parameters",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("parameters", _JSON_VALUE, nullable=False),
        sa.Column("tags", _JSON_VALUE, nullable=False),
        sa.Column("serial_no", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    now = system_clock()
    op.bulk_insert(
        parameters, [{"id": 1, "parameters": {}, "tags": [], "serial_no": 1, "created_at": now, "updated_at": now}]
    )
