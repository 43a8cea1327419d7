"""The command `deadheat certificates`: what each release did to each case, where it is shown."""

from __future__ import annotations

from typing import Annotated

import typer

from benchcore.state import open_state
from benchcore.store.certificates import list_certificates
from benchcore.store.database import open_database
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from dashboards.wording import case_label
from flows.commands.options import STATE, JsonOption, StateOption
from flows.printing import OUT, print_json, print_rows


def certificates(
    bound: Annotated[
        float, typer.Option("--bound", min=0.001, max=0.5, help="Nearer than this is unchanged.")
    ] = EQUIVALENCE_BOUND,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Certify per case that a release changed nothing, where two one-sided tests show it."""
    rows = list_certificates(open_database(open_state(state).database_url), bound)
    if as_json:
        print_json(rows)
        return
    if not rows:
        OUT.print("no two versions of a framework have met in a duel that counts")
        return
    told = [
        {
            "case": case_label(row),
            "arm": row["a_arm"],
            "versions": f"{row['b_version']} to {row['a_version']}",
            "certificate": _word(row["certificate"], bound),
            "faster by": None if row["change"] is None else f"{row['change']:+.1%}",
            "95 %": None if row["low"] is None else f"{row['low']:+.1%} to {row['high']:+.1%}",
            "starts": row["num_starts"],
            "device": row["device_model"],
        }
        for row in rows
    ]
    print_rows(told, list(told[0]), title="What releases changed")


def _word(certificate: str, bound: float) -> str:
    return f"unchanged within ±{bound:.1%}" if certificate == "unchanged" else certificate
