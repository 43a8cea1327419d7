"""Prepares the rows that the checks look at: derives columns, and leaves every judgement to them.

Each table has the columns `duel_run`, `contender` and `other`, which say whom a failed row marks:
one contender, a pair, or (both missing) the whole duel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from benchcore.store.parity import read_sides
from benchcore.verdict.parity import compare_sides


@dataclass(frozen=True, kw_only=True)
class CheckFrames:
    """What the checks need of a campaign, as `benchcore.store.frames` reads it."""

    contenders: pd.DataFrame
    starts: pd.DataFrame
    equivalence: pd.DataFrame
    manifests: pd.DataFrame
    profiles: pd.DataFrame
    proofs: pd.DataFrame
    epochs: pd.DataFrame


def contender_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a contender."""
    return name_rows(frames.contenders, contender="name")


def unbounded_cases(frames: CheckFrames) -> tuple[str, ...]:
    """Cases with a ceiling that nobody measured: there the physics gate says less, or nothing."""
    lacking = frames.contenders.query("limit_reason.str.contains('no ceiling measured')")
    notes = [
        f"{row['workload']} {row['case_name']}: no ceiling measured: "
        + row["limit_reason"].rpartition(": ")[2]
        for row in lacking.to_dict("records")
    ]
    return tuple(dict.fromkeys(notes))


def start_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a start of a contender that finished: why another did not is its own mark.

    `clock_steps` is how many steps of the clock its shortest block lasted. `disturbed`
    is `throughout` where every block was degraded: such a start has no time, and no fault.
    """
    starts = frames.starts.query("contender_status == 'ok'")
    steps = starts["shortest_block_ns"] / starts["clock_resolution_ns"]
    throughout = (starts["num_blocks"] > 0) & (starts["num_degraded"] == starts["num_blocks"])
    disturbed = ["throughout" if each else "not throughout" for each in throughout]
    return name_rows(starts.assign(clock_steps=steps, disturbed=disturbed), contender="name")


def duel_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a duel: `num_inputs` counts the different inputs that its contenders worked on."""
    inputs = start_rows(frames).groupby("duel_run")["inputs_sha256"]
    return name_rows(inputs.nunique().to_frame("num_inputs").reset_index())


def pair_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a pair of which a ratio could be made: (jax, torch), the same arm twice, or the two
    contenders of a duel that has no others.

    `num_quantities` counts what of the pair was compared, `wanted_quantities` what was compared
    in any pair of the duel, and at least one: a duel without evidence proves nothing.
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
    """One row a compared quantity of a pair."""
    return name_rows(frames.equivalence, contender="a", other="b")


def parity_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row a pair that finished: what differs between the sides beyond what their arms allow."""
    rows = []
    sides = read_sides(frames.manifests)
    tracks = dict(zip(frames.manifests["duel_run"], frames.manifests["track"], strict=True))
    for duel_run, a, b in list_pairs(frames.manifests):
        parity = compare_sides(sides[duel_run, a], sides[duel_run, b], tracks[duel_run])
        differs = "; ".join(parity.violations)
        rows.append({"duel_run": duel_run, "a": a, "b": b, "differs": differs})
    columns = ["duel_run", "a", "b", "differs"]
    return name_rows(pd.DataFrame(rows, columns=columns), contender="a", other="b")


def list_pairs(contenders: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """(duel run, a, b) of every pair that a ratio could be made of."""
    for duel_run, of_duel in contenders.groupby("duel_run", sort=False):
        for one, other in combinations(of_duel.to_dict("records"), 2):
            frameworks = {one["framework"], other["framework"]}
            comparable = one["arm"] == other["arm"] or len(of_duel) == 2
            same = len(frameworks) == 1 and frameworks != {"stdlib"} and comparable
            if frameworks == {"jax", "torch"} or same:
                yield str(duel_run), one["name"], other["name"]


def name_rows(
    frame: pd.DataFrame, *, contender: str | None = None, other: str | None = None
) -> pd.DataFrame:
    """Say whom a row marks, and number the rows, so that a failed one is found again."""
    return frame.assign(
        contender=frame[contender] if contender else None,
        other=frame[other] if other else None,
        row=range(len(frame)),
    ).reset_index(drop=True)


def describe(name: str, reason: str) -> dict[str, str]:
    """The name of an expectation, and what to say of a row that fails it, with its columns."""
    return {"name": name, "reason": reason}
