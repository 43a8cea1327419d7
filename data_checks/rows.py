"""The rows that the suites check. Derives columns; the suites judge.

Each table has the columns `duel_run`, `contender` and `other`, which name what a failed row is
about: one contender, a pair, or (both missing) the whole duel.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from benchcore.names import describe_status
from benchcore.planning.catalog import needs_proof
from benchcore.protocol import CALIBRATION_TRACK, COMPARED, DEFECT_TRACK, ContenderIdentity
from benchcore.store.frames.ratios import read_sides
from benchcore.verdict.duel.parity import compare_sides
from benchcore.verdict.duel.products import CHECKS, judge_products
from benchcore.verdict.duel.ratios import classify_pair
from benchcore.verdict.samples import robust_deviation
from benchcore.workloads.settings import DEFECTS, INJECTED_SLOWDOWN

COUNTED_SINCE = 2
"""The METHOD from which on a step's products are counted, and only a judged step counts."""


@dataclass(frozen=True, kw_only=True)
class _Side(ContenderIdentity):
    """A contender, and why the physics of its steps is not known, if it is not."""

    unjudged: str


@dataclass(frozen=True, kw_only=True)
class CheckFrames:
    """The rows of campaigns that the checks need, as `benchcore.store.frames` reads them."""

    contenders: pd.DataFrame
    starts: pd.DataFrame
    equivalence: pd.DataFrame
    manifests: pd.DataFrame
    products: pd.DataFrame
    profiles: pd.DataFrame
    proofs: pd.DataFrame
    epochs: pd.DataFrame
    past: pd.DataFrame
    """Earlier times of the same contenders: `benchcore.store.frames.past`."""
    planned: pd.DataFrame
    """Id and title of each duel of a campaign's plan; none where the plan is not known."""


def contender_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per contender; `ended` is how, in words."""
    ended = [
        f"it {describe_status(status)}{'' if pd.isna(stage) else f' in stage {stage}'}"
        for status, stage in frames.contenders[["status", "stage"]].itertuples(index=False)
    ]
    return name_rows(frames.contenders.assign(ended=ended), contender="name")


def planned_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per planned duel: whether a result of it came."""
    came = frames.planned["duel_run"].isin(frames.contenders["duel_run"])
    return name_rows(frames.planned.assign(came=came))


def time_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per duel: how long it took by its own clock (`wall_s`), what its blocks take at least
    (`blocks_s`: contenders take turns), how far starts are outside of it, and its age when its
    document was ingested (below 0: it is from the future)."""
    duels = frames.contenders.drop_duplicates("duel_run").set_index("duel_run")
    least_s = frames.starts["num_blocks"] * frames.starts["shortest_block_ns"].fillna(0) / 1e9
    starts = frames.starts.assign(blocks_s=least_s.astype("float64")).groupby("duel_run")
    began, ended = duels["started_at"], duels["ended_at"]
    early_s = (began - starts["start_started_at"].min()).dt.total_seconds()
    late_s = (starts["start_started_at"].max() - ended).dt.total_seconds()
    rows = pd.DataFrame(
        {
            "wall_s": (ended - began).dt.total_seconds(),
            "blocks_s": starts["blocks_s"].sum(),
            "outside_s": pd.concat([early_s, late_s], axis=1).max(axis=1),
            "age_s": (duels["ingested_at"] - ended).dt.total_seconds(),
        },
        index=duels.index,
    )
    return name_rows(rows.fillna({"blocks_s": 0.0}).reset_index())


def fresh_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per duel, but for calibration runs, which may last for days: the hours between its
    end and that of the newest duel of its campaign (`behind_h`), and the days between its passes
    and it (`passes_days`; missing: it measured them itself)."""
    dated = frames.contenders.query(f"track != {CALIBRATION_TRACK!r}")
    duels = dated.drop_duplicates("duel_run").set_index("duel_run")
    newest = duels.groupby("campaign")["ended_at"].transform("max")
    oldest = pd.to_datetime(dated["passes_at"], utc=True).groupby(dated["duel_run"]).min()
    rows = pd.DataFrame(
        {
            "behind_h": (newest - duels["ended_at"]).dt.total_seconds() / 3600,
            "passes_days": (duels["started_at"] - oldest).dt.total_seconds() / 86400,
        },
        index=duels.index,
    )
    return name_rows(rows.reset_index())


