"""What people triage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("suspicion", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(100), nullable=False),
        sa.Column("owner", sa.String(100), nullable=True),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["suspicion"], ["suspicion.id"], name="fk_event_suspicion", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.UniqueConstraint("suspicion"),
    )
    op.create_index("ix_event_state", "event", ["state"])
    op.create_table(
        "event_change",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(100), nullable=False),
        sa.Column("old", sa.String(100), nullable=True),
        sa.Column("new", sa.String(100), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event"], ["event.id"], name="fk_event_change_event", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event_change"),
    )
    op.create_index("ix_event_change_event", "event_change", ["event"])


def downgrade() -> None:
    """Drop them."""
    op.drop_index("ix_event_change_event", table_name="event_change")
    op.drop_table("event_change")
    op.drop_index("ix_event_state", table_name="event")
    op.drop_table("event")
