"""The flow that test_slurm_worker.py has run inside Slurm jobs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from prefect import flow


@flow(log_prints=False)
def probe(folder: str, how: str) -> None:
    """Leave a line about this attempt, then do as requested."""
    lines = Path(folder) / f"{how}.txt"
    attempts = len(lines.read_text().splitlines()) if lines.exists() else 0
    with lines.open("a") as file:
        file.write(f"{os.environ['SLURM_JOB_ID']} {os.environ['CUDA_VISIBLE_DEVICES']}\n")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "is reattached" and not (Path(folder) / f"{how}.go").exists():
        time.sleep(0.1)
    if how == "waits" or (how == "loses its node" and not attempts):
        time.sleep(900)  # ended by the test
