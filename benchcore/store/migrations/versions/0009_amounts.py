"""Contender runs hold their tracked metrics over all starts, so that histories need not read these.

A later metric that needs a new column of the starts is not there yet: then drop `fill_amounts`.
What has no amounts is computed from its starts whenever it is read.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.orm import Session

from benchcore.store.metric_values import fill_amounts

revision = "tables_9"
down_revision = "tables_8"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and fill it."""
    op.add_column("contender_run", sa.Column("amounts", sa.JSON(), nullable=True))
    with Session(op.get_bind()) as session:
        fill_amounts(session)


def downgrade() -> None:
    """Drop it."""
    op.drop_column("contender_run", "amounts")
