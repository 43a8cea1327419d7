"""An epoch of training as the unit of a duel that has a dataset: one block, and what came of it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from benchcore.cell.energy import ReadMillijoules
from benchcore.cell.feed import Feed
from benchcore.cell.runtime import Runtime
from benchcore.program import Training
from benchcore.protocol import DataMode

if TYPE_CHECKING:
    import numpy as np

_TELL_NS = 2_000_000_000
_AHEAD = 2
"""Steps: the device works on the one while the other waits in its queue."""
_BACKWARD = {"gradient": 1e-2, "update": 1e-2, "travel": 1e-1}
"""Flat parts of images leave many values near a kink of ReLU, where rounding alone decides: of 32
of scikit-learn's digits, torch's eager gradient of MobileNetV3 is 2.3e-3 from that in float64 and
its travel 1.9e-2, and compiled torch's travel was up to 2.8e-2 from JAX's. That both are one
network is proven on batches without flat parts; here they show that both learn from the same."""
_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A contender's network, the feed of its batches, and where they lie when the clock starts."""

    training: Training
    feed: Feed
    mode: DataMode
    runtime: Runtime
    read_mj: ReadMillijoules | None
    """The device's counter of energy, where it has one."""
    tell: Callable[[], object]
    """Called every other second or so, to show that this goes on."""

    def rehearse(self) -> None:
        """Two steps and a validation, which leave nothing to compile; then back to the start."""
        for _ in range(2):
            self.training.learn(self._first("train"))
        self.training.validate(self._first("val"))
        self.runtime.synchronise(self.training.owed())
        self.training.reset()
        self.runtime.synchronise(self.training.owed())
        self.feed.take_digest()

    def see(self) -> Mapping[str, np.ndarray]:
        """What a step is given of the first batch, handed over as those of an epoch are."""
        seen = self.training.see(self._first("train"))
        self.feed.take_digest()
        return seen

    def _first(self, split: str) -> Any:
        staged = self.training.stage(*self.feed.take_first(split, layout=self.training.layout))
        return self.training.send(staged)

    def run(self, epoch: int) -> dict[str, Any]:
        """Every full batch of the epoch, on the clock, and then the validation beside it.

        The clock stops when the device has finished every step; losses are read after it. The host
        fetches the next batch while the device is at work, and is two steps ahead at
        most. `wait_ns` is what it then waited for the producer.
        """
        source, path = self._make_source(epoch)
        compiled, waited = self.runtime.num_compilations(), self.feed.wait_ns
        losses: list[Any] = []
        read = self.read_mj
        before_mj = read() if read else 0.0
        began = time.perf_counter_ns()
        for batch in self._show_life(source):
            losses.append(self.training.learn(batch))
            if len(losses) >= _AHEAD:
                self.runtime.let_go(losses[-_AHEAD])
        self.runtime.synchronise((self.training.owed(), losses))
        elapsed_ns = max(1, time.perf_counter_ns() - began)
        gross_mj = read() - before_mj if read else None
        found = {
            "steps": len(losses),
            "elapsed_ns": elapsed_ns,
            "wait_ns": self.feed.wait_ns - waited,
            "gross_mj": gross_mj,
            "data_path": path,
        }
        mean = sum(float(loss) for loss in losses) / len(losses)
        return {
            **found,
            "loss": mean,
            **self._validate(epoch),
            "compilations": self.runtime.num_compilations() - compiled,
            "sha256": self.feed.take_digest(),
        }

    def _make_source(self, epoch: int) -> tuple[Iterator[Any], DataMode]:
        """Batches on the device, and where they were before the clock: what was done, not asked."""
        send = self.training.send
        if self.mode == "end-to-end":
            return map(send, self._stage(epoch)), "end-to-end"
        staged = list(self._show_life(self._stage(epoch)))
        if self.mode == "host-resident":
            return map(send, staged), "host-resident"
        placed = [send(each) for each in staged]
        self.runtime.synchronise((self.training.owed(), placed))
        return iter(placed), "device-resident"

    def _stage(self, epoch: int) -> Iterator[Any]:
        for images, labels in self.feed.batches("train", epoch, layout=self.training.layout):
            yield self.training.stage(images, labels)

    def _validate(self, epoch: int) -> dict[str, int]:
        counts: list[Any] = []
        began = time.perf_counter_ns()
        given = self.feed.batches("val", epoch, layout=self.training.layout)
        for images, labels in self._show_life(given):
            batch = self.training.send(self.training.stage(images, labels))
            counts.append(self.training.validate(batch))
        correct = sum(int(count) for count in counts)
        return {"correct": correct, "validation_ns": max(1, time.perf_counter_ns() - began)}

    def _show_life(self, items: Iterator[_Item]) -> Iterator[_Item]:
        told = time.perf_counter_ns()
        for item in items:
            yield item
            if time.perf_counter_ns() - told > _TELL_NS:
                told = time.perf_counter_ns()
                if self.read_mj:
                    self.read_mj()  # a processor's counter starts again within minutes
                self.tell()


def seen_tolerances(precision: str, own: Mapping[str, float] | None = None) -> dict[str, float]:
    """Of what steps are given, and of what went backward where a case's own are narrower.

    Divisions on two devices differ in their last digits, which bf16 may round another way.
    """
    given = {"pixels": 1e-3 if precision.startswith("bf16") else 1e-6, "labels": 1e-9}
    wider = {key: max(own[key], _BACKWARD[key]) for key in _BACKWARD if key in own} if own else {}
    return given | wider


def keep_block(start: dict[str, Any], found: Mapping[str, Any], turn: Mapping[str, Any]) -> None:
    """Into a start: a block, and of an epoch what was learnt, and the bytes it was learnt from."""
    start["compilations_in_blocks"] += found["compilations"]
    start["blocks"].append({**turn, **{key: found[key] for key in ("steps", "elapsed_ns")}})
    if "loss" not in found:
        return
    came = start["inputs_sha256"] + found["sha256"]
    start["inputs_sha256"] = hashlib.sha256(came.encode()).hexdigest()
    kept = ("wait_ns", "loss", "correct", "validation_ns", "gross_mj")
    learnt = {"epoch": turn["round"], **{key: found[key] for key in kept}}
    start["epochs"] = [*(start["epochs"] or ()), learnt]
