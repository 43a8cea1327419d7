"""Where a shard's duels are measured: one after the other, or side by side on GPUs of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from prefect.client.schemas.objects import State

from benchcore.running.shards import Shard, ShardReport
from benchcore.running.slurm.own_job import OwnJob
from tasks import measurement
from tasks.measurement import Ended


class Slots(Protocol):
    """Places for `num` duels at a time; `num_busy` are taken."""

    num: int

    @property
    def num_busy(self) -> int:
        """Duels that were started and not yet waited for."""
        ...

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        """Start a duel in a free slot."""
        ...

    def wait(self) -> Ended:
        """The next duel that ends."""
        ...


class _OneSlot:
    """This process itself."""

    num = 1

    def __init__(self) -> None:
        self._begun: list[Callable[[], Ended]] = []

    @property
    def num_busy(self) -> int:
        return len(self._begun)

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        def measure() -> Ended:
            ended: State[Any] = measurement.measure_in_job(
                title, duel_run, **order, return_state=True
            )
            return duel_run, ended

        self._begun.append(measure)

    def wait(self) -> Ended:
        return self._begun.pop()()


@contextmanager
def open_slots(job: OwnJob | None, devices: int = 1) -> Iterator[Slots]:
    """One slot per this many GPUs of the job around this process; a single one if there are
    too few for two."""
    if job is None or len(job.gpus) < 2 * devices:
        yield _OneSlot()
        return
    # This import takes a second, which shards of one GPU save.
    from tasks.dask_slots import open_dask_slots

    with open_dask_slots(job.gpus, devices) as slots:
        yield slots


def measure_in_slots(
    duels: dict[str, str],
    shard: Shard,
    job: OwnJob | None,
    root: str,
    returnable: Collection[str] = (),
) -> ShardReport:
    """Measure a shard's duels, as many at a time as there are slots, until the job is about to end.
    The first one in each slot starts however long it may take, unless it is `returnable`.

    `duels` has their titles by id. The report has no proofs.
    """
    order: dict[str, Any] = {"campaign": shard.campaign, "root": root, "job": job}
    order["log"] = measurement.shard_log(shard, root)
    lost, rest, waiting, busy = dict[str, str](), list(duels), list(duels), list[str]()
    with open_slots(job, shard.devices) as slots:
        first = [each for each in waiting[: slots.num] if each not in returnable]
        while waiting or slots.num_busy:
            if waiting and slots.num_busy < slots.num:
                duel_run = waiting.pop(0)
                if duel_run in first or measurement.has_time(shard, duel_run, job):
                    slots.begin(duels[duel_run], duel_run, **order)
                else:
                    waiting.clear()
                continue
            duel_run, ended = slots.wait()
            if measurement.ran_out_of_time(ended) and duel_run not in first:
                waiting.clear()
                continue
            rest.remove(duel_run)
            if not ended.is_completed():
                lost[duel_run] = str(ended.message)
                busy += [duel_run] if measurement.found_busy(ended) else []
    return ShardReport(lost=lost, rest=rest, busy=busy)