def unbounded_cases(frames: CheckFrames) -> tuple[str, ...]:
    """Cases without a measured ceiling, which physics can check only partly or not at all."""
    lacking = frames.contenders.query("limit_reason.str.contains('no ceiling measured')")
    notes = [
        f"{row['workload']} {row['case_name']}: no ceiling measured: "
        + row["limit_reason"].rpartition(": ")[2]
        for row in lacking.to_dict("records")
    ]
    return tuple(dict.fromkeys(notes))


def unjudged_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per pair that may count, but for programs without a framework: `unjudged` is why the
    physics of its steps is not known, of the first side that has a reason."""
    may_count = frames.contenders.query(
        f"method >= {COUNTED_SINCE} and track not in {[DEFECT_TRACK, CALIBRATION_TRACK]} "
        "and status == 'ok'"
    )
    rows = []
    for duel_run, finished in _group(may_count).items():
        for one, other in combinations(finished, 2):
            if {one.framework, other.framework} <= set(COMPARED):
                why = next((f"{s.name}: {s.unjudged}" for s in (one, other) if s.unjudged), "")
                rows.append({"duel_run": duel_run, "a": one.name, "b": other.name, "unjudged": why})
    columns = ["duel_run", "a", "b", "unjudged"]
    return name_rows(pd.DataFrame(rows, columns=columns), contender="a", other="b")


def start_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per start of a contender that finished.

    `clock_steps` is the length of its shortest block in clock ticks. `disturbed` is `throughout`
    if every block was degraded: such a start has no time, which is not a failure.
    """
    starts = frames.starts.query("contender_status == 'ok'")
    steps = starts["shortest_block_ns"] / starts["clock_resolution_ns"]
    throughout = (starts["num_blocks"] > 0) & (starts["num_degraded"] == starts["num_blocks"])
    disturbed = ["throughout" if each else "not throughout" for each in throughout]
    ended = starts["status"].map(describe_status)
    derived = {"clock_steps": steps, "disturbed": disturbed, "ended": ended}
    unwatched = starts["unwatched"].fillna("")
    return name_rows(starts.assign(**derived, unwatched=unwatched), contender="name")


FEWEST_EARLIER = 5
"""A contender is compared with its past if it has at least this many earlier nights."""
_LEAST_FAR = math.log(1.5)
_FAR_SDS = 8.0
"""A night is far outside of its past by a factor of 1.5 at least, and by so many of its robust
standard deviations. A shift of a version is smaller, or has a past of its own: another environment
is another contender here."""


def continuity_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per contender with a past: `times_median` is how many times the median of its
    `num_earlier` nights (`median_ms`) it took now, or they took of it; `far` is what is far."""
    timed = frames.contenders.dropna(subset=["median_step_ns"])
    past = defaultdict[tuple[str, str], list[float]](list)
    for each in frames.past.to_dict("records"):
        past[each["duel_run"], each["name"]].append(each["median_step_ns"])
    rows = []
    for each in timed.to_dict("records"):
        earlier = past[each["duel_run"], each["name"]]
        if len(earlier) >= FEWEST_EARLIER:
            now, middle = float(each["median_step_ns"]), median(earlier)
            spread = robust_deviation(np.log(np.array(earlier) / middle))
            rows.append(
                {
                    "duel_run": each["duel_run"],
                    "name": each["name"],
                    "step_ms": now / 1e6,
                    "median_ms": middle / 1e6,
                    "num_earlier": float(len(earlier)),
                    "times_median": math.exp(abs(math.log(now / middle))),
                    "far": math.exp(max(_LEAST_FAR, _FAR_SDS * spread)),
                }
            )
    columns = ["duel_run", "name", "step_ms", "median_ms", "num_earlier", "times_median", "far"]
    found = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(columns[2:], "float64"))
    return name_rows(found, contender="name")


def duel_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per duel: the different inputs of starts with the same seed (`num_inputs`, the most
    of any seed), and of how many seeds (`num_seeds`) the starts had inputs of their own
    (`num_own`)."""
    starts = start_rows(frames)
    starts = starts.assign(seed=starts["seed"].fillna(-1))  # not recorded: all had the duel's
    of_seeds = starts.groupby(["duel_run", "seed"])["inputs_sha256"].nunique()
    known = starts.dropna(subset="inputs_sha256").groupby("duel_run")
    rows = pd.DataFrame(
        {
            "num_inputs": of_seeds.groupby("duel_run").max(),
            "num_seeds": known["seed"].nunique(),
            "num_own": known["inputs_sha256"].nunique(),
        }
    )
    return name_rows(rows.fillna(0).astype("int64").reset_index())


