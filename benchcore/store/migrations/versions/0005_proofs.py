"""Proofs that two environments compute the same."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ERRORS = ("oracle_error", "oracle_bound", "a_error", "a_bound", "b_error", "b_bound")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "proof",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload", sa.String(100), nullable=False),
        sa.Column("use_case", sa.String(100), nullable=False),
        sa.Column("precision", sa.String(100), nullable=False),
        sa.Column("snapshot", sa.String(64), nullable=False),
        sa.Column("device_fingerprint", sa.String(16), nullable=False),
        sa.Column("a_key", sa.String(100), nullable=False),
        sa.Column("b_key", sa.String(100), nullable=False),
        sa.Column("a", sa.String(100), nullable=False),
        sa.Column("b", sa.String(100), nullable=False),
        sa.Column("quantity", sa.Text(), nullable=False),
        sa.Column("num_seeds", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Double(), nullable=True) for name in _ERRORS),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_drift", sa.Text(), nullable=True),
        sa.Column("proved_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proof"),
    )
    op.create_index("ix_proof_subject", "proof", ["workload", "precision", "snapshot"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("ix_proof_subject", table_name="proof")
    op.drop_table("proof")
