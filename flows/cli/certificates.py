"""The command `deadheat certificates`: the cases that a release left unchanged."""

from __future__ import annotations

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.records import case_of
from benchcore.store.reports.certificates import list_certificates
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from flows.cli import options
from flows.cli.printing import print_json, print_line, print_rows


def certificates(
    bound: options.Bound = EQUIVALENCE_BOUND,
    state: options.State = options.STATE,
    as_json: options.Json = False,
) -> None:
    """Certify per case that a release changed nothing, within a bound.

    Two one-sided tests must show it.
    """
    rows = list_certificates(open_database(open_state(state).database_url), bound)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line("no duel that counts compares two versions of a framework")
        return
    table = [
        {
            "case": case_of(row),
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
