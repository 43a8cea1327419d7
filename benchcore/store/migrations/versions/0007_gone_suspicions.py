"""A suspicion can have the state `gone`, and an index finds duel runs by their time."""

from __future__ import annotations

from alembic import op

revision = "tables_7"
down_revision = "tables_6"
branch_labels = None
depends_on = None

_STATES = ("open", "confirmed", "refuted", "unknown", "passed")


def _allow(states: tuple[str, ...]) -> None:
    quoted = ", ".join(f"'{each}'" for each in states)
    with op.batch_alter_table("suspicion") as batch:
        batch.drop_constraint(op.f("ck_suspicion_state"), type_="check")
        batch.create_check_constraint("state", f"state IN ({quoted})")


def upgrade() -> None:
    """Allow the state, and add the index."""
    _allow((*_STATES, "gone"))
    op.create_index("ix_duel_run_started_at", "duel_run", ["started_at"])


def downgrade() -> None:
    """Drop the index. Gone suspicions have passed, as history shows them no more."""
    op.drop_index("ix_duel_run_started_at", "duel_run")
    op.execute("UPDATE suspicion SET state = 'passed' WHERE state = 'gone'")
    _allow(_STATES)
