"""Statuses are checked against a known set, and a duel run has the number of rows of its
document."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_3"
down_revision = "tables_2"
branch_labels = None
depends_on = None

_STATUSES = (
    *("ok", "workaround", "oom", "killed", "crash", "timeout", "numerics", "invalid_physics"),
    *("unsupported", "environment"),
)
_EVENT_STATES = (
    *("untriaged", "investigating", "infrastructure", "invalid", "duplicate", "accepted", "fixed"),
    *("wont_fix", "improvement"),
)
_CHECKS = (
    ("contender_run", "status", _STATUSES),
    ("start_run", "status", _STATUSES),
    ("ratio", "verdict", ("same", "different", "unknown")),
    ("suspicion", "state", ("open", "confirmed", "refuted", "unknown", "passed")),
    ("event", "state", _EVENT_STATES),
)
_PARTS = """
UPDATE duel_run SET num_parts =
    (SELECT count(*) FROM contender_run WHERE contender_run.duel_run = duel_run.id)
    + (SELECT count(*) FROM start_run WHERE start_run.duel_run = duel_run.id)
    + (SELECT count(*) FROM equivalence WHERE equivalence.duel_run = duel_run.id)
"""


def upgrade() -> None:
    """Add the checks, and count the rows that are there."""
    for table, column, allowed in _CHECKS:
        quoted = ", ".join(f"'{each}'" for each in allowed)
        with op.batch_alter_table(table) as batch:
            batch.create_check_constraint(column, f"{column} IN ({quoted})")
    op.add_column("duel_run", sa.Column("num_parts", sa.BigInteger(), nullable=True))
    op.execute(_PARTS)
    with op.batch_alter_table("duel_run") as batch:
        batch.alter_column("num_parts", nullable=False, existing_type=sa.BigInteger())


def downgrade() -> None:
    """Drop both. SQLite copies a table without its checks, which Alembic does not see."""
    op.drop_column("duel_run", "num_parts")
    for table, column, _ in _CHECKS:
        if op.get_bind().dialect.name == "sqlite":
            with op.batch_alter_table(table, recreate="always"):
                pass
        else:
            op.drop_constraint(f"ck_{table}_{column}", table)
