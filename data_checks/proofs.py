"""Check that the environments of each pair are proven to compute the same function."""

from __future__ import annotations

import pandas as pd

from benchcore.planning.catalog import needs_proof
from data_checks.rows import CheckFrames, list_pairs, name_rows


def proof_rows(frames: CheckFrames) -> pd.DataFrame:
    """One row per proven quantity of a pair, and one per pair without its proof.

    Pairs need a proof if both sides finished in different environments, on a workload with one.
    """
    proven = {
        (each["duel_run"], frozenset((each["a"], each["b"])))
        for each in frames.proofs.to_dict("records")
    }
    finished = frames.contenders.query("status == 'ok'")
    side = {(each["duel_run"], each["name"]): each for each in finished.to_dict("records")}
    lacking = []
    for duel_run, a, b in list_pairs(frames.contenders):
        if (duel_run, a) not in side or (duel_run, b) not in side:
            continue
        one, other = side[duel_run, a], side[duel_run, b]
        wanted = needs_proof(one["workload"], one["use_case"], one["precision"])
        differ = one["environment_key"] != other["environment_key"]
        if wanted and differ and (duel_run, frozenset((a, b))) not in proven:
            weights = " --checkpoint FILE" if isinstance(one["checkpoint"], str) else ""
            named = f"{one['workload']} --precision {one['precision']}{weights}"
            reason = f"it was not proven; run deadheat equivalence {named}"
            missing = {"quantity": "equivalence", "passed": False, "reason": reason}
            lacking.append({"duel_run": duel_run, "a": a, "b": b, **missing})
    rows = [*frames.proofs.to_dict("records"), *lacking]
    return name_rows(pd.DataFrame(rows, columns=frames.proofs.columns), contender="a", other="b")
