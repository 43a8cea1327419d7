"""What the dashboard is given: the frames it reads, their columns, and the night in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pandas as pd

from benchcore.store.metrics import ON_PAGE
from dashboards.formatting import arm_label
from dashboards.page_links import SitePage

# fmt: off
RATIO_COLUMNS = (
    "campaign", "duel_run", "started_at", "workload", "case_name", "use_case", "batch",
    "precision", "track", "device_model", "device_fingerprint", "kind", "a", "b", "a_arm",
    "b_arm", "a_framework", "b_framework", "a_version", "b_version", "a_role", "b_role",
    "log_ratio", "low", "high", "num_starts", "start_log_ratios", "verdict", "reason", "scope",
    "counts", "method", "fair", "differences", "violations", "conditions",
)
CONTENDER_COLUMNS = (
    "campaign", "duel_run", "started_at", "workload", "case_name", "use_case", "batch",
    "precision", "name", "arm", "role", "framework", "version", "environment_key",
    "python_version", "build", "status", "cause", "stage", "reason", "num_starts", "num_blocks",
    "num_degraded", "num_unsteady",
    "median_step_ns", "import_s", "compile_s", "first_run_s", "warm_up_s", "stopped_by",
    "checkpoint",
    "compute_share", "bandwidth_share", "items_per_s", "cold_compile_s", "warm_compile_s",
    *(each.key for each in ON_PAGE),
)
EQUIVALENCE_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "a", "b", "quantity", "max_relative",
    "l2_relative", "tolerance", "agrees",
)
FAILED_CHECK_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "contender", "other", "suite", "expectation",
    "reason",
)
PROFILE_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "use_case", "batch", "precision", "track",
    "name", "arm", "framework", "version", "kernel_ns", "dispatch_ns", "python_calls",
    "num_kernels", "host_syncs", "copied_bytes", "longest",
)
BOTTLENECK_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "track", "name", "arm", "framework", "version",
    "intensity", "ridge", "compute_share", "bandwidth_share", "host_share", "host_boundness",
    "bottleneck", "reason", "advice",
)
EPOCH_COLUMNS = (
    "campaign", "workload", "case_name", "use_case", "batch", "precision", "track", "dataset",
    "mode", "num_val", "name", "arm", "framework", "version", "epoch", "num_starts", "num_degraded",
    "epoch_ns",
    "wait_share", "images_per_s", "loss", "accuracy", "validation_ns", "gross_mj",
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class NightSummary:
    """One campaign in numbers. What was not measured is None, never 0."""

    campaign: str
    profile: str
    site: str
    node: str
    device_model: str
    host: Mapping[str, object] = field(default_factory=dict)
    started_at: datetime
    ended_at: datetime | None = None
    wall_s: float | None = None
    measuring_s: float | None = None
    num_planned: int
    num_measured: int
    num_resumed: int = 0
    harness_version: str = ""
    snapshot: str = ""
    method: str | int = ""
    notes: tuple[str, ...] = ()
    void: str | None = None
    """Why nothing of it counts (`benchcore.store.reports.void`); None = something does."""
    links: tuple[tuple[str, str], ...] = ()
    """Label and address; only http, https and relative addresses become links."""


@dataclass(frozen=True, kw_only=True)
class SiteFrames:
    """Everything one page shows. `ratios` holds every campaign (history); the rest may too."""

    ratios: pd.DataFrame
    contenders: pd.DataFrame
    equivalence: pd.DataFrame
    failed_checks: pd.DataFrame
    profiles: pd.DataFrame
    bottlenecks: pd.DataFrame
    epochs: pd.DataFrame
    night: NightSummary
    workarounds: Sequence[Mapping[str, Any]] = ()
    """As `benchcore.store.reports.workarounds.list_workarounds` has them."""
    programs: Sequence[Mapping[str, Any]] = ()
    """As `benchcore.store.reports.campaign.list_programs` has them."""
    pages: Sequence[SitePage] = ()
    calibration: Mapping[str, Any] | None = None
    """As `benchcore.store.reports.calibration.measure_calibration` has it."""
    modes: Sequence[Mapping[str, Any]] = ()
    """As `benchcore.store.suspicions.list_modes` has them."""

    def __post_init__(self) -> None:
        for name, frame, columns in (
            ("ratios", self.ratios, RATIO_COLUMNS),
            ("contenders", self.contenders, CONTENDER_COLUMNS),
            ("equivalence", self.equivalence, EQUIVALENCE_COLUMNS),
            ("failed_checks", self.failed_checks, FAILED_CHECK_COLUMNS),
            ("profiles", self.profiles, PROFILE_COLUMNS),
            ("bottlenecks", self.bottlenecks, BOTTLENECK_COLUMNS),
            ("epochs", self.epochs, EPOCH_COLUMNS),
        ):
            missing = [column for column in columns if column not in frame.columns]
            if missing:
                raise ValueError(
                    f"wanted a {name} frame with the columns {', '.join(columns)}; it lacks "
                    f"{', '.join(missing)}; correct the query or dashboards/frames.py"
                )


def of_campaign(frame: pd.DataFrame, campaign: str) -> pd.DataFrame:
    """The rows of one campaign, freshly indexed."""
    return keep(frame, frame["campaign"] == campaign).reset_index(drop=True)


def keep(frame: pd.DataFrame, mask: Any) -> pd.DataFrame:
    """The rows where the mask, a series of booleans, holds.

    `frame[mask]` with types that a checker can follow: to it, a column may be a frame.
    """
    return frame.loc[mask.to_numpy(dtype=bool), :]


def counting(ratios: pd.DataFrame) -> Any:
    """Mask of the rows that take part in statements: they passed every check and have a value."""
    return ratios["counts"].eq(True) & ratios["log_ratio"].notna()


def newest_pairs(ratios: pd.DataFrame) -> pd.DataFrame:
    """The newest JAX against the newest torch; where no row is that, every pair but controls."""
    pairs = drop_controls(keep(ratios, ratios["kind"] == "cross_framework"))
    newest = keep(pairs, (pairs["a_role"] == "newest") & (pairs["b_role"] == "newest"))
    return pairs if newest.empty else newest


def version_pairs(ratios: pd.DataFrame) -> pd.DataFrame:
    """Newer against older of the same framework."""
    return drop_controls(keep(ratios, ratios["kind"] == "cross_version"))


def is_fair(pair: Mapping[str, Any]) -> bool:
    """Whether the two sides had the same settings, as read back; by torch's arm where they left
    nothing to read, or where the pair is void."""
    if pair["fair"] is None or pair["violations"]:
        return arm_label(str(pair["b_arm"])) == "compiled"
    return bool(pair["fair"])


def drop_controls(pairs: pd.DataFrame) -> pd.DataFrame:
    """Without the contenders that only calibrate."""
    return keep(pairs, (pairs["a_role"] != "control") & (pairs["b_role"] != "control"))
