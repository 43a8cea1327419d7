"""A proof's columns are named for what they compare: the references in float64."""

from __future__ import annotations

from alembic import op

revision = "tables_8"
down_revision = "tables_7"
branch_labels = None
depends_on = None

_COLUMNS = ("error", "bound")


def upgrade() -> None:
    """Rename them."""
    for each in _COLUMNS:
        op.alter_column("proof", f"oracle_{each}", new_column_name=f"reference_{each}")


def downgrade() -> None:
    """Give them their old names back."""
    for each in _COLUMNS:
        op.alter_column("proof", f"reference_{each}", new_column_name=f"oracle_{each}")
