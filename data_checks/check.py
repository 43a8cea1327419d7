"""Check campaigns in the database, and store their failed checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from benchcore.planning.matrix import PlannedDuel
from benchcore.store.database import Engine
from benchcore.store.duels import replace_failed_checks
from benchcore.store.frames.contenders import run_frames
from benchcore.store.frames.duels import (
    equivalence_frame,
    manifest_frame,
    product_frame,
    proof_frame,
)
from benchcore.store.frames.epochs import epoch_frame
from benchcore.store.frames.past import past_frame
from benchcore.store.frames.profiles import profile_frame
from benchcore.store.frames.reading import Campaigns
from data_checks.rows import CheckFrames

if TYPE_CHECKING:
    from data_checks.suites import CheckReport


def check_campaign(
    engine: Engine,
    campaign: str | Sequence[str],
    docs: Path | None = None,
    planned: Sequence[PlannedDuel] = (),
) -> CheckReport:
    """Replace the failed checks of one campaign, or of several whose rows go through the suites
    together, and its Data Docs in the folder `docs`. A `planned` duel without a result is a problem
    of the report.

    Raises CheckError if a check could not run.
    """
    from data_checks.suites import run_checks  # Great Expectations takes seconds to import

    report = run_checks(read_frames(engine, campaign, planned), docs)
    replace_failed_checks(engine, campaign, report.failed_checks, checked=report.checked)
    return report


def read_frames(
    engine: Engine, campaign: Campaigns, planned: Sequence[PlannedDuel] = ()
) -> CheckFrames:
    """The rows of all duel runs that are complete now; later ones are left for the next check."""
    contenders, starts = run_frames(engine, campaign)
    others = {
        "starts": starts,
        "equivalence": equivalence_frame(engine, campaign),
        "manifests": manifest_frame(engine, campaign),
        "products": product_frame(engine, campaign),
        "profiles": profile_frame(engine, campaign),
        "proofs": proof_frame(engine, campaign),
        "epochs": epoch_frame(engine, campaign),
        "past": past_frame(engine, campaign),
    }
    known = list(contenders["duel_run"])
    complete = {name: each.loc[each["duel_run"].isin(known)] for name, each in others.items()}
    titles = [(each.duel_run, each.title) for each in planned]
    wanted = pd.DataFrame(titles, columns=["duel_run", "title"], dtype="object")
    return CheckFrames(contenders=contenders, planned=wanted, **complete)
