"""What a contender's failure was, and the GPU's faults that the kernel logged meanwhile."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns: null for what was measured before, until it is ingested again."""
    with op.batch_alter_table("contender_run") as table:
        table.add_column(sa.Column("cause", sa.String(length=100), nullable=True))
        table.add_column(sa.Column("xids", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("contender_run") as table:
        table.drop_column("xids")
        table.drop_column("cause")
