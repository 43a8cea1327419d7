"""Where the time of a start's steps went, and whether its clock could tell its blocks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNTERS = ("shortest_block_ns", "clock_resolution_ns")


def upgrade() -> None:
    """Add the columns; earlier documents did not say."""
    with op.batch_alter_table("start_run") as table:
        for name in _COUNTERS:
            table.add_column(sa.Column(name, sa.BigInteger(), nullable=True))
        table.add_column(sa.Column("profile", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("start_run") as table:
        table.drop_column("profile")
        for name in reversed(_COUNTERS):
            table.drop_column(name)
