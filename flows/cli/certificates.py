"""The command `deadheat certificates`: the cases that a release left unchanged."""

from __future__ import annotations

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.reports.certificates import list_certificates
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from dashboards.formatting import case_label
from flows.cli.options import STATE, BoundOption, JsonOption, StateOption
from flows.cli.printing import OUT, print_json, print_rows


def certificates(
    bound: BoundOption = EQUIVALENCE_BOUND,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Certify per case that a release changed nothing, within a bound.

    Two one-sided tests must show it.
    """
    rows = list_certificates(open_database(open_state(state).database_url), bound)
    if as_json:
        print_json(rows)
        return
    if not rows:
        OUT.print("no duel that counts compares two versions of a framework")
        return
    table = [
        {
            "case": case_label(row),
            "arm": row["a_arm"],
            "versions": f"{row['b_version']} to {row['a_version']}",
            "certificate": _format_certificate(row["certificate"], bound),
            "faster by": None if row["change"] is None else f"{row['change']:+.1%}",
            "95 %": None if row["low"] is None else f"{row['low']:+.1%} to {row['high']:+.1%}",
            "starts": row["num_starts"],
            "device": row["device_model"],
        }
        for row in rows
    ]
    print_rows(table, list(table[0]), title="What releases changed")


def _format_certificate(certificate: str, bound: float) -> str:
    return f"unchanged within ±{bound:.1%}" if certificate == "unchanged" else certificate
