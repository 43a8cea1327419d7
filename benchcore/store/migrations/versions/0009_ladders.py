"""What a contender's crash ladder tried, and what it left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column: null for what was measured before, until it is ingested again."""
    with op.batch_alter_table("contender_run") as table:
        table.add_column(sa.Column("ladder", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("contender_run") as table:
        table.drop_column("ladder")
