"""All tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tables_1"
"""Databases from before the first release have the revisions 0001 to 0015, which are refused."""
down_revision = None
branch_labels = None
depends_on = None

_JSON = sa.JSON(none_as_null=True)
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "duel_run",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("campaign", sa.String(length=100), nullable=False),
        sa.Column("duel_hash", sa.String(length=16), nullable=False),
        sa.Column("workload", sa.String(length=100), nullable=False),
        sa.Column("case_name", sa.String(length=100), nullable=False),
        sa.Column("use_case", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("precision", sa.Text(), nullable=False),
        sa.Column("track", sa.String(length=100), nullable=False),
        sa.Column("sizes", _JSON, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("num_starts", sa.BigInteger(), nullable=False),
        sa.Column("num_rounds", sa.BigInteger(), nullable=False),
        sa.Column("stopped_by", sa.String(length=100), nullable=True),
        sa.Column("flops_per_step", sa.BigInteger(), nullable=False),
        sa.Column("least_bytes_per_step", sa.BigInteger(), nullable=False),
        sa.Column("dataset", _JSON, nullable=True),
        sa.Column("checkpoint", sa.String(length=64), nullable=True),
        sa.Column("harness_version", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.String(length=64), nullable=False),
        sa.Column("schema", sa.BigInteger(), nullable=False),
        sa.Column("method", sa.BigInteger(), nullable=False),
        sa.Column("site", sa.String(length=100), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("slurm", _JSON, nullable=True),
        sa.Column("device_fingerprint", sa.String(length=16), nullable=False),
        sa.Column("device_model", sa.Text(), nullable=False),
        sa.Column("device", _JSON, nullable=False),
        sa.Column("host", _JSON, nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("ended_at", _TIME, nullable=False),
        sa.Column("ingested_at", _TIME, nullable=False),
        sa.Column("checked_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_duel_run"),
    )
    op.create_index("ix_duel_run_campaign", "duel_run", ["campaign"])
    op.create_index("ix_duel_run_duel_hash", "duel_run", ["duel_hash"])
    op.create_index(
        "ix_duel_run_series",
        "duel_run",
        ["workload", "case_name", "track", "device_fingerprint", "started_at"],
    )
    op.create_table(
        "proof",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload", sa.String(length=100), nullable=False),
        sa.Column("use_case", sa.String(length=100), nullable=False),
        sa.Column("precision", sa.String(length=100), nullable=False),
        sa.Column("checkpoint", sa.String(length=64), nullable=True),
        sa.Column("snapshot", sa.String(length=64), nullable=False),
        sa.Column("device_fingerprint", sa.String(length=16), nullable=False),
        sa.Column("a_key", sa.String(length=100), nullable=False),
        sa.Column("b_key", sa.String(length=100), nullable=False),
        sa.Column("a", sa.String(length=100), nullable=False),
        sa.Column("b", sa.String(length=100), nullable=False),
        sa.Column("quantity", sa.Text(), nullable=False),
        sa.Column("num_seeds", sa.BigInteger(), nullable=False),
        sa.Column("oracle_error", sa.Double(), nullable=True),
        sa.Column("oracle_bound", sa.Double(), nullable=True),
        sa.Column("a_error", sa.Double(), nullable=True),
        sa.Column("a_bound", sa.Double(), nullable=True),
        sa.Column("b_error", sa.Double(), nullable=True),
        sa.Column("b_bound", sa.Double(), nullable=True),
        sa.Column("passed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("first_drift", sa.Text(), nullable=True),
        sa.Column("proved_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_proof"),
    )
    op.create_index("ix_proof_subject", "proof", ["workload", "precision", "snapshot"])
    op.create_table(
        "contender_run",
        sa.Column("duel_run", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("arm", sa.String(length=100), nullable=False),
        sa.Column("role", sa.String(length=100), nullable=False),
        sa.Column("framework", sa.String(length=100), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("environment_key", sa.Text(), nullable=False),
        sa.Column("lock_sha256", sa.String(length=64), nullable=True),
        sa.Column("python_version", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("packages", _JSON, nullable=False),
        sa.Column("settings", _JSON, nullable=False),
        sa.Column("effective", _JSON, nullable=False),
        sa.Column("status", sa.String(length=100), nullable=False),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("traceback", sa.Text(), nullable=True),
        sa.Column("cause", sa.String(length=100), nullable=True),
        sa.Column("xids", _JSON, nullable=True),
        sa.Column("ladder", _JSON, nullable=True),
        sa.Column("cold", _JSON, nullable=True),
        sa.Column("warm", _JSON, nullable=True),
        sa.ForeignKeyConstraint(
            ["duel_run"], ["duel_run.id"], name="fk_contender_run_duel_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("duel_run", "name", name="pk_contender_run"),
    )
    op.create_index(
        "ix_contender_run_arm_framework_version", "contender_run", ["arm", "framework", "version"]
    )
    op.create_table(
        "equivalence",
        sa.Column("duel_run", sa.String(length=16), nullable=False),
        sa.Column("a", sa.String(length=100), nullable=False),
        sa.Column("b", sa.String(length=100), nullable=False),
        sa.Column("quantity", sa.Text(), nullable=False),
        sa.Column("max_relative", sa.Double(), nullable=True),
        sa.Column("l2_relative", sa.Double(), nullable=True),
        sa.Column("tolerance", sa.Double(), nullable=False),
        sa.Column("agrees", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["duel_run"], ["duel_run.id"], name="fk_equivalence_duel_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("duel_run", "a", "b", "quantity", name="pk_equivalence"),
    )
    op.create_table(
        "failed_check",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("duel_run", sa.String(length=16), nullable=False),
        sa.Column("contender", sa.String(length=100), nullable=True),
        sa.Column("other", sa.String(length=100), nullable=True),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("expectation", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("checked_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["duel_run"], ["duel_run.id"], name="fk_failed_check_duel_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_failed_check"),
    )
    op.create_index("ix_failed_check_duel_run", "failed_check", ["duel_run"])
    op.create_table(
        "ratio",
        sa.Column("duel_run", sa.String(length=16), nullable=False),
        sa.Column("a", sa.String(length=100), nullable=False),
        sa.Column("b", sa.String(length=100), nullable=False),
        sa.Column("kind", sa.String(length=100), nullable=False),
        sa.Column("a_arm", sa.String(length=100), nullable=False),
        sa.Column("b_arm", sa.String(length=100), nullable=False),
        sa.Column("a_framework", sa.String(length=100), nullable=False),
        sa.Column("b_framework", sa.String(length=100), nullable=False),
        sa.Column("a_version", sa.Text(), nullable=False),
        sa.Column("b_version", sa.Text(), nullable=False),
        sa.Column("a_role", sa.String(length=100), nullable=False),
        sa.Column("b_role", sa.String(length=100), nullable=False),
        sa.Column("log_ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("num_starts", sa.BigInteger(), nullable=False),
        sa.Column("start_log_ratios", _JSON, nullable=False),
        sa.Column("start_compilations", _JSON, nullable=False),
        sa.Column("verdict", sa.String(length=100), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(length=100), nullable=False),
        sa.Column("counts", sa.Boolean(), nullable=False),
        sa.Column("judged_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["duel_run"], ["duel_run.id"], name="fk_ratio_duel_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("duel_run", "a", "b", name="pk_ratio"),
    )
    op.create_index("ix_ratio_kind_a_arm_b_arm", "ratio", ["kind", "a_arm", "b_arm"])
    op.create_table(
        "suspicion",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload", sa.String(length=100), nullable=False),
        sa.Column("case_name", sa.String(length=100), nullable=False),
        sa.Column("track", sa.String(length=100), nullable=False),
        sa.Column("a_arm", sa.String(length=100), nullable=False),
        sa.Column("b_arm", sa.String(length=100), nullable=False),
        sa.Column("device_fingerprint", sa.String(length=16), nullable=False),
        sa.Column("method", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint", sa.String(length=64), nullable=True),
        sa.Column("metric", sa.String(length=100), nullable=False),
        sa.Column("control", sa.String(length=100), nullable=True),
        sa.Column("trigger", sa.String(length=100), nullable=False),
        sa.Column("before_run", sa.String(length=16), nullable=False),
        sa.Column("since_run", sa.String(length=16), nullable=False),
        sa.Column("after_run", sa.String(length=16), nullable=False),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=100), nullable=False),
        sa.Column("finding", _JSON, nullable=True),
        sa.Column("opened_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["after_run"], ["duel_run.id"], name="fk_suspicion_after_run", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["before_run"], ["duel_run.id"], name="fk_suspicion_before_run", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["since_run"], ["duel_run.id"], name="fk_suspicion_since_run", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_suspicion"),
    )
    op.create_index(
        "ix_suspicion_series",
        "suspicion",
        ["workload", "case_name", "track", "device_fingerprint", "metric"],
    )
    op.create_index("ix_suspicion_state", "suspicion", ["state"])
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("suspicion", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=100), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=True),
        sa.Column("unsent_alert", _JSON, nullable=True),
        sa.Column("opened_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["suspicion"], ["suspicion.id"], name="fk_event_suspicion", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sa.UniqueConstraint("suspicion", name="uq_event_suspicion"),
    )
    op.create_index("ix_event_state", "event", ["state"])
    op.create_table(
        "start_run",
        sa.Column("duel_run", sa.String(length=16), nullable=False),
        sa.Column("contender", sa.String(length=100), nullable=False),
        sa.Column("start_index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=100), nullable=False),
        sa.Column("started_at", _TIME, nullable=False),
        sa.Column("caches", sa.String(length=100), nullable=False),
        sa.Column("compilation", sa.BigInteger(), nullable=True),
        sa.Column("cache_hits", sa.BigInteger(), nullable=True),
        sa.Column("stages", _JSON, nullable=False),
        sa.Column("warm_up", _JSON, nullable=True),
        sa.Column("steps_per_block", sa.BigInteger(), nullable=True),
        sa.Column("compilations_in_blocks", sa.BigInteger(), nullable=True),
        sa.Column("num_blocks", sa.BigInteger(), nullable=False),
        sa.Column("shortest_block_ns", sa.BigInteger(), nullable=True),
        sa.Column("clock_resolution_ns", sa.BigInteger(), nullable=True),
        sa.Column("num_degraded", sa.BigInteger(), nullable=True),
        sa.Column("blocks", _JSON, nullable=False),
        sa.Column("latency_ns", _JSON, nullable=True),
        sa.Column("median_step_ns", sa.Double(), nullable=True),
        sa.Column("planned_bytes", sa.BigInteger(), nullable=True),
        sa.Column("allocator_peak_bytes", sa.BigInteger(), nullable=True),
        sa.Column("process_peak_bytes", sa.BigInteger(), nullable=True),
        sa.Column("process_baseline_bytes", sa.BigInteger(), nullable=True),
        sa.Column("energy", _JSON, nullable=True),
        sa.Column("profile", _JSON, nullable=True),
        sa.Column("inputs_sha256", sa.String(length=64), nullable=True),
        sa.Column("epochs", _JSON, nullable=True),
        sa.Column("measured", _JSON, nullable=True),
        sa.ForeignKeyConstraint(
            ["duel_run", "contender"],
            ["contender_run.duel_run", "contender_run.name"],
            name="fk_start_run_duel_run_contender",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("duel_run", "contender", "start_index", name="pk_start_run"),
    )
    op.create_table(
        "event_change",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("event", sa.Integer(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("who", sa.String(length=100), nullable=False),
        sa.Column("old", sa.String(length=100), nullable=True),
        sa.Column("new", sa.String(length=100), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event"], ["event.id"], name="fk_event_change_event", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event_change"),
    )
    op.create_index("ix_event_change_event", "event_change", ["event"])


def downgrade() -> None:
    """Drop all tables."""
    op.drop_index("ix_event_change_event", table_name="event_change")
    op.drop_table("event_change")
    op.drop_table("start_run")
    op.drop_index("ix_event_state", table_name="event")
    op.drop_table("event")
    op.drop_index("ix_suspicion_state", table_name="suspicion")
    op.drop_index("ix_suspicion_series", table_name="suspicion")
    op.drop_table("suspicion")
    op.drop_index("ix_ratio_kind_a_arm_b_arm", table_name="ratio")
    op.drop_table("ratio")
    op.drop_index("ix_failed_check_duel_run", table_name="failed_check")
    op.drop_table("failed_check")
    op.drop_table("equivalence")
    op.drop_index("ix_contender_run_arm_framework_version", table_name="contender_run")
    op.drop_table("contender_run")
    op.drop_index("ix_proof_subject", table_name="proof")
    op.drop_table("proof")
    op.drop_index("ix_duel_run_series", table_name="duel_run")
    op.drop_index("ix_duel_run_duel_hash", table_name="duel_run")
    op.drop_index("ix_duel_run_campaign", table_name="duel_run")
    op.drop_table("duel_run")
