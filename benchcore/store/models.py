"""The tables: series keys as plain columns, raw samples as one JSON column."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, get_args

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from benchcore.protocol import CALIBRATION_TRACK, Status
from benchcore.store.records import Severity
from benchcore.store.utc_datetime import UtcDateTime
from benchcore.verdict.confirmation.event_states import EventState
from benchcore.verdict.history.matching import State
from benchcore.verdict.samples import Verdict

_Json = JSON(none_as_null=True)


class Base(DeclarativeBase):
    """The declarative base: names every constraint, so that a migration can drop it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        float: Double,
        datetime: UtcDateTime,
        dict[str, Any]: _Json,
        list[Any]: _Json,
    }


def _only(column: str, values: object) -> CheckConstraint:
    """The column holds one of the values of a Literal. A new value needs a migration."""
    quoted = ", ".join(f"'{each}'" for each in get_args(values))
    return CheckConstraint(f"{column} IN ({quoted})", name=column)


def _index_few(name: str, column: str, condition: str) -> Index:
    """An index of the few rows for which this holds: they are found without reading the others."""
    few = text(condition)
    return Index(name, column, sqlite_where=few, postgresql_where=few)


class DuelRun(Base):
    """One duel run: one result document."""

    __tablename__ = "duel_run"
    __table_args__ = (
        Index(
            "ix_duel_run_series",
            *("workload", "case_name", "track", "device_fingerprint", "started_at"),
        ),
        Index(None, "started_at"),
        Index(None, "campaign", "started_at"),
        _index_few("ix_duel_run_unchecked", "campaign", "checked_at IS NULL"),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    campaign: Mapped[str] = mapped_column(String(100))
    duel_hash: Mapped[str] = mapped_column(String(16), index=True)
    workload: Mapped[str] = mapped_column(String(100))
    case_name: Mapped[str] = mapped_column(String(100))
    use_case: Mapped[str] = mapped_column(Text)
    batch: Mapped[int]
    precision: Mapped[str] = mapped_column(Text)
    track: Mapped[str] = mapped_column(String(100))
    sizes: Mapped[dict[str, Any]]
    seed: Mapped[int]
    num_starts: Mapped[int]
    num_rounds: Mapped[int]
    num_parts: Mapped[int]
    """Rows that its document has in the tables of contenders, starts and equivalence."""
    stopped_by: Mapped[str | None] = mapped_column(String(100))
    flops_per_step: Mapped[int]
    least_bytes_per_step: Mapped[int]
    dataset: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    checkpoint: Mapped[str | None] = mapped_column(String(64))
    passes_of: Mapped[str | None] = mapped_column(String(16))
    """The earlier duel run that measured memory, profile and energy; null = this one did."""
    harness_version: Mapped[str] = mapped_column(Text)
    snapshot: Mapped[str] = mapped_column(String(64))
    schema: Mapped[int]
    method: Mapped[int]
    site: Mapped[str] = mapped_column(String(100))
    node: Mapped[str] = mapped_column(Text)
    allocation_id: Mapped[str] = mapped_column(Text)
    slurm: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    device_fingerprint: Mapped[str] = mapped_column(String(16))
    device_model: Mapped[str] = mapped_column(Text)
    device: Mapped[dict[str, Any]]
    host: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    ingested_at: Mapped[datetime]
    checked_at: Mapped[datetime | None]


def skip_index(column: Any) -> Any:
    """The column, but not as an index has it. SQLite would search what all duel runs have of one
    kind or of these arms, instead of the few rows of each duel run that is wanted."""
    return column + ""


IS_CALIBRATION_RUN = DuelRun.track == CALIBRATION_TRACK
IS_NO_CALIBRATION_RUN = DuelRun.track != CALIBRATION_TRACK
"""Calibration runs test our own verdicts. They are in no series, ratio or suspicion, and on no page
but the calibration's: their pairs carry no information on a framework."""


class ContenderRun(Base):
    """One contender of a duel run."""

    __tablename__ = "contender_run"
    __table_args__ = (
        Index(None, "arm", "framework", "version"),
        _index_few("ix_contender_run_ladder", "framework", "ladder IS NOT NULL"),
        _only("status", Status),
    )

    duel_run: Mapped[str] = mapped_column(
        ForeignKey("duel_run.id", ondelete="CASCADE"), primary_key=True
    )
    name: Mapped[str] = mapped_column(String(100), primary_key=True)
    position: Mapped[int]
    arm: Mapped[str] = mapped_column(String(100))
    role: Mapped[str] = mapped_column(String(100))
    framework: Mapped[str] = mapped_column(String(100))
    version: Mapped[str] = mapped_column(Text)
    environment_key: Mapped[str] = mapped_column(Text)
    lock_sha256: Mapped[str | None] = mapped_column(String(64))
    python_version: Mapped[str] = mapped_column(Text)
    build: Mapped[str] = mapped_column(Text)
    packages: Mapped[dict[str, Any]]
    settings: Mapped[dict[str, Any]]
    effective: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(String(100))
    stage: Mapped[str | None] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text)
    traceback: Mapped[str | None] = mapped_column(Text)
    cause: Mapped[str | None] = mapped_column(String(100))
    xids: Mapped[list[Any] | None] = mapped_column(_Json)
    ladder: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    cold: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    warm: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    amounts: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    """By tracked metric its value over the starts; None = not measured. Histories read these."""


