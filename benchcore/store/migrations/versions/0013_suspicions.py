"""What history makes us ask."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_SERIES = ("workload", "case_name", "track")
_ARMS = ("a_arm", "b_arm")
_RUNS = ("before_run", "since_run", "after_run")
_TIMES = ("opened_at", "updated_at")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "suspicion",
        sa.Column("id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(100), nullable=False) for name in (*_SERIES, *_ARMS)),
        sa.Column("device_fingerprint", sa.String(16), nullable=False),
        sa.Column("method", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint", sa.String(64), nullable=True),
        sa.Column("trigger", sa.String(100), nullable=False),
        *(sa.Column(name, sa.String(16), nullable=False) for name in _RUNS),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=True) for name in ("low", "high")),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(100), nullable=False),
        sa.Column("finding", sa.JSON(), nullable=True),
        *(sa.Column(name, sa.DateTime(timezone=True), nullable=False) for name in _TIMES),
        *(
            sa.ForeignKeyConstraint(
                [name], ["duel_run.id"], name=f"fk_suspicion_{name}", ondelete="CASCADE"
            )
            for name in _RUNS
        ),
        sa.PrimaryKeyConstraint("id", name="pk_suspicion"),
    )
    op.create_index("ix_suspicion_series", "suspicion", [*_SERIES, "device_fingerprint"])
    op.create_index("ix_suspicion_state", "suspicion", ["state"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_suspicion_state", table_name="suspicion")
    op.drop_index("ix_suspicion_series", table_name="suspicion")
    op.drop_table("suspicion")
