"""A duel run refers to the earlier one whose passes hold for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_5"
down_revision = "tables_4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it. So far each duel run measured its own."""
    op.add_column("duel_run", sa.Column("passes_of", sa.String(16), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("duel_run", "passes_of")
