"""The database holds the lock of each environment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_10"
down_revision = "tables_9"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table. The next ingest fills it from the folders of environments."""
    op.create_table(
        "environment_lock",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_environment_lock"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("environment_lock")
