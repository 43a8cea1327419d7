"""What a bare `sbatch` of a benchmark would run: a campaign's duels, one after the other."""

from __future__ import annotations

import sys
from pathlib import Path

from benchcore.running.duels import measure_duel
from benchcore.running.plans import load_campaign
from benchcore.running.slurm.own_job import find_own_job
from benchcore.state import State

if __name__ == "__main__":
    state = State(Path(sys.argv[1]))
    plan = load_campaign(state, sys.argv[2])
    job = find_own_job()
    for duel in plan.duels:
        measure_duel(plan, duel, state, slurm=job.record if job else None)
