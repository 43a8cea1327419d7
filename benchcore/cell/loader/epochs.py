"""Trains one epoch as the block of a duel with a dataset, and validates after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from benchcore.cell.proof.steps.placing import check_sent
from benchcore.workloads.contract import Spec, TrainedImages

if TYPE_CHECKING:
    import numpy as np

    from benchcore.cell.loader.client import LoaderClient
    from benchcore.cell.measure.energy import ReadMillijoules
    from benchcore.cell.runtimes.runtime import Runtime
    from benchcore.program import Training
    from benchcore.protocol import DataMode

_REPORT_NS = 2_000_000_000
_AHEAD = 2
"""Steps in flight: the device runs one while the other waits in its queue."""
_BACKWARD = {"gradient": 1e-2, "update": 1e-2, "travel": 1e-1}
"""Uniform parts of images put many values near a kink of ReLU, where rounding decides. On 32 of
scikit-learn's digits, torch's eager gradient of MobileNetV3 differs by 2.3e-3 from float64 and its
travel by 1.9e-2; compiled torch's travel differed by up to 2.8e-2 from JAX's. The proof uses
batches without uniform parts; these tolerances show that both sides learn from the same data."""
_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """A contender's network, the loader of its batches, and where they are before timing starts."""

    training: Training
    loader: LoaderClient
    mode: DataMode
    runtime: Runtime
    read_mj: ReadMillijoules | None
    """The device's energy counter, if it has one."""
    report_alive: Callable[[], object]
    """Called every other second, to restart the conductor's time-out."""

    def warm_up(self) -> None:
        """Compile everything with two steps and a validation; then reset to the initial state."""
        for _ in range(2):
            self.training.learn(self._first("train"))
        self.training.validate(self._first("val"))
        self.runtime.synchronise(self.training.pending())
        self.training.reset()
        self.runtime.synchronise(self.training.pending())
        self.loader.take_digest()

    def inspect_batch(self) -> Mapping[str, np.ndarray]:
        """What a step gets from the first batch, loaded in the same way as an epoch's batches.
        Raises StepUnlikeProofError if it is sent otherwise than the loader gave it."""
        sent = self._first("train")
        check_sent(sent, self.loader.take_first("train", layout=self.training.layout))
        self.loader.take_digest()
        return self.training.read_batch(sent)

    def learn_first(self) -> object:
        """Train on the first batch, as an epoch does; the loss."""
        loss = self.training.learn(self._first("train"))
        self.loader.take_digest()
        return loss

    def _first(self, split: str) -> Any:
        staged = self.training.stage(self.loader.take_first(split, layout=self.training.layout))
        return self.training.send(staged)

    def run(self, epoch: int) -> dict[str, Any]:
        """Train on every full batch of the epoch, then validate, both timed separately.

        The clock stops when the device has finished every step; losses are read afterwards. The
        host fetches the next batch while the device works, and is at most two steps ahead.
        `wait_ns` is how long it then waited for the loader.
        """
        source, path = self._make_source(epoch)
        compiled, waited = self.runtime.num_compilations(), self.loader.wait_ns
        losses: list[Any] = []
        read = self.read_mj
        before_mj = read() if read else 0.0
        began = time.perf_counter_ns()
        for batch in self._report_while(source):
            losses.append(self.training.learn(batch))
            if len(losses) >= _AHEAD:
                self.runtime.release(losses[-_AHEAD])
        self.runtime.synchronise((self.training.pending(), losses))
        elapsed_ns = max(1, time.perf_counter_ns() - began)
        gross_mj = read() - before_mj if read else None
        found = {
            "steps": len(losses),
            "elapsed_ns": elapsed_ns,
            "wait_ns": self.loader.wait_ns - waited,
            "gross_mj": gross_mj,
            "data_path": path,
        }
        mean = sum(float(loss) for loss in losses) / len(losses)
        return {
            **found,
            "loss": mean,
            **self._validate(epoch),
            "compilations": self.runtime.num_compilations() - compiled,
            "sha256": self.loader.take_digest(),
        }

    def _make_source(self, epoch: int) -> tuple[Iterator[Any], DataMode]:
        """Batches on the device, and where they really were before timing started."""
        send = self.training.send
        if self.mode == "end-to-end":
            return map(send, self._stage(epoch)), "end-to-end"
        staged = list(self._report_while(self._stage(epoch)))
        self.loader.await_hashes()  # not while the clock runs
        if self.mode == "host-resident":
            return map(send, staged), "host-resident"
        placed = [send(each) for each in staged]
        self.runtime.synchronise((self.training.pending(), placed))
        return iter(placed), "device-resident"

    def _stage(self, epoch: int) -> Iterator[Any]:
        for arrays in self.loader.batches("train", epoch, layout=self.training.layout):
            yield self.training.stage(arrays)

    def _validate(self, epoch: int) -> dict[str, int]:
        counts: list[Any] = []
        began = time.perf_counter_ns()
        given = self.loader.batches("val", epoch, layout=self.training.layout)
        for arrays in self._report_while(given):
            batch = self.training.send(self.training.stage(arrays))
            counts.append(self.training.validate(batch))
        correct = sum(int(count) for count in counts)
        return {"correct": correct, "validation_ns": max(1, time.perf_counter_ns() - began)}

    def _report_while(self, items: Iterator[_Item]) -> Iterator[_Item]:
        reported = time.perf_counter_ns()
        for item in items:
            yield item
            if time.perf_counter_ns() - reported > _REPORT_NS:
                reported = time.perf_counter_ns()
                if self.read_mj:
                    self.read_mj()  # a processor's counter overflows within minutes
                self.report_alive()


def seen_tolerances(
    precision: str, own: Mapping[str, float] | None = None, *, images: bool = True
) -> dict[str, float]:
    """Tolerances of a step's inputs; for backward quantities the wider of `own` and ours.

    Divisions on two devices differ in their last digits, which bf16 may round differently.
    """
    rounded = 1e-3 if precision.startswith("bf16") else 1e-6
    given = {"pixels" if images else "inputs": rounded, "labels": 1e-9}
    if own is None or not images:
        return given
    return given | {key: max(own[key], _BACKWARD[key]) for key in _BACKWARD if key in own}


def list_tolerances(spec: Spec, case: Any) -> dict[str, float]:
    """Tolerances of a duel that trains on a data set."""
    own = spec.tolerances_near_kinks(case)
    images = spec.trains_on is not None and isinstance(spec.trains_on(case), TrainedImages)
    return {**own, **seen_tolerances(case.precision, own, images=images)}
