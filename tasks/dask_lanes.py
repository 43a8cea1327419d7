"""Duels side by side in one allocation: prefect-dask, with a worker pinned to each GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distributed import Nanny, Scheduler, Security, SpecCluster
from distributed import wait as wait_for_dask
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import TaskRunContext
from prefect.states import Crashed
from prefect_dask.task_runners import DaskTaskRunner

from benchcore.slurm.lanes import Lane, split_allocation
from tasks.lanes import Ended
from tasks.measuring import measure_duel


def name_result(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """A duel's result is its own within its flow run: never another night's."""
    return f"{context.task_run.flow_run_id}-{parameters['duel_run']}"


# Dask runs tasks that are over again when the worker that remembers their results is lost.
_measure_once = measure_duel.with_options(
    persist_result=True, cache_policy=CacheKeyFnPolicy(cache_key_fn=name_result)
)


class DaskLanes:
    """A worker process for each lane, and never more than one duel in it."""

    def __init__(self, runner: DaskTaskRunner, num: int) -> None:
        self.num = num
        self._runner = runner
        self._running: dict[Any, str] = {}

    @property
    def num_busy(self) -> int:
        """Duels that were begun and not waited for."""
        return len(self._running)

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        """Begin a duel in a lane that is free."""
        assert self.num_busy < self.num
        parameters = {"title": title, "duel_run": duel_run, "log": None, "job": None, **order}
        future = self._runner.submit(_measure_once, parameters=parameters)
        self._running[future.wrapped_future] = duel_run

    def wait(self) -> Ended:
        """Whichever duel is over first. One that took its worker with it, again and again, is told
        as such."""
        # Dask counts one whose result was lost among the ended ones, and runs it again.
        while not (ended := [future for future in self._running if future.done()]):
            wait_for_dask(list(self._running), return_when="FIRST_COMPLETED")
        future = ended[0]
        duel_run = self._running.pop(future)
        if future.status == "finished":
            return duel_run, future.result()
        return duel_run, Crashed(message=f"Dask gave it up: {future.exception()}")


@contextmanager
def open_dask_lanes(gpus: Sequence[str]) -> Iterator[DaskLanes]:
    """A Dask cluster of this machine, for as long as the body runs. Only who has its certificate,
    which is made here and kept in memory, can talk to it: nodes have other users."""
    lanes = split_allocation(gpus, os.sched_getaffinity(0))
    security = Security.temporary()
    shared = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    shared |= {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    cluster = {
        "scheduler": {"cls": Scheduler, "options": {**shared, "port": 0}},
        "workers": {f"gpu-{lane.gpu}": _describe_worker(lane, shared) for lane in lanes},
        "security": security,
        "silence_logs": "WARNING",
    }
    chosen = {"cluster_kwargs": cluster, "client_kwargs": {"set_as_default": True}}
    with DaskTaskRunner(cluster_class=SpecCluster, **chosen) as runner:
        yield DaskLanes(runner, len(lanes))


def _describe_worker(lane: Lane, shared: dict[str, Any]) -> dict[str, Any]:
    """One duel at a time, and no limit of memory but the allocation's own."""
    environ = {**lane.environ, "DASK_LOGGING__DISTRIBUTED": "warning"}
    return {
        "cls": Nanny,
        "options": {**shared, "nthreads": 1, "memory_limit": 0, "env": environ},
    }
