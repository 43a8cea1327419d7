"""What is still to be told of an event."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of events that are there, everything was told."""
    op.add_column("event", sa.Column("untold", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("event", "untold")
