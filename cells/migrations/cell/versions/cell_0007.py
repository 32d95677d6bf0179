"""Jobs have operations, a log, dependencies, locks, and an end that stays.

Jobs that are queued or under way go on where they are: the older one of an instance before the younger one. APIs and
workers of the version before use the columns that go, and fail at what needs them until they are replaced
(docs/operations/production.md, Upgrades).

Revision ID: cell_0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "cell_0007"
down_revision = "cell_0006"
branch_labels = None
depends_on = None

_BINARY_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_JSON_VALUE = sa.JSON().with_variant(JSONB(), "postgresql")
# Texts of JSON are copied by the database: one that cannot be read is still the job's own problem, and of no other.
_TAKE_OVER = (
    """
    INSERT INTO jobs (id, status, priority, is_ready, stage, position, operation_count, request_id, user_id, project_id,
                      received_at, started_at)
    SELECT id, CASE WHEN position > 0 THEN 'running' ELSE 'queued' END, 0, {true},
           CASE WHEN position > 0 THEN 'steps' ELSE 'locks' END, 0, 1, request_id, user_id, project_id,
           created_at, CASE WHEN position > 0 THEN created_at END
    FROM earlier_jobs
    """,
    """
    INSERT INTO job_operations (job_id, position, operation, parameters, status, next_step, notes, instance_uuid,
                                instance_action_id, migration_id, started_at)
    SELECT id, 0, action, parameters, CASE WHEN position > 0 THEN 'running' ELSE 'queued' END, position, parameters,
           instance_uuid, instance_action_id, migration_id, CASE WHEN position > 0 THEN created_at END
    FROM earlier_jobs
    """,
    """
    INSERT INTO job_locks (job_id, level, name, is_shared, priority, wanted_at, held_at)
    SELECT id, 'instance', instance_uuid, {false}, 0, created_at, CASE WHEN position > 0 THEN created_at END
    FROM earlier_jobs
    """,
)


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    last_number = None
    if not is_sqlite:
        # An API or a worker of the version before may have a transaction open: what it commits has to be in the copy.
        op.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        last_number = op.get_bind().scalar(
            # No number is given out twice.
            sa.text(
                "SELECT greatest(pg_sequence_last_value(pg_get_serial_sequence('jobs', 'id')::regclass), max(id))"
                " FROM jobs"
            )
        )
    op.execute("CREATE TEMPORARY TABLE earlier_jobs AS SELECT * FROM jobs")
    op.drop_table("jobs")
    _create_jobs()
    _create_operations()
    _create_log()
    _create_dependencies()
    _create_locks()
    for statement in _TAKE_OVER:
        op.execute(statement.format(true="1" if is_sqlite else "true", false="0" if is_sqlite else "false"))
    op.execute("DROP TABLE earlier_jobs")
    if last_number is not None:
        op.execute(f"SELECT setval(pg_get_serial_sequence('jobs', 'id'), {int(last_number)})")


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("is_ready", sa.Boolean, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("operation_count", sa.Integer, nullable=False),
        sa.Column("request_id", sa.Text),
        sa.Column("user_id", _BINARY_TEXT),
        sa.Column("project_id", _BINARY_TEXT),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_jobs_ready",
        "jobs",
        ["priority", "id"],
        sqlite_where=sa.text("is_ready = 1"),
        postgresql_where=sa.text("is_ready"),
    )
    has_ended = sa.text("ended_at IS NOT NULL")
    op.create_index("ix_jobs_ended", "jobs", ["ended_at"], sqlite_where=has_ended, postgresql_where=has_ended)


def _job_id(table: str) -> tuple[sa.Column[int], sa.ForeignKeyConstraint]:
    reference = sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=f"fk_{table}_job_id", ondelete="CASCADE")
    return sa.Column("job_id", sa.BigInteger, nullable=False, autoincrement=False), reference


def _create_operations() -> None:
    op.create_table(
        "job_operations",
        *_job_id("job_operations"),
        sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("operation", sa.Text, nullable=False),
        sa.Column("parameters", _JSON_VALUE, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("next_step", sa.Integer, nullable=False),
        sa.Column("notes", _JSON_VALUE, nullable=False),
        sa.Column("result", _JSON_VALUE),
        sa.Column("instance_uuid", sa.String(36)),
        sa.Column("instance_action_id", sa.BigInteger),
        sa.Column("migration_id", sa.BigInteger),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("job_id", "position", name="pk_job_operations"),
    )
    is_live = sa.text("ended_at IS NULL")
    op.create_index(
        "ix_job_operations_of_instance",
        "job_operations",
        ["instance_uuid"],
        sqlite_where=is_live,
        postgresql_where=is_live,
    )


def _create_log() -> None:
    op.create_table(
        "job_log",
        *_job_id("job_log"),
        sa.Column("serial", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("logged_at", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("data", _JSON_VALUE, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "serial", name="pk_job_log"),
    )


def _create_dependencies() -> None:
    op.create_table(
        "job_dependencies",
        *_job_id("job_dependencies"),
        sa.Column("depends_on", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("statuses", _JSON_VALUE, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "depends_on", name="pk_job_dependencies"),
    )
    op.create_index("ix_job_dependencies_depends_on", "job_dependencies", ["depends_on"])


def _create_locks() -> None:
    op.create_table(
        "job_locks",
        *_job_id("job_locks"),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("name", _BINARY_TEXT, nullable=False),
        sa.Column("is_shared", sa.Boolean, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("wanted_at", sa.BigInteger, nullable=False),
        sa.Column("held_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("job_id", "level", "name", name="pk_job_locks"),
    )
    op.create_index("ix_job_locks_of_name", "job_locks", ["level", "name", "priority", "job_id"])
    is_held = sa.text("held_at IS NOT NULL")
    op.create_index("ix_job_locks_held", "job_locks", ["level", "name"], sqlite_where=is_held, postgresql_where=is_held)
