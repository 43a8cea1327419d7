"""Where a shard's duels are measured: one after the other, or one a GPU side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from prefect.client.schemas.objects import State

from benchcore.slurm.own_job import OwnJob
from tasks import measuring

Ended = tuple[str, State[str]]
"""A duel run, and how its task run ended."""


class Lanes(Protocol):
    """Room for `num` duels at a time, of which `num_busy` is taken."""

    num: int

    @property
    def num_busy(self) -> int:
        """Duels that were begun and not waited for."""
        ...

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        """Begin a duel where there is room."""
        ...

    def wait(self) -> Ended:
        """Some duel that was begun, once it is over."""
        ...


class _OneLane:
    """This process itself."""

    num = 1

    def __init__(self) -> None:
        self._begun: list[Callable[[], Ended]] = []

    @property
    def num_busy(self) -> int:
        return len(self._begun)

    def begin(self, title: str, duel_run: str, **order: Any) -> None:
        def measure() -> Ended:
            ended: State[str] = measuring.measure_duel(title, duel_run, **order, return_state=True)
            return duel_run, ended

        self._begun.append(measure)

    def wait(self) -> Ended:
        return self._begun.pop()()


@contextmanager
def open_lanes(job: OwnJob | None) -> Iterator[Lanes]:
    """One lane for each GPU of the job around this process; one in all where there are none."""
    if job is None or len(job.gpus) < 2:
        yield _OneLane()
        return
    # Takes a second that shards of one GPU need not wait.
    from tasks.dask_lanes import open_dask_lanes

    with open_dask_lanes(job.gpus) as lanes:
        yield lanes