def pair_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per pair that is compared (`benchcore.verdict.duel.ratios.classify_pair`).

    `num_quantities` counts the compared quantities of the pair, `wanted_quantities` those of any
    pair of the duel, at least one: a duel that compared nothing proves nothing.
    """
    compared = defaultdict[tuple[str, frozenset[str]], set[str]](set)
    of_duel = defaultdict[str, set[str]](set)
    for each in frames.equivalence.to_dict("records"):
        compared[each["duel_run"], frozenset((each["a"], each["b"]))].add(each["quantity"])
        of_duel[each["duel_run"]].add(each["quantity"])
    rows = [
        {
            "duel_run": duel_run,
            "a": a,
            "b": b,
            "num_quantities": len(compared[duel_run, frozenset((a, b))]),
            "wanted_quantities": max(1, len(of_duel[duel_run])),
        }
        for duel_run, a, b in list_pairs(frames.contenders)
    ]
    columns = ["duel_run", "a", "b", "num_quantities", "wanted_quantities"]
    return name_rows(pd.DataFrame(rows, columns=columns), contender="a", other="b")


def equivalence_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per compared quantity of a pair."""
    return name_rows(frames.equivalence, contender="a", other="b")


def profile_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per profiled contender."""
    return name_rows(frames.profiles, contender="name")


def product_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per finished contender: by check why its products are not those of its case."""
    found = frames.products.query(f"method >= {COUNTED_SINCE}")
    reasons = [
        judge_products(
            row["name"],
            row["products"],
            framework=row["framework"],
            precision=row["precision"],
            analytic=row["flops_per_step"],
            on_gpu=row["device"]["kind"] == "gpu",
        )
        for row in found.to_dict("records")
    ]
    judged = pd.DataFrame(reasons, columns=list(CHECKS), index=found.index)
    return name_rows(found.join(judged), contender="name")


def parity_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per finished pair: the settings that differ and that the arms do not choose."""
    rows = []
    sides = read_sides(frames.manifests)
    tracks = dict(zip(frames.manifests["duel_run"], frames.manifests["track"], strict=True))
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) not in sides or (duel_run, b) not in sides:
            continue  # one of them did not finish
        parity = compare_sides(sides[duel_run, a], sides[duel_run, b], tracks[duel_run])
        differs = "; ".join(parity.violations)
        rows.append({"duel_run": duel_run, "a": a, "b": b, "differs": differs})
    columns = ["duel_run", "a", "b", "differs"]
    return name_rows(pd.DataFrame(rows, columns=columns), contender="a", other="b")


def list_pairs(contenders: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """(duel run, a, b) of every pair of these contenders (all of their duels) that is compared."""
    for duel_run, sides in _group(contenders).items():
        for one, other in combinations(sides, 2):
            if classify_pair(one, other, alone=len(sides) == 2) is not None:
                yield duel_run, one.name, other.name


def _group(contenders: pd.DataFrame) -> dict[str, list[_Side]]:
    """The rows of a frame by duel run. Grouping by pandas takes half a second for 2,000 duels."""
    found = defaultdict[str, list[_Side]](list)
    names = [each.name for each in fields(_Side)]
    columns = [contenders[each] for each in ("duel_run", *names)]
    for run, *values in zip(*columns, strict=True):
        found[run].append(_Side(**dict(zip(names, values, strict=True))))
    return found


def name_rows(
    frame: pd.DataFrame, *, contender: str | None = None, other: str | None = None
) -> pd.DataFrame:
    """Name what each row is about, and number the rows, to identify a failed one."""
    return frame.assign(
        contender=frame[contender] if contender else None,
        other=frame[other] if other else None,
        row=range(len(frame)),
    ).reset_index(drop=True)


def deliberate_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per contender: `wrong` names what is wrong with it, or its duel, on purpose.

    A defect in the settings excludes a contender on any track. A defect study excludes all its
    contenders. An injected slow-down is allowed only in calibration runs.
    """
    settings = {
        (each["duel_run"], each["name"]): each["settings"]
        for each in frames.manifests.to_dict("records")
    }
    wrong = [
        _describe_defect(settings.get((each["duel_run"], each["name"]), {}), str(each["track"]))
        for each in frames.contenders.to_dict("records")
    ]
    return name_rows(
        frames.contenders.assign(wrong=pd.Series(wrong, dtype="object")), contender="name"
    )


