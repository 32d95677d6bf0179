"""What both `env.py` do: run the migrations over the connection that the caller brought."""

from alembic import context
from sqlalchemy import MetaData


def run_migrations(metadata: MetaData, version_table: str) -> None:
    """version_table: one per schema, so that a fleet and a cell can share a database."""
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=version_table,
        transactional_ddl=True,
    )
    context.run_migrations()
