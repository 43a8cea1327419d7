"""A database of made-up nights, for tests of the dashboard and for looking at it.

python tests/dashboard_nights.py FOLDER publishes them there.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from result_documents import Racer, make_document, make_plan, spool_document
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchcore.planning.matrix import save_plan
from benchcore.running.plans import campaign_folder
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign, replace_failed_checks
from benchcore.store.history.events import annotate_event, store_finding
from benchcore.store.history.suspicions import refresh_suspicions
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.models import SuspicionRow
from benchcore.store.records import FailedCheck
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.samples import Judgement

NIGHTS = 14
MOVED = 9
"""The night since which JAX 0.12.1 trains an MLP more slowly."""
LAST = datetime(2026, 11, 20, 3, 4, tzinfo=UTC)
DEVICE = "AMD EPYC 7763 64-Core Processor"
ADHOC = "run-resnet50-20261120t101500"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


@dataclass(frozen=True)
class Case:
    workload: str
    use_case: str
    batch: int
    precision: str
    jax_ns: float
    compiled: float
    """log(T_torch / T_jax), of PyTorch compiled and eager."""
    eager: float

    @property
    def name(self) -> str:
        end = "" if self.precision == "fp32_ieee" else f"_{self.precision}"
        return f"{self.use_case}_b{self.batch}{end}"


CASES = (
    Case("mlp", "infer", 8, "fp32_ieee", 1.1e5, 0.02, 0.61),
    Case("mlp", "infer", 128, "fp32_ieee", 3.4e5, 0.0, 0.53),
    Case("mlp", "train", 128, "fp32_ieee", 1.52e6, 0.35, 0.86),
    Case("resnet50", "infer", 4, "fp32_ieee", 1.94e8, -0.47, -0.19),
    Case("resnet50", "infer", 32, "bf16", 9.1e8, -0.31, -0.1),
    Case("vit_b_16", "infer", 8, "fp32_ieee", 4.2e8, 0.12, 0.2),
)


def name_night(number: int) -> str:
    return f"nightly-laptop-{_begun(number):%Y-%m-%d}"


def _begun(number: int) -> datetime:
    return LAST - timedelta(days=NIGHTS - 1 - number)


def _racers(case: Case, night: int, rng: random.Random) -> tuple[Racer, ...]:
    moved = night >= MOVED
    slip = 0.06 if moved and (case.workload, case.use_case) == ("mlp", "train") else 0.0
    new, old = ("0.12.1", "0.12.0") if moved else ("0.12.0", "0.11.2")
    torch = "2.15.0" if night >= 4 else "2.14.1"

    def racer(framework: str, version: str, arm: str, role: str, log: float) -> Racer:
        factors = tuple(math.exp(rng.gauss(0, 0.004)) for _ in range(5))
        step_ns = case.jax_ns * math.exp(log + rng.gauss(0, 0.002))
        name = f"{arm}-{version}"
        return Racer(
            name=name, framework=framework, version=version, arm=arm, role=role,
            step_ns=step_ns, start_factors=factors,
        )  # fmt: skip

    return (
        racer("jax", new, "jax-jit", "newest", slip),
        racer("jax", old, "jax-jit", "previous", 0.0),
        racer("torch", torch, "torch-compile", "newest", case.compiled),
        racer("torch", torch, "torch-eager", "newest", case.eager),
    )


def _document(case: Case, night: int, number: int, rng: random.Random) -> dict[str, Any]:
    racers = list(_racers(case, night, rng))
    if night == NIGHTS - 1 and case.workload == "vit_b_16":
        racers[2] = replace(racers[2], status="crash")
    run = f"{night * 100 + number:016x}"
    document = make_document(racers, duel_run=run, campaign=name_night(night), starts=5, rounds=6)
    describe(document, case, _begun(night) + timedelta(minutes=4 * number))
    for contender in document["contenders"]:
        if contender["arm"] == "torch-eager":
            contender["effective"]["manifest"] |= {"compiled": "no", "compile_mode": "none"}
        for start in contender["starts"]:
            ns = start["blocks"][0]["elapsed_ns"] / 10
            start["latency_ns"] = [round(ns * (1.02 + 0.002 * each)) for each in range(60)]
        if contender["status"] == "crash":
            contender["starts"] = []
            contender["failure"] |= {"traceback": f"Traceback (most recent call last):\n{HOSTILE}"}
            contender["failure"] |= {"stage": "compile", "reason": f"signal 11 {HOSTILE}"}
    return document


def describe(document: dict[str, Any], case: Case, begun: datetime) -> None:
    """Let a document be of a case, from when it began."""
    named = {"workload": case.workload, "case": case.name, "use_case": case.use_case}
    document["duel"] |= {**named, "batch": case.batch, "precision": case.precision}
    document["duel"] |= {"flops_per_step": 10**8, "least_bytes_per_step": 10**6}
    where = document["allocation"]
    where["started_at"] = begun.isoformat()
    where["ended_at"] = (begun + timedelta(minutes=3)).isoformat()
    where["device"] |= {"model": DEVICE}
    where["host"] |= {"cpu_model": DEVICE, "cpus": 2, "memory_bytes": 16 * 2**30}
    where["host"]["system"] = "Linux 6.8"


def _documents() -> Iterator[dict[str, Any]]:
    rng = random.Random(20)
    for night in range(NIGHTS):
        for number, case in enumerate(CASES):
            if case.name == "train_b128" or night in (3, *range(NIGHTS - 3, NIGHTS)):
                yield _document(case, night, number, rng)
    adhoc = _document(CASES[3], NIGHTS - 1, 50, rng) | {"campaign": ADHOC}
    describe(adhoc, CASES[3], LAST + timedelta(hours=7))
    yield adhoc


def store_nights(state: State) -> Engine:
    """A database with the nights, a confirmed change, a suspicion, void pairs, and a run in which
    nothing counts."""
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    names = [*(name_night(night) for night in range(NIGHTS)), ADHOC]
    for document in _documents():
        spool_document(state.spool, document)
    assert not ingest_spool(engine, state).rejected
    for name in names:
        plan = make_plan(name)
        save_plan(plan if name != ADHOC else replace(plan, profile="adhoc"),
                  campaign_folder(state, name) / "plan.json")  # fmt: skip
        replace_failed_checks(engine, name, list(_failed_checks(name)))
        judge_campaign(engine, name)
    refresh_suspicions(engine)
    _confirm(engine)
    return engine


def _failed_checks(name: str) -> Iterator[FailedCheck]:
    same: dict[str, Any] = {"suite": "equivalence", "expectation": "outputs agree"}
    reason = f"outputs differ: by 4.1e-03 where 1.0e-03 is allowed {HOSTILE}"
    if name == name_night(NIGHTS - 1):
        run = f"{(NIGHTS - 1) * 100 + 3:016x}"
        pair = {"contender": "torch-compile-2.15.0", "other": "jax-jit-0.12.1"}
        yield FailedCheck(duel_run=run, **pair, reason=reason, **same)
    if name == ADHOC:
        run = f"{(NIGHTS - 1) * 100 + 50:016x}"
        yield FailedCheck(duel_run=run, contender=None, other=None, reason=reason, **same)


def _confirm(engine: Engine) -> None:
    """Let the first suspicion of the MLP's training be confirmed."""
    change = Judgement(
        verdict="different", log_ratio=-0.06, low=-0.07, high=-0.05, p=1e-4, reason=""
    )
    finding = Finding(
        num_starts=5, change=change, a=replace(change, log_ratio=0.06, low=0.05, high=0.07),
        b=None, control=change, level=0.29, verdict="confirmed", culprit="a",
        reason="the change follows JAX through fresh starts of both versions",
    )  # fmt: skip
    with Session(engine) as session:
        rows = list(session.scalars(select(SuspicionRow).order_by(SuspicionRow.id)))
        own = [
            row.id
            for row in rows
            if row.control is None and row.b_arm == "torch-compile"
            and row.case_name == "train_b128" and row.metric == "median_step_ns"
        ]  # fmt: skip
    assert own, [(row.case_name, row.metric, row.state, row.control) for row in rows]
    store_finding(engine, own[0], finding, names={"a": "jax", "b": "torch"}, campaigns=[ADHOC])
    annotate_event(engine, 1, who="ada", note=f"looking {HOSTILE}", owner="ada")


def main() -> None:
    from dashboards.publish import publish_campaign

    state = open_state(Path(sys.argv[1]))
    store_nights(state).dispose()
    print(publish_campaign(state, name_night(NIGHTS - 1)))  # noqa: T201


if __name__ == "__main__":
    main()
