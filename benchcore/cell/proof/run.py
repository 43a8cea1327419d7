"""Runs a proof: every contender computes its proof cases in the precision and in float64."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from threading import Lock
from typing import Any

from benchcore.cell.document import utc_now
from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.measure import host
from benchcore.cell.processes.launch import contender_environ, launch
from benchcore.cell.processes.process import ContenderProcess
from benchcore.cell.proof import float64_rule
from benchcore.cell.proof.case import list_proof_cases
from benchcore.cell.proof.float64_rule import ProofRule, SideEvidence
from benchcore.program import REFERENCE, read_arrays
from benchcore.protocol import SCHEMA, ContenderOrder, ProofOrder
from benchcore.workloads.contract import import_spec

_NUM_PARALLEL = 2
"""Imports and compilation use one core; three processes' evidence would not fit a small memory."""


class ProofRun:
    """One proof order in this allocation. Imports neither framework."""

    def __init__(self, order: ProofOrder, scratch: Path) -> None:
        self._order = order
        self._scratch = scratch
        self._spec = import_spec(order.workload)
        self._failures: dict[str, ContenderFailedError] = {}
        self._num_proved, self._reporting = 0, Lock()

    def run(self) -> dict[str, Any]:
        """Compare every pair; return the proof document."""
        order, started_at = self._order, utc_now()
        self._compute("evidence", [c.name for c in order.contenders])
        rows = [row for a, b in self._pairs() for row in self._judge(a, b)]
        return {
            "schema": SCHEMA,
            "workload": order.workload,
            "precision": order.precision,
            "checkpoint": order.checkpoint and order.checkpoint.sha256,
            "num_seeds": order.num_seeds,
            "harness": {"version": order.harness_version, "snapshot": order.snapshot},
            "device": host.describe_device(order.device),
            "started_at": started_at,
            "contenders": [self._describe(contender) for contender in order.contenders],
            "rows": rows,
            "drift": self._explain([row for row in rows if not row["passed"]]),
            "ended_at": utc_now(),
        }

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return combinations([contender.name for contender in self._order.contenders], 2)

    def _compute(self, what: str, names: list[str]) -> None:
        """New processes, one per contender and precision; on a GPU one after another."""
        wanted = [
            (contender, precision)
            for contender in self._order.contenders
            if contender.name in names
            for precision in (self._order.precision, REFERENCE)
        ]
        num_parallel = min(_NUM_PARALLEL, host.usable_cpus()) if self._order.device == "cpu" else 1
        with ThreadPoolExecutor(num_parallel) as pool:
            list(pool.map(lambda each: self._attempt(each[0], each[1], what), wanted))

    def _attempt(
        self, contender: ContenderOrder, precision: str, what: str, *, again: bool = True
    ) -> None:
        """Record a contender's failure; the others continue. One that something else killed is
        tried `again`."""
        try:
            if contender.environment_failure:
                reason = contender.environment_failure
                raise ContenderFailedError("environment", "import", reason, cause="environment")
            environ = contender_environ(
                contender, self._order.device, self._scratch / "caches" / contender.name
            )
            process = launch(contender, environ, self._scratch)
            try:
                self._request(process, contender, precision, what)
            finally:
                process.close()
        except ContenderFailedError as failed:
            if failed.status == "killed" and again:
                return self._attempt(contender, precision, what, again=False)
            self._failures.setdefault(contender.name, failed)

    def _request(
        self, process: ContenderProcess, contender: ContenderOrder, precision: str, what: str
    ) -> None:
        order = self._order
        prepare = {
            "purpose": "proof",
            "framework": contender.framework,
            "workload": order.workload,
            "precision": precision,
            "device": order.device,
            "settings": contender.settings,
            "threads": host.usable_cpus(),
        }
        process.request(prepare, wanted="prepared", timeout_s=order.timeout_s)
        for use_case in order.use_cases:
            for seed in self._seeds(use_case) if what == "evidence" else [order.seed]:
                message = {
                    "do": "prove",
                    "what": what,
                    "use_case": use_case,
                    "precision": precision,
                    "label": order.precision,
                    "seed": seed,
                    "test_images": order.test_images,
                    "references": order.references,
                    "checkpoint": order.checkpoint and dataclasses.asdict(order.checkpoint),
                    "environment": contender.environment.key,
                    "device": order.device,
                    "path": str(self._path(what, contender.name, use_case, precision, seed)),
                }
                process.request(message, wanted="proved", timeout_s=order.timeout_s)
                if what == "evidence":
                    self._report_progress()

    def _report_progress(self) -> None:
        """Print a JSON line with the completed share of the evidence."""
        each = sum(len(self._seeds(use_case)) for use_case in self._order.use_cases)
        with self._reporting:
            self._num_proved += 1
            share = self._num_proved / (2 * len(self._order.contenders) * each)
            sys.stdout.write(json.dumps({"share": share}) + "\n")
            sys.stdout.flush()

    def _seeds(self, use_case: str) -> range:
        """Several seeds for a loss trace, else one."""
        num_seeds = self._order.num_seeds if use_case == "train" else 1
        return range(self._order.seed, self._order.seed + num_seeds)

    def _path(self, what: str, name: str, use_case: str, precision: str, seed: int) -> Path:
        return self._scratch / f"{what}.{name}.{use_case}.{precision}.{seed}.npz"

    def _judge(self, a: str, b: str) -> Iterator[dict[str, Any]]:
        for use_case in self._order.use_cases:
            pair = {"use_case": use_case, "a": a, "b": b}
            failed = next((name for name in (a, b) if name in self._failures), None)
            if failed is not None:
                why = self._failures[failed]
                reason = f"{failed}: {why.status} in {why.stage}: {why.reason}"
                yield {**pair, **_NOTHING, "reason": reason[:2000]}
                continue
            one, other = (self._evidence(name, use_case) for name in (a, b))
            for row in float64_rule.judge(one, other, self._rule(use_case)) or [_NOTHING]:
                yield {**pair, **row, "reason": "" if row["passed"] else _explain_bound(row, a, b)}

    def _rule(self, use_case: str) -> ProofRule:
        order = self._order
        cases = list_proof_cases(self._spec, from_checkpoint=order.checkpoint is not None)
        case = dataclasses.replace(cases[use_case], precision=order.precision)
        spec, weighed = self._spec, order.checkpoint is not None
        bounds = spec.tolerances_near_kinks(case) if weighed else spec.tolerances(case)
        return ProofRule(precision=order.precision, tolerances=bounds)

    def _evidence(self, name: str, use_case: str) -> SideEvidence:
        seeds = self._seeds(use_case)
        found, exact = (
            float64_rule.gather(
                [read_arrays(self._path("evidence", name, use_case, each, s)) for s in seeds]
            )
            for each in (self._order.precision, REFERENCE)
        )
        return SideEvidence(found=found, exact=exact)

    def _explain(self, failed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Compare the parts of every quantity that failed, computed by new processes."""
        failed = [row for row in failed if not {row["a"], row["b"]} & self._failures.keys()]
        if not failed:
            return []
        self._compute("parts", [name for row in failed for name in (row["a"], row["b"])])
        drift = []
        for row in failed:
            if {row["a"], row["b"]} & self._failures.keys():
                continue
            a, b = (self._parts(name, row["use_case"]) for name in (row["a"], row["b"]))
            parts = float64_rule.trace_drift(row["quantity"], a, b, self._rule(row["use_case"]))
            first = next((part["part"] for part in parts if not part["passed"]), None)
            row["first_drift"] = first
            pair = {key: row[key] for key in ("use_case", "a", "b", "quantity")}
            drift.append({**pair, "first": first, "parts": parts})
        return drift

    def _parts(self, name: str, use_case: str) -> SideEvidence:
        found, exact = (
            read_arrays(self._path("parts", name, use_case, precision, self._order.seed))
            for precision in (self._order.precision, REFERENCE)
        )
        return SideEvidence(found=found, exact=exact)

    def _describe(self, contender: ContenderOrder) -> dict[str, Any]:
        failed = self._failures.get(contender.name)
        return {
            **{key: getattr(contender, key) for key in ("name", "arm", "framework", "version")},
            "environment_key": contender.environment.key,
            "lock_sha256": contender.environment.lock_sha256,
            "status": failed.status if failed else "ok",
        }


_NOTHING = {
    "quantity": "evidence",
    **{f"{of}_{what}": None for of in ("reference", "a", "b") for what in ("error", "bound")},
    "passed": False,
}


def _explain_bound(row: Mapping[str, Any], a: str, b: str) -> str:
    """Which of the three bounds is exceeded."""
    quantity = row["quantity"]
    if any(row[f"{of}_error"] is None for of in ("reference", "a", "b")):
        return f"{quantity!r} can't be compared: missing, another shape, not finite or all zeros"
    if row["reference_error"] > row["reference_bound"]:
        apart = f"{row['reference_error']:.2g}, more than the allowed {row['reference_bound']:.2g}"
        return f"not the same function: {quantity!r} of {a} and {b} differs in float64 by {apart}"
    of, name = ("a", a) if row["a_error"] > row["a_bound"] else ("b", b)
    error, bound = row[f"{of}_error"], row[f"{of}_bound"]
    return f"{quantity!r} of {name} errs by {error:.2g} against float64, more than {bound:.2g}"
