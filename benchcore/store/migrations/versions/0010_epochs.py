"""What a duel trained on, and what came of each epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing had epochs before."""
    with op.batch_alter_table("duel_run") as table:
        table.add_column(sa.Column("dataset", sa.JSON(none_as_null=True), nullable=True))
    with op.batch_alter_table("start_run") as table:
        table.add_column(sa.Column("epochs", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("start_run") as table:
        table.drop_column("epochs")
    with op.batch_alter_table("duel_run") as table:
        table.drop_column("dataset")
