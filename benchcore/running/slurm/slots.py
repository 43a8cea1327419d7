"""Slots: equal parts of an allocation with one GPU each, or as many as a duel uses, in which duels
run side by side."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

_GPUS = "CUDA_VISIBLE_DEVICES"
_CPUS = "DEADHEAT_SLOT_CPUS"


@dataclass(frozen=True)
class Slot:
    """Its GPU or GPUs, as CUDA_VISIBLE_DEVICES names them, and its CPUs."""

    gpu: str
    cpus: tuple[int, ...]

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables of a process in this slot; `pin_to_slot` reads them."""
        return {_GPUS: self.gpu, _CPUS: ",".join(map(str, self.cpus))}


def list_gpus(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names, in its order; empty if it is unset."""
    named = environ.get(_GPUS, "")
    return tuple(gpu for gpu in named.split(",") if gpu and gpu != "NoDevFiles")


def split_allocation(gpus: Sequence[str], cpus: Collection[int], devices: int = 1) -> list[Slot]:
    """One slot per this many GPUs with an equal share of neighbouring CPUs, mostly of one socket.
    CPUs are shared only if there are fewer than slots. GPUs that fill no slot are left out."""
    starts = range(0, len(gpus) - devices + 1, devices)
    gpus = [",".join(gpus[start : start + devices]) for start in starts]
    ordered, share = sorted(cpus), len(cpus) // len(gpus)
    if not share:
        return [Slot(gpu, (ordered[at % len(ordered)],)) for at, gpu in enumerate(gpus)]
    return [Slot(gpu, tuple(ordered[at * share : (at + 1) * share])) for at, gpu in enumerate(gpus)]


def name_slot() -> str:
    """The slot that this process is in, within its allocation; "" = in none."""
    return f"slot of {os.environ.get(_GPUS, '')}" if _CPUS in os.environ else ""


def pin_to_slot() -> None:
    """Pin this thread and its children to the CPUs of its slot, if it is in one."""
    if cpus := os.environ.get(_CPUS):
        os.sched_setaffinity(0, map(int, cpus.split(",")))