class EnvironmentLock(Base):
    """What an environment installed, with hashes: enough to build it again."""

    __tablename__ = "environment_lock"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    text: Mapped[str] = mapped_column(Text)


class StartRun(Base):
    """One start of one contender; its blocks stay one JSON column."""

    __tablename__ = "start_run"
    __table_args__ = (
        ForeignKeyConstraint(
            ["duel_run", "contender"],
            ["contender_run.duel_run", "contender_run.name"],
            ondelete="CASCADE",
        ),
        _only("status", Status),
    )

    duel_run: Mapped[str] = mapped_column(String(16), primary_key=True)
    contender: Mapped[str] = mapped_column(String(100), primary_key=True)
    start_index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(String(100))
    started_at: Mapped[datetime]
    seed: Mapped[int | None]
    caches: Mapped[str] = mapped_column(String(100))
    compilation: Mapped[int | None]
    """The start whose caches it used; null = it compiled nothing."""
    cache_hits: Mapped[int | None]
    stages: Mapped[dict[str, Any]]
    warm_up: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    steps_per_block: Mapped[int | None]
    compilations_in_blocks: Mapped[int | None]
    num_blocks: Mapped[int]
    shortest_block_ns: Mapped[int | None]
    clock_resolution_ns: Mapped[int | None]
    num_degraded: Mapped[int | None]
    unwatched: Mapped[str | None] = mapped_column(Text)
    """Which counters of a disturbance some block lacks, with the reasons; null = none."""
    blocks: Mapped[list[Any]]
    latency_ns: Mapped[list[Any] | None] = mapped_column(_Json)
    median_step_ns: Mapped[float | None]
    planned_bytes: Mapped[int | None]
    allocator_peak_bytes: Mapped[int | None]
    process_peak_bytes: Mapped[int | None]
    process_baseline_bytes: Mapped[int | None]
    energy: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    profile: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    inputs_sha256: Mapped[str | None] = mapped_column(String(64))
    epochs: Mapped[list[Any] | None] = mapped_column(_Json)
    measured: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    """Metrics without a column of their own, by key; null = none were probed."""


class Equivalence(Base):
    """The agreement of two contenders in one quantity."""

    __tablename__ = "equivalence"

    duel_run: Mapped[str] = mapped_column(
        ForeignKey("duel_run.id", ondelete="CASCADE"), primary_key=True
    )
    a: Mapped[str] = mapped_column(String(100), primary_key=True)
    b: Mapped[str] = mapped_column(String(100), primary_key=True)
    quantity: Mapped[str] = mapped_column(Text, primary_key=True)
    max_relative: Mapped[float | None]
    l2_relative: Mapped[float | None]
    tolerance: Mapped[float]
    agrees: Mapped[bool]


