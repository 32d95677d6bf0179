"""Runs the migrations for both `env.py`, over the connection of the caller."""

from alembic import context
from sqlalchemy import MetaData


def run_migrations(metadata: MetaData, version_table: str) -> None:
    """Run the migrations. version_table: one per schema, so that a fleet and a cell can share a database."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=version_table,
        transactional_ddl=True,
    )
    context.run_migrations()
