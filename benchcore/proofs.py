"""The equivalence pass from outside: what must be proven, what was, and how the rest is done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from benchcore import campaign as steps
from benchcore import checkpoints
from benchcore.catalog import find_case, proof_use_cases
from benchcore.cell.host import describe_device, why_absent
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.matrix import Plan
from benchcore.photographs import write_photographs
from benchcore.protocol import (
    SCHEMA,
    CheckpointOrder,
    ContenderOrder,
    EnvironmentRecord,
    Framework,
    ProofOrder,
    encode,
    write_json,
)
from benchcore.shard import OutOfTimeError, end_in_time
from benchcore.snapshot import hash_inside, take_snapshot
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.proofs import ProofSubject, find_proven, ingest_proofs

SEED = 20260101
FULL_SEEDS = 5
"""Of the loss traces in `deadheat equivalence`; a campaign follows one."""
_TIMEOUT_S = 900.0
_PLAIN: Mapping[Framework, Mapping[str, str]] = {
    "jax": {"compile": "jit"},
    "torch": {"compile": "none"},
}
"""The arm that stands for a version; the duels themselves hold the other arms against it."""


@dataclass(frozen=True)
class Side:
    """A version of a framework, in its environment."""

    framework: Framework
    version: str
    environment: EnvironmentRecord


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Environments to prove equal, pair by pair: in which precision, on what use cases."""

    workload: str
    precision: str
    use_cases: tuple[str, ...]
    sides: tuple[Side, ...]
    device: str = "cpu"
    num_seeds: int = 1
    checkpoint: str | None = None
    """SHA-256 of the file whose weights they have; seeds then differ in their inputs alone."""

    @property
    def title(self) -> str:
        """What people call it."""
        return title_of(self.workload, self.checkpoint, self.precision)


def title_of(workload: str, checkpoint: str | None, precision: str) -> str:
    """What people call a proof: 'resnet50 with checkpoint 0676ba61b6a9 in bf16'."""
    named = f" with checkpoint {checkpoint[:12]}" if checkpoint else ""
    return f"{workload}{named} in {precision}"


def of_campaign(plan: Plan, state: State) -> list[Wanted]:
    """What a campaign's duels rest on: an entry a workload, precision and checkpoint. One
    environment against itself needs no proof, and one that could not be built can't have any."""
    found: dict[tuple[str, str, str, str | None], tuple[dict[str, None], dict[str, None]]] = {}
    for duel in plan.duels:
        case = find_case(duel.workload, duel.case)
        if case.use_case in proof_use_cases(duel.workload):
            key = (duel.workload, case.precision, duel.device, duel.checkpoint)
            use_cases, requests = found.setdefault(key, ({}, {}))
            use_cases[case.use_case] = None
            requests.update(dict.fromkeys(each.release for each in duel.contenders))
    wanted = []
    for (workload, precision, device, checkpoint), (use_cases, requests) in found.items():
        records = {text: steps.recall_environment(plan, text, state) for text in requests}
        built = {
            record.key: Side(plan.releases[text].framework, plan.releases[text].version, record)
            for text, record in records.items()
            if isinstance(record, EnvironmentRecord)
        }
        if len(built) > 1:
            wanted.append(
                Wanted(
                    workload=workload,
                    precision=precision,
                    use_cases=tuple(use_cases),
                    sides=tuple(built.values()),
                    device=device,
                    checkpoint=checkpoint,
                )
            )
    return wanted


def prove(
    wanted: Wanted,
    state: State,
    report: Callable[[str], None],
    *,
    anew: bool,
    advance: Callable[[float], None] = lambda share: None,
) -> None:
    """Prove what is not proven yet (`anew`: all of it), and keep the rows in the database.

    `advance` gets the share of the evidence that is there, as it comes. Raises UserError if the
    device is not here.
    """
    if absent := why_absent(wanted.device):
        raise UserError(absent)
    engine = open_database(state.database_url)
    lacking = wanted if anew else _lacking(wanted, engine)
    if lacking is None:
        report(f"{wanted.title} was proven before")
        return
    report(f"proving {wanted.title}: {', '.join(lacking.use_cases)}")
    run_proof(lacking, state, anew=anew, advance=advance)
    refused = ingest_proofs(engine, state)
    if refused:
        raise CampaignIncompleteError("\n".join(refused))


def prove_duels(
    plan: Plan, duel_runs: Collection[str], state: State, ends_at: float | None = None
) -> None:
    """Prove what some of a campaign's duels rest on, on this machine's device; a document that is
    there already is kept, and nothing runs on a device that is not here. Leaves documents only:
    whoever planned the campaign ingests them.

    Raises OutOfTimeError if it is not over at `ends_at` (seconds since the epoch).
    """
    duels = tuple(duel for duel in plan.duels if duel.duel_run in duel_runs)
    for wanted in of_campaign(dataclasses.replace(plan, duels=duels), state):
        if why_absent(wanted.device):
            continue  # its duels tell why
        try:
            run_proof(wanted, state, keep=True, ends_at=ends_at)
        except Timeout:
            raise OutOfTimeError(f"another job is still proving {wanted.title}") from None


