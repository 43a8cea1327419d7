"""What ended a duel run: its target, its budget, or its largest number of starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; null = measured when the number of starts was fixed."""
    op.add_column("duel_run", sa.Column("stopped_by", sa.String(length=100), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("duel_run", "stopped_by")
