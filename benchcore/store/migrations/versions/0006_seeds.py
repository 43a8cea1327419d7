"""A start has the seed of its weights, its inputs and the order of its data."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_6"
down_revision = "tables_5"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it. So far all starts of a duel run had the duel run's."""
    op.add_column("start_run", sa.Column("seed", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("start_run", "seed")
