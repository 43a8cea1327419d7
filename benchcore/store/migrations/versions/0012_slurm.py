"""The Slurm job around a duel."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; before, only the job's id was kept."""
    with op.batch_alter_table("duel_run") as table:
        table.add_column(sa.Column("slurm", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    with op.batch_alter_table("duel_run") as table:
        table.drop_column("slurm")
