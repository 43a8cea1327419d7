"""One duel in an allocation: ended in time, with nobody left behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from duel_orders import make_contender, make_order

from benchcore.protocol import SlurmJob
from benchcore.shard import OutOfTimeError, result_path, run_duel
from benchcore.snapshot import take_snapshot
from benchcore.state import State, open_state
from benchcore.store.documents import read_document

JOB = SlurmJob(
    job_id="7",
    node="node01",
    partition="gpu",
    gpus=("0",),
    queue_s=1.5,
    exclusive=False,
    flow_run=None,
)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path)


def test_a_duel_that_would_outlive_its_allocation_is_stopped(state: State) -> None:
    hangs = make_order(make_contender("a"), workload="faulty", case="hang_in_step")
    before = time.time()
    with pytest.raises(OutOfTimeError, match="would not have ended before its allocation"):
        run_duel(
            hangs, state, take_snapshot(state.snapshots), lambda event: None, ends_at=before + 3
        )
    assert 3 <= time.time() - before < 60
    assert not result_path(state, hangs.campaign, hangs.duel_run).exists()
    deadline = time.monotonic() + 30
    while _cells_running(state):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_result_remembers_the_job_around_it_and_one_in_time_is_kept(state: State) -> None:
    order = make_order(make_contender("a"), slurm=JOB)
    snapshot = take_snapshot(state.snapshots)
    path = run_duel(order, state, snapshot, lambda event: None, ends_at=time.time() + 300)
    assert read_document(path)["allocation"]["slurm"] == {
        "job_id": "7",
        "node": "node01",
        "partition": "gpu",
        "gpus": ["0"],
        "queue_s": 1.5,
        "exclusive": False,
        "flow_run": None,
    }
    # One that is there is not measured again, however late it is.
    assert run_duel(order, state, snapshot, lambda event: None, ends_at=0.0) == path


def _cells_running(state: State) -> bool:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PYTHONPATH={state.snapshots}".encode() in environ.read_bytes():
                return True
        except OSError:  # ended meanwhile
            continue
    return False
