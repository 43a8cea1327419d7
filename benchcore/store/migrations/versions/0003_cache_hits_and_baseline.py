"""A start's cache hits, and what its process held before the work began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ADDED = ("cache_hits", "process_baseline_bytes")


def upgrade() -> None:
    """Add the columns; earlier documents did not say."""
    with op.batch_alter_table("start_run") as table:
        for name in _ADDED:
            table.add_column(sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop them."""
    with op.batch_alter_table("start_run") as table:
        for name in reversed(_ADDED):
            table.drop_column(name)
