"""Runs one duel: its starts until a limit, the crash ladder, the passes, the result document."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchcore.cell import document, stopping
from benchcore.cell.failures.ladder import CrashLadder
from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.loader.epochs import list_tolerances
from benchcore.cell.measure import energy, gpu, host
from benchcore.cell.measure.resource_passes import ResourcePasses
from benchcore.cell.proof import agreement
from benchcore.cell.result.duel import PassesOf
from benchcore.cell.start import StartRunner, report_progress
from benchcore.protocol import DuelOrder, StoppedBy
from benchcore.workloads.contract import import_spec

if TYPE_CHECKING:
    from benchcore.cell.loader.server_process import LoaderProcess


class Conductor:
    """One duel in this allocation. Imports neither framework."""

    def __init__(
        self, order: DuelOrder, scratch: Path, *, powercap: Path = energy.POWERCAP
    ) -> None:
        self._order = order
        self._scratch = scratch
        self._powercap = powercap
        self._spec = import_spec(order.workload)
        self._starts = StartRunner(order, scratch, powercap)
        self._ladder = CrashLadder(self._starts, self._spec.cases[order.case].precision)

    def run(self) -> dict[str, Any]:
        """The whole duel; returns its result document."""
        order, starts = self._order, self._starts
        started_at = document.utc_now()
        starts.detect_device()
        stopped_by = self._run_starts() if order.dataset is None else self._run_with_loader()
        device = host.describe_device(order.device)
        passes_of = self._measure_passes(device) if order.limits.passes else {}
        starts.refuse_changed()
        self._ladder.mark_workarounds()
        return document.assemble(
            order,
            duel={
                **document.describe_duel(order, self._spec),
                "stopped_by": stopped_by,
                **passes_of,
            },
            allocation=self._describe_allocation(started_at, device),
            contenders=list(starts.contenders.values()),
            equivalence=self._compare_evidence(),
            probe=starts.probe.describe(),
        )

    def describe_ended(self, reason: str) -> dict[str, Any]:
        """The document of a duel that was ended because it hung: nothing is measured, and any of
        its contenders may have been the cause."""
        order = self._order
        failed = ContenderFailedError("timeout", "conductor", reason, cause="timeout")
        failure = document.describe_failure(failed, 0, None)
        return document.assemble(
            order,
            duel=document.describe_duel(order, self._spec),
            allocation=self._describe_allocation(
                document.utc_now(), host.describe_device(order.device)
            ),
            contenders=[
                {**document.new_contender(each), "status": failed.status, "failure": failure}
                for each in order.contenders
            ],
            equivalence=[],
            probe=self._starts.probe.describe(),
        )

    def _run_with_loader(self) -> StoppedBy:
        """Starts that train on the batches of one loader. Passes measure single steps only."""
        from benchcore.cell.loader.server_process import LoaderProcess

        with closing(LoaderProcess(self._order, self._scratch)) as loader:
            return self._run_starts(loader)

    def _run_starts(self, loader: LoaderProcess | None = None) -> StoppedBy:
        """Run starts until one of the duel's limits; return which one it was."""
        self._starts.begin(loader)
        start_s: list[float] = []
        while True:
            before, index = time.monotonic(), len(start_s)
            self._starts.run(index, self._order.contenders)
            self._ladder.retry_crashed(index)
            start_s.append(time.monotonic() - before)
            contenders = self._starts.contenders
            left = [name for name, each in contenders.items() if each["status"] == "ok"]
            finished = [self._starts.describe(*each, left) for each in enumerate(start_s)]
            stopped_by = stopping.why_stop(self._order.limits, left, finished)
            if stopped_by:
                return stopped_by

    def _measure_passes(self, device: Mapping[str, Any]) -> dict[str, Any]:
        """Measure memory, profile and energy, or name the earlier duel run whose passes are still
        valid. Duels with a dataset have no passes: these measure single steps."""
        order = self._order
        if order.dataset is not None:
            return {}
        if (earlier := order.find_passes(device)) is not None:
            names = (field.name for field in dataclasses.fields(PassesOf))
            return {"passes_of": {name: getattr(earlier, name) for name in names}}
        report_progress(event="passes")
        launch = self._starts.launcher.launch_for_pass
        prove = self._starts.prove_pass
        passes = ResourcePasses(order, launch, prove, powercap=self._powercap)
        passes.run(self._starts.contenders)
        return {}

    def _describe_allocation(self, started_at: str, device: dict[str, Any]) -> dict[str, Any]:
        no_gpu = self._starts.absent or self._order.device == "cpu"
        return {
            **document.describe_allocation(self._order, started_at),
            "device": device,
            "gpus": [] if no_gpu else gpu.list_gpus(),
            "host": host.describe_host(),
        }

    def _compare_evidence(self) -> list[dict[str, Any]]:
        """A contender that needed a workaround is compared as it ran with the workaround."""
        evidence = self._starts.evidence
        paths = {name: evidence[name] for name in self._starts.contenders if name in evidence}
        case = document.find_order_case(self._order, self._spec)
        tolerances = self._spec.tolerances(case)
        near_kinks = self._spec.tolerances_near_kinks(case)
        if self._order.dataset is not None:
            tolerances = near_kinks = list_tolerances(self._spec, case)
        exact = agreement.takes_float32(case)
        in_float32 = None if exact is None else self._spec.tolerances(exact)
        return agreement.compare_all(paths, tolerances, near_kinks, in_float32) if paths else []
