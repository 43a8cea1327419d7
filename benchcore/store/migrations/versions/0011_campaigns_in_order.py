"""The campaigns' order is read from an index, not from every duel run."""

from __future__ import annotations

from alembic import op

revision = "tables_11"
down_revision = "tables_10"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Replace the index of campaigns."""
    op.drop_index("ix_duel_run_campaign", "duel_run")
    op.create_index("ix_duel_run_campaign_started_at", "duel_run", ["campaign", "started_at"])


def downgrade() -> None:
    """Put back the index of campaigns alone."""
    op.drop_index("ix_duel_run_campaign_started_at", "duel_run")
    op.create_index("ix_duel_run_campaign", "duel_run", ["campaign"])
