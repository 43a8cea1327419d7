"""Series continue across a new METHOD, so a suspicion no longer belongs to one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_2"
down_revision = "tables_1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the method of suspicions."""
    op.drop_column("suspicion", "method")


def downgrade() -> None:
    """Bring it back, as that of the first method."""
    method = sa.Column("method", sa.BigInteger(), nullable=False, server_default="1")
    op.add_column("suspicion", method)
