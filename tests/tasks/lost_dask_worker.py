"""What test_dask_lanes.py runs: two lanes, one of which is lost after its duel is over."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from prefect import flow

from tasks.dask_lanes import open_dask_lanes


@flow
def shard(campaign: str, root: str, log: str, duel_runs: list[str]) -> None:
    """Measure both duels; tell how each ended, once the first one's worker is gone."""
    order = {"campaign": campaign, "root": root, "log": log}
    with open_dask_lanes(("0", "1")) as lanes:
        for duel_run in duel_runs:
            lanes.begin(duel_run, duel_run, **order)
        future = next(each for each, name in lanes._running.items() if name == duel_runs[0])
        _wait_for(lambda: future.status == "finished")
        client = lanes._runner.client
        (held_by,) = client.who_has([future])[future.key]
        (pid,) = client.run(os.getpid, workers=[held_by]).values()
        os.kill(pid, signal.SIGKILL)
        _wait_for(lambda: future.status != "finished")
        ended = dict(lanes.wait() for _ in duel_runs)
    told = {name: [state.name, state.message] for name, state in ended.items()}
    sys.stdout.write(f"{json.dumps(told)}\n")


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


if __name__ == "__main__":
    shard(*sys.argv[1:4], sys.argv[4:])
