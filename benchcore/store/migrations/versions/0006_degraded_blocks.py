"""How many blocks of a start were degraded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; earlier medians are over all blocks, until ingested again."""
    with op.batch_alter_table("start_run") as table:
        table.add_column(sa.Column("num_degraded", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("start_run") as table:
        table.drop_column("num_degraded")
