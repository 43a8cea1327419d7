"""The duel runs without checks are found by an index, not among all of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_13"
down_revision = "tables_12"
branch_labels = None
depends_on = None

_NAME, _TABLE = "ix_duel_run_unchecked", "duel_run"


def upgrade() -> None:
    """Add the index."""
    few = sa.text("checked_at IS NULL")
    op.create_index(_NAME, _TABLE, ["campaign"], sqlite_where=few, postgresql_where=few)


def downgrade() -> None:
    """Drop it."""
    op.drop_index(_NAME, _TABLE)
