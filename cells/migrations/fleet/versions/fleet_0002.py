"""What belongs to the whole fleet: flavors, key pairs, quotas, server groups.

Revision ID: fleet_0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.cells.fleet.compute.default_flavors import DEFAULT_FLAVORS

revision = "fleet_0002"
down_revision = "fleet_0001"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _create_flavors()
    op.create_table(
        "keypairs",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_keypairs"),
    )
    op.create_index("ix_keypairs_user_id_name", "keypairs", ["user_id", "name"], unique=True)
    op.create_table(
        "quota_limits",
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("limit", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quota_limits"),
    )
    op.create_table(
        "quota_defaults",
        sa.Column("resource", sa.Text, nullable=False),
        sa.Column("limit", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("resource", name="pk_quota_defaults"),
    )
    _create_server_groups()


def _create_flavors() -> None:
    flavors = op.create_table(
        "flavors",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("flavorid", _BINARY_TEXT, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("memory_mb", sa.BigInteger, nullable=False),
        sa.Column("vcpus", sa.BigInteger, nullable=False),
        sa.Column("root_gb", sa.BigInteger, nullable=False),
        sa.Column("ephemeral_gb", sa.BigInteger, nullable=False),
        sa.Column("swap", sa.BigInteger, nullable=False),
        sa.Column("rxtx_factor", sa.Double, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("extra_specs", _JSON, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_flavors"),
        sa.UniqueConstraint("flavorid", name="uq_flavors_flavorid"),
        sa.UniqueConstraint("name", name="uq_flavors_name"),
    )
    op.create_table(
        "flavor_access",
        sa.Column("flavor_number", sa.BigInteger, nullable=False),
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.ForeignKeyConstraint(["flavor_number"], ["flavors.number"], name="fk_flavor_access_flavor_number"),
        sa.PrimaryKeyConstraint("flavor_number", "project_id", name="pk_flavor_access"),
    )
    op.bulk_insert(
        flavors,
        [
            {
                "flavorid": str(number),
                "name": flavor.name,
                "memory_mb": flavor.memory_mb,
                "vcpus": flavor.vcpus,
                "root_gb": flavor.root_gb,
                "ephemeral_gb": flavor.ephemeral_gb,
                "swap": flavor.swap,
                "rxtx_factor": 1.0,
                "is_public": True,
                "disabled": False,
                "extra_specs": flavor.extra_specs,
            }
            for number, flavor in enumerate(DEFAULT_FLAVORS, start=1)
        ],
    )


def _create_server_groups() -> None:
    op.create_table(
        "server_groups",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("project_id", _BINARY_TEXT, nullable=False),
        sa.Column("user_id", _BINARY_TEXT, nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("max_server_per_host", sa.BigInteger),
        sa.PrimaryKeyConstraint("number", name="pk_server_groups"),
        sa.UniqueConstraint("uuid", name="uq_server_groups_uuid"),
    )
    op.create_index("ix_server_groups_project_id", "server_groups", ["project_id"])
    op.create_table(
        "server_group_members",
        sa.Column("group_uuid", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["group_uuid"], ["server_groups.uuid"], name="fk_server_group_members_group_uuid"),
        sa.PrimaryKeyConstraint("group_uuid", "instance_uuid", name="pk_server_group_members"),
    )
    op.create_index("ix_server_group_members_instance_uuid", "server_group_members", ["instance_uuid"])
