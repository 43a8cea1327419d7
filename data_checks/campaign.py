"""Checks a campaign of the database, and leaves the marks there."""

from __future__ import annotations

from benchcore.store.database import Engine
from benchcore.store.epochs import epoch_frame
from benchcore.store.frames import (
    contender_frame,
    equivalence_frame,
    manifest_frame,
    profile_frame,
    proof_frame,
    start_frame,
)
from benchcore.store.queries import replace_marks
from data_checks.nightly import CheckReport, run_checks
from data_checks.rows import CheckFrames


def check_campaign(engine: Engine, campaign: str) -> CheckReport:
    """Put new marks in place of the old ones. Raises CheckError if a check can't be made."""
    report = run_checks(read_frames(engine, campaign))
    replace_marks(engine, campaign, report.marks, checked=report.checked)
    return report


def read_frames(engine: Engine, campaign: str) -> CheckFrames:
    """The rows of the duel runs that are whole by now; what comes in meanwhile waits its turn."""
    contenders = contender_frame(engine, campaign)
    starts, equivalence = start_frame(engine, campaign), equivalence_frame(engine, campaign)
    manifests = manifest_frame(engine, campaign)
    profiles = profile_frame(engine, campaign)
    proofs = proof_frame(engine, campaign)
    epochs = epoch_frame(engine, campaign)
    known = list(contenders["duel_run"])
    return CheckFrames(
        contenders=contenders,
        starts=starts.loc[starts["duel_run"].isin(known)],
        equivalence=equivalence.loc[equivalence["duel_run"].isin(known)],
        manifests=manifests.loc[manifests["duel_run"].isin(known)],
        profiles=profiles.loc[profiles["duel_run"].isin(known)],
        proofs=proofs.loc[proofs["duel_run"].isin(known)],
        epochs=epochs.loc[epochs["duel_run"].isin(known)],
    )
