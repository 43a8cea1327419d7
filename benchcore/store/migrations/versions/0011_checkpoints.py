"""Whose weights a duel and a proof had."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_TABLES = ("duel_run", "proof")


def upgrade() -> None:
    """Add the columns; before, all weights were seeded."""
    for name in _TABLES:
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("checkpoint", sa.String(length=64), nullable=True))


def downgrade() -> None:
    """Drop them."""
    for name in _TABLES:
        with op.batch_alter_table(name) as table:
            table.drop_column("checkpoint")
