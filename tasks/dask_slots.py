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

from benchcore.running.slurm.slots import Slot, split_allocation
from tasks.measurement import Ended, measure_in_job


def name_result(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """The key of a duel's result, unique within its flow run: never another night's."""
    return f"{context.task_run.flow_run_id}-{parameters['duel_run']}"


# When a worker is lost, Dask repeats the finished tasks whose results it held.
_measure_once = measure_in_job.with_options(
    persist_result=True, cache_policy=CacheKeyFnPolicy(cache_key_fn=name_result)
)


class DaskSlots:
    """A worker process for each slot, and never more than one duel in it."""

    def __init__(self, runner: DaskTaskRunner, num: int) -> None:
        self.num = num
        self._runner = runner
        self._running: dict[Any, str] = {}

    @property
    def num_busy(self) -> int:
        """Duels that were started and not yet waited for."""
        return len(self._running)

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        """Start a duel in a free slot."""
        assert self.num_busy < self.num
        parameters = {"title": title, "duel_run": duel_run, "log": None, "job": None, **order}
        future = self._runner.submit(_measure_once, parameters=parameters)
        self._running[future.wrapped_future] = duel_run

    def wait(self) -> Ended:
        """The next duel that ends; Crashed if it killed its worker repeatedly."""
        # Dask may report one as ended whose result was lost, and run it again.
        while not (ended := [future for future in self._running if future.done()]):
            wait_for_dask(list(self._running), return_when="FIRST_COMPLETED")
        future = ended[0]
        duel_run = self._running.pop(future)
        if future.status == "finished":
            return duel_run, future.result()
        return duel_run, Crashed(message=f"Dask gave it up: {future.exception()}")


@contextmanager
def open_dask_slots(gpus: Sequence[str], devices: int = 1) -> Iterator[DaskSlots]:
    """A Dask cluster of this machine while the body runs. It requires a certificate that is kept in
    memory here: nodes have other users."""
    slots = split_allocation(gpus, os.sched_getaffinity(0), devices)
    security = Security.temporary()
    shared = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    shared |= {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    cluster = {
        "scheduler": {"cls": Scheduler, "options": {**shared, "port": 0}},
        "workers": {f"gpu-{slot.gpu}": _describe_worker(slot, shared) for slot in slots},
        "security": security,
        "silence_logs": "WARNING",
    }
    chosen = {"cluster_kwargs": cluster, "client_kwargs": {"set_as_default": True}}
    with DaskTaskRunner(cluster_class=SpecCluster, **chosen) as runner:
        yield DaskSlots(runner, len(slots))


def _describe_worker(slot: Slot, shared: dict[str, Any]) -> dict[str, Any]:
    """One duel at a time; the allocation limits the memory."""
    environ = {**slot.environ, "DASK_LOGGING__DISTRIBUTED": "warning"}
    return {
        "cls": Nanny,
        "options": {**shared, "nthreads": 1, "memory_limit": 0, "env": environ},
    }
