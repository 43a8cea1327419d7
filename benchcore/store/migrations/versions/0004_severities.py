"""A failed check has a severity (critical or warning), and a start has the counters that its blocks
lack."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_4"
down_revision = "tables_3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both. What failed before was critical; which counters were missing is in the documents,
    and `deadheat rebuild` reads it."""
    severity = sa.Column("severity", sa.String(100), nullable=False, server_default="critical")
    op.add_column("failed_check", severity)
    with op.batch_alter_table("failed_check") as batch:
        batch.alter_column("severity", server_default=None, existing_type=sa.String(100))
        batch.create_check_constraint("severity", "severity IN ('critical', 'warning')")
    op.add_column("start_run", sa.Column("unwatched", sa.Text(), nullable=True))


def downgrade() -> None:
    """Drop both."""
    op.drop_column("start_run", "unwatched")
    with op.batch_alter_table("failed_check") as batch:
        batch.drop_constraint(op.f("ck_failed_check_severity"), type_="check")
        batch.drop_column("severity")