def _describe_defect(settings: Mapping[str, Any], track: str) -> str:
    if DEFECTS in settings:
        return settings[DEFECTS]
    if INJECTED_SLOWDOWN in settings and track != CALIBRATION_TRACK:
        return f"slowed down by {settings[INJECTED_SLOWDOWN]} %"
    return "part of a defect study" if track == DEFECT_TRACK else ""


LIMIT_Z = 3.29
"""Limit of the pooled two-proportion z statistic: equal runs exceed it once in a thousand."""

_COLUMNS = ["duel_run", "a", "b", "correct_a", "correct_b", "num_val", "apart_z"]


def epoch_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per pair that trained on images: the difference of its last accuracies, in standard
    errors."""
    last = {
        (each["duel_run"], each["name"]): each
        for each in frames.epochs.sort_values("epoch").to_dict("records")
    }
    rows = []
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) in last and (duel_run, b) in last:
            one, other = last[duel_run, a], last[duel_run, b]
            correct, num_val = (one["correct"], other["correct"]), int(one["num_val"])
            rows.append([duel_run, a, b, *correct, num_val, accuracy_z(*correct, num_val)])
    return name_rows(pd.DataFrame(rows, columns=_COLUMNS), contender="a", other="b")


def accuracy_z(correct_a: float, correct_b: float, num_images: int) -> float:
    """The difference of two accuracies in standard errors; 0 if none or all images are right.

    Treats the two as independent samples. For the same images that is conservative.
    """
    pooled = (correct_a + correct_b) / (2 * num_images)
    error = math.sqrt(2 * pooled * (1 - pooled) / num_images)
    apart = abs(correct_a - correct_b) / num_images
    return apart / error if error else 0.0


def proof_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per proven quantity of a pair, and one per pair without its proof.

    Pairs need a proof if both sides finished in different environments, on a workload with one.
    """
    proofs, is_needed = frames.proofs, cache(needs_proof)
    sides = zip(proofs["duel_run"], proofs["a"], proofs["b"], strict=True)
    proven = {(duel_run, frozenset((a, b))) for duel_run, a, b in sides}
    finished = frames.contenders.query("status == 'ok'")
    side = {(each["duel_run"], each["name"]): each for each in finished.to_dict("records")}
    lacking = []
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) not in side or (duel_run, b) not in side:
            continue
        one, other = side[duel_run, a], side[duel_run, b]
        wanted = is_needed(one["workload"], one["use_case"], one["precision"])
        differ = one["environment_key"] != other["environment_key"]
        if wanted and differ and (duel_run, frozenset((a, b))) not in proven:
            weights = " --checkpoint FILE" if isinstance(one["checkpoint"], str) else ""
            named = f"{one['workload']} --precision {one['precision']}{weights}"
            reason = f"it was not proven; run deadheat equivalence {named}"
            missing = {"quantity": "equivalence", "passed": False, "reason": reason}
            lacking.append({"duel_run": duel_run, "a": a, "b": b, **missing})
    if lacking:
        missing_rows = pd.DataFrame(lacking, columns=proofs.columns, dtype=object)
        proofs = pd.concat([proofs.astype(object), missing_rows], ignore_index=True)
    return name_rows(proofs, contender="a", other="b")