def subject(wanted: Wanted) -> ProofSubject:
    """What a proof holds for, beside its pair and use case."""
    return ProofSubject(
        workload=wanted.workload,
        precision=wanted.precision,
        checkpoint=wanted.checkpoint,
        snapshot=hash_inside(),
        device_fingerprint=describe_device(wanted.device)["fingerprint"],
    )


def _lacking(wanted: Wanted, engine: Engine) -> Wanted | None:
    proven = find_proven(engine, subject(wanted), wanted.num_seeds)
    keys = [side.environment.key for side in wanted.sides]
    pairs = [frozenset(pair) for pair in combinations(keys, 2)]
    use_cases = [
        each for each in wanted.use_cases if any((each, pair) not in proven for pair in pairs)
    ]
    return dataclasses.replace(wanted, use_cases=tuple(use_cases)) if use_cases else None


def run_proof(
    wanted: Wanted,
    state: State,
    *,
    anew: bool = False,
    keep: bool = False,
    advance: Callable[[float], None] = lambda share: None,
    ends_at: float | None = None,
) -> Path:
    """Run the pass in this allocation; its document, which the next run of the same replaces,
    unless it is to `keep` one of this device.

    Raises OutOfTimeError if it is not over at `ends_at` (seconds since the epoch), and
    CampaignIncompleteError with the prover's last words if it leaves none.
    """
    oracles = None if anew else _oracles(state)
    photographs = write_photographs(state.proofs / "photographs.npz")
    order = _make_order(wanted, state, photographs, oracles)
    name = hashlib.sha256(json.dumps(encode(order), sort_keys=True).encode()).hexdigest()[:16]
    document, scratch = state.proofs / f"{name}.json", state.proofs / name
    patience_s = -1 if ends_at is None else max(0.0, ends_at - time.time())
    with FileLock(state.proofs / f"{name}.lock", timeout=patience_s):
        if keep and _is_of_here(document, wanted.device):
            return document
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write_json(scratch / "order.json", encode(order))
        command = [wanted.sides[0].environment.python, "-P", "-s", "-m", "benchcore.cell", "prover"]
        paths = (scratch / "order.json", scratch / "proof.json", scratch)
        environ = {**os.environ, "PYTHONPATH": str(take_snapshot(state.snapshots))}
        with (scratch / "prover.log").open("w+") as log:
            code = _run([*command, *map(str, paths)], environ, log, advance, ends_at)
            if code != 0:
                log.seek(0)
                raise CampaignIncompleteError(
                    f"the proof of {wanted.title} ended with {code} and no document: "
                    f"{log.read()[-4000:]}"
                )
        paths[1].rename(document)
        shutil.rmtree(scratch)
    return document


def _is_of_here(document: Path, device: str) -> bool:
    if not document.exists():
        return False
    proof = json.loads(document.read_text(encoding="utf-8"))
    return proof["device"]["fingerprint"] == describe_device(device)["fingerprint"]


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: TextIO,
    advance: Callable[[float], None],
    ends_at: float | None,
) -> int:
    """The prover's exit code; whoever interrupts it ends it, and its contenders with it. Raises
    OutOfTimeError."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=environ,
    )
    assert process.stdout is not None
    with end_in_time(process, ends_at) as overdue, process.stdout:
        for line in process.stdout:
            advance(json.loads(line)["share"])
        code = process.wait()
    if code and overdue.is_set():
        raise OutOfTimeError("the proof would not have ended before its allocation")
    return code


def _oracles(state: State) -> Path:
    """Where evidence in float64 is kept, for as long as the code that computes it is the same."""
    folder = state.proofs / "oracles"
    kept = folder / hash_inside()[:16]
    for other in folder.glob("*"):
        if other != kept:
            shutil.rmtree(other, ignore_errors=True)
    return kept


def _make_order(
    wanted: Wanted, state: State, photographs: Path, oracles: Path | None
) -> ProofOrder:
    checkpoint = None
    if wanted.checkpoint is not None:
        weights = checkpoints.find_weights(state, wanted.checkpoint)
        checkpoint = CheckpointOrder(sha256=wanted.checkpoint, weights=str(weights))
    return ProofOrder(
        schema=SCHEMA,
        workload=wanted.workload,
        precision=wanted.precision,
        use_cases=wanted.use_cases,
        device=wanted.device,
        seed=SEED,
        num_seeds=wanted.num_seeds,
        photographs=str(photographs),
        oracles=str(oracles) if oracles else None,
        checkpoint=checkpoint,
        timeout_s=_TIMEOUT_S,
        harness_version=version("deadheat"),
        snapshot=hash_inside(),
        contenders=tuple(_make_contenders(wanted.sides)),
    )


def _make_contenders(sides: Sequence[Side]) -> list[ContenderOrder]:
    """Named by version; another environment of the same version gets a number."""
    orders: list[ContenderOrder] = []
    for side in sides:
        name = f"{side.framework}-{side.version}".lower()
        same = sum(order.name.split(".twin")[0] == name for order in orders)
        orders.append(
            ContenderOrder(
                name=f"{name}.twin{same + 1}" if same else name,
                arm=side.framework,
                role="proof",
                framework=side.framework,
                version=side.version,
                settings=dict(_PLAIN[side.framework]),
                environment=side.environment,
                environment_failure=None,
            )
        )
    return orders
