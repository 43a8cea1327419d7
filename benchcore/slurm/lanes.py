"""Lanes: the equal parts of an allocation, one GPU each, in which duels run side by side."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_GPUS = "CUDA_VISIBLE_DEVICES"
_CPUS = "DEADHEAT_LANE_CPUS"


@dataclass(frozen=True)
class Lane:
    """A GPU, as CUDA_VISIBLE_DEVICES names it, and the CPUs beside it."""

    gpu: str
    cpus: tuple[int, ...]

    @property
    def environ(self) -> dict[str, str]:
        """What a process in this lane is given; `settle_in_lane` does the rest."""
        return {_GPUS: self.gpu, _CPUS: ",".join(map(str, self.cpus))}


def list_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that CUDA will show here, in its order; none where nobody chose any."""
    named = environ.get(_GPUS, "")
    return tuple(gpu for gpu in named.split(",") if gpu and gpu != "NoDevFiles")


def split_allocation(gpus: Sequence[str], cpus: Collection[int]) -> list[Lane]:
    """A lane a GPU, each with as many of the CPUs as any other, and neighbours: on most machines
    those are of one socket. CPUs are shared only where there are fewer than GPUs."""
    ordered, share = sorted(cpus), len(cpus) // len(gpus)
    if not share:
        return [Lane(gpu, (ordered[at % len(ordered)],)) for at, gpu in enumerate(gpus)]
    return [Lane(gpu, tuple(ordered[at * share : (at + 1) * share])) for at, gpu in enumerate(gpus)]


def settle_in_lane() -> None:
    """Keep this thread, and what it starts, on the CPUs of its lane, if it is in one."""
    if cpus := os.environ.get(_CPUS):
        os.sched_setaffinity(0, map(int, cpus.split(",")))
