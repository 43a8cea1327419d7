"""Run by test_slurm_campaign.py: of two slots one loses its worker after its duel has ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from prefect import flow

from tasks.dask_slots import open_dask_slots


@flow
def shard(campaign: str, root: str, log: str, duel_runs: list[str]) -> None:
    """Measure both duels, kill the worker of the first, and print how each ended."""
    order = {"campaign": campaign, "root": root, "log": log}
    with open_dask_slots(("0", "1")) as slots:
        for duel_run in duel_runs:
            slots.begin(duel_run, duel_run, **order)
        future = next(each for each, name in slots._running.items() if name == duel_runs[0])
        _wait_for(lambda: future.status == "finished")
        client = slots._runner.client
        (held_by,) = client.who_has([future])[future.key]
        (pid,) = client.run(os.getpid, workers=[held_by]).values()
        os.kill(pid, signal.SIGKILL)
        _wait_for(lambda: future.status != "finished")
        ended = dict(slots.wait() for _ in duel_runs)
    final = {name: [state.name, state.message] for name, state in ended.items()}
    sys.stdout.write(f"{json.dumps(final)}\n")


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 90 s"
        time.sleep(0.02)


if __name__ == "__main__":
    shard(*sys.argv[1:4], sys.argv[4:])
