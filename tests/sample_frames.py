"""Frames of a made-up but likely month of nights, as the store reads them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from sample_contenders import (
    list_bottlenecks,
    list_contenders,
    list_epochs,
    list_equivalence,
    list_failed_checks,
    list_profiles,
)
from sample_nights import list_ratios

from benchcore.store.metrics import ON_PAGE
from dashboards.frames import select_rows

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
    "checkpoint", "passes_campaign",
    "compute_share", "bandwidth_share", "items_per_s", "cold_compile_s", "warm_compile_s",
    *(each.key for each in ON_PAGE),
)
EQUIVALENCE_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "a", "b", "quantity", "max_relative",
    "l2_relative", "tolerance", "agrees",
)
FAILED_CHECK_COLUMNS = (
    "campaign", "duel_run", "workload", "case_name", "contender", "other", "suite", "expectation",
    "reason", "severity",
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
    "wait_share", "examples_per_s", "loss", "accuracy", "validation_ns", "gross_mj",
)
# fmt: on


@dataclass(frozen=True, kw_only=True)
class SampleFrames:
    """Rows as the frames of `benchcore.store.frames` have them."""

    ratios: pd.DataFrame
    contenders: pd.DataFrame
    equivalence: pd.DataFrame
    failed_checks: pd.DataFrame
    profiles: pd.DataFrame
    bottlenecks: pd.DataFrame
    epochs: pd.DataFrame


def sample_frames(num_nights: int = 24, seed: int = 7) -> SampleFrames:
    """Nights up to the last one; the last has a crash, a failed check and a one-start pair."""
    return SampleFrames(
        ratios=pd.DataFrame(list_ratios(num_nights, seed), columns=list(RATIO_COLUMNS)),
        contenders=pd.DataFrame(list_contenders(), columns=list(CONTENDER_COLUMNS)),
        equivalence=pd.DataFrame(list_equivalence(), columns=list(EQUIVALENCE_COLUMNS)),
        failed_checks=pd.DataFrame(list_failed_checks(), columns=list(FAILED_CHECK_COLUMNS)),
        profiles=pd.DataFrame(list_profiles(), columns=list(PROFILE_COLUMNS)),
        bottlenecks=pd.DataFrame(list_bottlenecks(), columns=list(BOTTLENECK_COLUMNS)),
        epochs=pd.DataFrame(list_epochs(), columns=list(EPOCH_COLUMNS)),
    )


def of_campaign(frame: pd.DataFrame, campaign: str) -> pd.DataFrame:
    """The rows of one campaign, freshly indexed."""
    return select_rows(frame, frame["campaign"] == campaign).reset_index(drop=True)