class Proof(Base):
    """One quantity that a pair of environments computed: compared with float64, and the bounds."""

    __tablename__ = "proof"
    __table_args__ = (Index("ix_proof_subject", "workload", "precision", "snapshot"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    workload: Mapped[str] = mapped_column(String(100))
    use_case: Mapped[str] = mapped_column(String(100))
    precision: Mapped[str] = mapped_column(String(100))
    checkpoint: Mapped[str | None] = mapped_column(String(64))
    snapshot: Mapped[str] = mapped_column(String(64))
    device_fingerprint: Mapped[str] = mapped_column(String(16))
    a_key: Mapped[str] = mapped_column(String(100))
    b_key: Mapped[str] = mapped_column(String(100))
    a: Mapped[str] = mapped_column(String(100))
    b: Mapped[str] = mapped_column(String(100))
    quantity: Mapped[str] = mapped_column(Text)
    num_seeds: Mapped[int]
    reference_error: Mapped[float | None]
    reference_bound: Mapped[float | None]
    a_error: Mapped[float | None]
    a_bound: Mapped[float | None]
    b_error: Mapped[float | None]
    b_bound: Mapped[float | None]
    passed: Mapped[bool]
    reason: Mapped[str] = mapped_column(Text)
    first_drift: Mapped[str | None] = mapped_column(Text)
    proved_at: Mapped[datetime]


class FailedCheckRow(Base):
    """A failed expectation: what it names takes no part in ratios, or (a warning) is reported."""

    __tablename__ = "failed_check"
    __table_args__ = (_only("severity", Severity),)

    # SQLite counts up only what is declared INTEGER.
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    duel_run: Mapped[str] = mapped_column(ForeignKey("duel_run.id", ondelete="CASCADE"), index=True)
    contender: Mapped[str | None] = mapped_column(String(100))
    other: Mapped[str | None] = mapped_column(String(100))
    suite: Mapped[str] = mapped_column(Text)
    expectation: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    severity: Mapped[str] = mapped_column(String(100))
    checked_at: Mapped[datetime]


class PairRatio(Base):
    """The ratio of one pair of a duel run; see `benchcore.verdict.duel.ratios.Ratio`."""

    __tablename__ = "ratio"
    __table_args__ = (Index(None, "kind", "a_arm", "b_arm"), _only("verdict", Verdict))

    duel_run: Mapped[str] = mapped_column(
        ForeignKey("duel_run.id", ondelete="CASCADE"), primary_key=True
    )
    a: Mapped[str] = mapped_column(String(100), primary_key=True)
    b: Mapped[str] = mapped_column(String(100), primary_key=True)
    kind: Mapped[str] = mapped_column(String(100))
    a_arm: Mapped[str] = mapped_column(String(100))
    b_arm: Mapped[str] = mapped_column(String(100))
    a_framework: Mapped[str] = mapped_column(String(100))
    b_framework: Mapped[str] = mapped_column(String(100))
    a_version: Mapped[str] = mapped_column(Text)
    b_version: Mapped[str] = mapped_column(Text)
    a_role: Mapped[str] = mapped_column(String(100))
    b_role: Mapped[str] = mapped_column(String(100))
    log_ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    num_starts: Mapped[int]
    start_log_ratios: Mapped[list[Any]]
    start_compilations: Mapped[list[Any]]
    verdict: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(String(100))
    counts: Mapped[bool]
    judged_at: Mapped[datetime]


class SuspicionRow(Base):
    """A stored suspicion; see `benchcore.verdict.history.suspicions.Suspicion`."""

    __tablename__ = "suspicion"
    __table_args__ = (
        Index(
            "ix_suspicion_series", "workload", "case_name", "track", "device_fingerprint", "metric"
        ),
        _only("state", State),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    workload: Mapped[str] = mapped_column(String(100))
    case_name: Mapped[str] = mapped_column(String(100))
    track: Mapped[str] = mapped_column(String(100))
    a_arm: Mapped[str] = mapped_column(String(100))
    b_arm: Mapped[str] = mapped_column(String(100))
    device_fingerprint: Mapped[str] = mapped_column(String(16))
    checkpoint: Mapped[str | None] = mapped_column(String(64))
    metric: Mapped[str] = mapped_column(String(100))
    control: Mapped[str | None] = mapped_column(String(100))
    """The role of side b where it is an older version of a's framework."""
    trigger: Mapped[str] = mapped_column(String(100))
    before_run: Mapped[str] = mapped_column(ForeignKey("duel_run.id", ondelete="CASCADE"))
    since_run: Mapped[str] = mapped_column(ForeignKey("duel_run.id", ondelete="CASCADE"))
    after_run: Mapped[str] = mapped_column(ForeignKey("duel_run.id", ondelete="CASCADE"))
    since: Mapped[datetime]
    ratio: Mapped[float]
    low: Mapped[float | None]
    high: Mapped[float | None]
    reason: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(100), index=True)
    finding: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    """The last nights of the histories that opened it and that showed it last: nights decide how
    long a change has lasted, not the time at which somebody looked at them."""


class EventRow(Base):
    """The one record of a confirmed change that people triage."""

    __tablename__ = "event"
    __table_args__ = (_only("state", EventState),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    suspicion: Mapped[int] = mapped_column(
        Integer, ForeignKey("suspicion.id", ondelete="CASCADE"), unique=True
    )
    state: Mapped[str] = mapped_column(String(100), index=True)
    owner: Mapped[str | None] = mapped_column(String(100))
    unsent_alert: Mapped[dict[str, Any] | None] = mapped_column(_Json)
    """The alert that the outbox has not accepted yet; null = it has, or none was due."""
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class EventChange(Base):
    """What somebody did to an event: a new state, a note, or both."""

    __tablename__ = "event_change"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    event: Mapped[int] = mapped_column(
        Integer, ForeignKey("event.id", ondelete="CASCADE"), index=True
    )
    at: Mapped[datetime]
    who: Mapped[str] = mapped_column(String(100))
    old: Mapped[str | None] = mapped_column(String(100))
    new: Mapped[str] = mapped_column(String(100))
    note: Mapped[str] = mapped_column(Text)
