"""The rows that the suites check. Derives columns; the suites judge.

Each table has the columns `duel_run`, `contender` and `other`, which name what a failed row is
about: one contender, a pair, or (both missing) the whole duel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from benchcore.store.frames.ratios import read_sides
from benchcore.verdict.duel.parity import compare_sides
from benchcore.verdict.duel.products import CHECKS, judge_products
from benchcore.verdict.duel.ratios import classify_pair

COUNTED_SINCE = 2
"""The METHOD from which on a step's products are counted."""


@dataclass(frozen=True, kw_only=True)
class CheckFrames:
    """The rows of a campaign that the checks need, as `benchcore.store.frames` reads them."""

    contenders: pd.DataFrame
    starts: pd.DataFrame
    equivalence: pd.DataFrame
    manifests: pd.DataFrame
    products: pd.DataFrame
    profiles: pd.DataFrame
    proofs: pd.DataFrame
    epochs: pd.DataFrame


def contender_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per contender."""
    return name_rows(frames.contenders, contender="name")


def unbounded_cases(frames: CheckFrames) -> tuple[str, ...]:
    """Cases without a measured ceiling, which physics can check only partly or not at all."""
    lacking = frames.contenders.query("limit_reason.str.contains('no ceiling measured')")
    notes = [
        f"{row['workload']} {row['case_name']}: no ceiling measured: "
        + row["limit_reason"].rpartition(": ")[2]
        for row in lacking.to_dict("records")
    ]
    return tuple(dict.fromkeys(notes))


def start_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per start of a contender that finished.

    `clock_steps` is the length of its shortest block in clock ticks. `disturbed` is `throughout`
    if every block was degraded: such a start has no time, which is not a failure.
    """
    starts = frames.starts.query("contender_status == 'ok'")
    steps = starts["shortest_block_ns"] / starts["clock_resolution_ns"]
    throughout = (starts["num_blocks"] > 0) & (starts["num_degraded"] == starts["num_blocks"])
    disturbed = ["throughout" if each else "not throughout" for each in throughout]
    return name_rows(starts.assign(clock_steps=steps, disturbed=disturbed), contender="name")


def duel_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per duel: `num_inputs` counts the different inputs of its contenders."""
    inputs = start_rows(frames).groupby("duel_run")["inputs_sha256"]
    return name_rows(inputs.nunique().to_frame("num_inputs").reset_index())


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
    for duel_run, of_duel in contenders.groupby("duel_run", sort=False):
        rows: list[Any] = list(of_duel.itertuples())
        for one, other in combinations(rows, 2):
            if classify_pair(one, other, alone=len(rows) == 2) is not None:
                yield str(duel_run), one.name, other.name


def name_rows(
    frame: pd.DataFrame, *, contender: str | None = None, other: str | None = None
) -> pd.DataFrame:
    """Name what each row is about, and number the rows, to identify a failed one."""
    return frame.assign(
        contender=frame[contender] if contender else None,
        other=frame[other] if other else None,
        row=range(len(frame)),
    ).reset_index(drop=True)
