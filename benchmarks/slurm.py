"""Campaigns on a real Slurm of two nodes with two simulated GPUs each, on this machine.

    .venv/bin/python benchmarks/slurm.py storm
    .venv/bin/python benchmarks/slurm.py figures

`storm`: does a campaign survive what happens in a cluster, with exactly one result for each duel?
`figures`: the overhead of Prefect over bare `sbatch`, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # the cluster that tests bring up, too

from local_slurm import LocalSlurm
from slurm_cluster import Cluster, open_cluster
from slurm_figures import measure_shards, queue_many, serve_postgres, store_figures
from slurm_storm import run_storm


def main() -> int:
    """Run the requested part; 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    storm = commands.add_parser("storm", help="duels through the work pool while things break")
    storm.add_argument("--duels", type=int, default=200)
    storm.add_argument("--screenshots", type=Path, help="folder for pages of Prefect's UI")
    figures = commands.add_parser("figures", help="seconds and memory, compared with bare sbatch")
    figures.add_argument("--shards", type=int, default=200, help="to be queued at once")
    options = parser.parse_args()
    if options.command == "figures":
        _take_figures(options.shards)
        return 0
    with _open_stack(ui=options.screenshots is not None) as cluster:
        return run_storm(cluster, options.duels, options.screenshots)


def _take_figures(num_shards: int) -> None:
    """Each part is kept as soon as it is there."""
    found: dict[str, Any] = {}
    with _open_stack() as cluster:
        cluster.start_worker()
        found["shard_of_5_duels"] = measure_shards(cluster)
        store_figures(found)
    with serve_postgres() as database, _open_stack(database=database) as cluster:
        cluster.start_worker()
        found["queue_postgresql"] = queue_many(cluster, num_shards)
        store_figures(found)
    with _open_stack() as cluster:  # the last, as with many shards it does not come to its end
        cluster.start_worker()
        found["queue_sqlite"] = queue_many(cluster, num_shards)
        store_figures(found)


@contextmanager
def _open_stack(*, ui: bool = False, database: str | None = None) -> Iterator[Cluster]:
    """All of it in a folder of its own, and ended at the end."""
    with tempfile.TemporaryDirectory(prefix="deadheat-") as folder:
        slurm = LocalSlurm(Path(folder, "slurm"))
        slurm.start()
        try:
            with open_cluster(Path(folder), slurm, ui=ui, database=database) as cluster:
                os.environ.update(cluster.environment)
                yield cluster
        finally:
            slurm.stop()


if __name__ == "__main__":
    sys.exit(main())
