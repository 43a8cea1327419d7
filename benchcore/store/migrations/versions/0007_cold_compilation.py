"""Stages and cache hits with empty caches, of a process that was not timed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    with op.batch_alter_table("contender_run") as table:
        table.add_column(sa.Column("cold", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("contender_run") as table:
        table.drop_column("cold")
