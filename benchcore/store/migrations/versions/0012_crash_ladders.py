"""The contenders that needed a crash ladder are found by an index, not among all of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_12"
down_revision = "tables_11"
branch_labels = None
depends_on = None

_NAME, _TABLE = "ix_contender_run_ladder", "contender_run"


def upgrade() -> None:
    """Add the index."""
    few = sa.text("ladder IS NOT NULL")
    op.create_index(_NAME, _TABLE, ["framework"], sqlite_where=few, postgresql_where=few)


def downgrade() -> None:
    """Drop it."""
    op.drop_index(_NAME, _TABLE)
