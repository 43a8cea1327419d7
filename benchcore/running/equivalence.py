"""Equivalence proofs from outside: which are required, which exist, and running the rest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from benchcore.cell.measure.host import absence_reason, describe_device
from benchcore.cell.processes.launch import conductor_environ
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.planning import checkpoints
from benchcore.planning.catalog import find_case, proof_use_cases
from benchcore.planning.matrix import Plan
from benchcore.planning.snapshot import hash_inside, take_snapshot
from benchcore.planning.test_images import write_test_images
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
from benchcore.running.device_lock import LONGEST_MEASURING_WAIT_S, hold_device
from benchcore.running.duel_process import DeviceBusyError, OutOfTimeError, end_in_time
from benchcore.running.duels import load_environment
from benchcore.running.heartbeat import StuckProcessError, follow_progress
from benchcore.running.plans import load_campaign
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.incoming.proofs import ProofScope, find_proven, ingest_proofs

SEED = 20260101
FULL_SEEDS = 5
"""Loss traces per proof in `deadheat equivalence`; a campaign computes one."""
_TIMEOUT_S = 900.0
_PLAIN: Mapping[Framework, Mapping[str, str]] = {
    "jax": {"compile": "jit"},
    "torch": {"compile": "none"},
}
"""The arm that represents a version; duels compare the other arms with it."""


@dataclass(frozen=True)
class ProofSide:
    """A version of a framework, in its environment."""

    framework: Framework
    version: str
    environment: EnvironmentRecord


@dataclass(frozen=True, kw_only=True)
class ProofRequest:
    """Environments to prove equal, pair by pair, in one precision on some use cases."""

    workload: str
    precision: str
    use_cases: tuple[str, ...]
    sides: tuple[ProofSide, ...]
    device: str = "cpu"
    num_seeds: int = 1
    checkpoint: str | None = None
    """SHA-256 of the file whose weights they use; seeds then vary only the inputs."""

    @property
    def title(self) -> str:
        """Its title, as `proof_title` formats it."""
        return proof_title(self.workload, self.checkpoint, self.precision)


def proof_title(workload: str, checkpoint: str | None, precision: str) -> str:
    """A proof's title: 'resnet50 with checkpoint 0676ba61b6a9 in bf16'."""
    named = f" with checkpoint {checkpoint[:12]}" if checkpoint else ""
    return f"{workload}{named} in {precision}"


def list_campaign_proofs(
    plan: Plan, state: State, of: tuple[str, str] | None = None
) -> list[ProofRequest]:
    """The proofs that a campaign's duels need, one per workload, precision, device and checkpoint;
    `of` limits them to a workload and precision. An environment needs no proof against itself, and
    one that could not be built has none. Each environment's files are compared once."""
    found: dict[tuple[str, str, str, str | None], tuple[dict[str, None], dict[str, None]]] = {}
    for duel in plan.duels:
        case = find_case(duel.workload, duel.case)
        wanted = of is None or of == (duel.workload, case.precision)
        if wanted and case.use_case in proof_use_cases(duel.workload):
            key = (duel.workload, case.precision, duel.device, duel.checkpoint)
            use_cases, requests = found.setdefault(key, ({}, {}))
            use_cases[case.use_case] = None
            requests.update(dict.fromkeys(each.release for each in duel.contenders))
    every = dict.fromkeys(text for _, requests in found.values() for text in requests)
    records = {text: load_environment(plan, text, state) for text in every}
    proofs = []
    for (workload, precision, device, checkpoint), (use_cases, requests) in found.items():
        built = {
            record.key: ProofSide(
                plan.releases[text].framework, plan.releases[text].version, record
            )
            for text in requests
            if isinstance(record := records[text], EnvironmentRecord)
        }
        if len(built) > 1:
            proofs.append(
                ProofRequest(
                    workload=workload,
                    precision=precision,
                    use_cases=tuple(use_cases),
                    sides=tuple(built.values()),
                    device=device,
                    checkpoint=checkpoint,
                )
            )
    return proofs


def prove(
    request: ProofRequest,
    state: State,
    report: Callable[[str], None],
    *,
    repeat: bool,
    advance: Callable[[float], None] = lambda share: None,
) -> None:
    """Compute the missing proofs (`repeat`: all), and store their rows in the database.

    `advance` gets the completed share of the evidence. Other proofs that are damaged, or of an
    older version, are reported. Raises UserError if the device is absent.
    """
    if absent := absence_reason(request.device):
        raise UserError(absent)
    engine = open_database(state.database_url)
    lacking = request if repeat else _lacking(request, engine)
    if lacking is None:
        report(f"{request.title} was proven before")
        return
    report(f"proving {request.title}: {', '.join(lacking.use_cases)}")

    def follow(share: float | None) -> None:
        if share is None:
            report(f"{request.title} waits for another process that measures on this device")
        else:
            advance(share)

    document = run_proof(lacking, state, repeat=repeat, follow=follow)
    for refused in ingest_proofs(engine, state):
        if refused.startswith(f"{document}: "):
            raise CampaignIncompleteError(refused)
        report(refused)


def prove_duels(
    plan: Plan, duel_runs: Collection[str], state: State, ends_at: float | None = None
) -> tuple[list[str], list[str]]:
    """Compute the proofs that some of a campaign's duels need, on this machine's device, until
    `ends_at` (seconds since the epoch). Existing documents are reused, and absent devices are
    skipped. Writes documents only; the process that planned the campaign ingests them.

    Returns the names of proofs that were completed meanwhile, here or in a job that was waited for,
    and why others were not.
    """
    completed, failures = list[str](), list[str]()
    duels = tuple(duel for duel in plan.duels if duel.duel_run in duel_runs)
    for request in list_campaign_proofs(dataclasses.replace(plan, duels=duels), state):
        if absence_reason(request.device):
            continue  # its duels get the reason
        _, document = _prepare(request, state, repeat=False)
        if _is_complete(document, request.device):
            continue
        try:
            run_proof(request, state, reuse=True, ends_at=ends_at)
        except OutOfTimeError as error:
            failures.append(str(error))
            break
        except CampaignIncompleteError as error:
            failures.append(str(error))
        if _is_complete(document, request.device):
            completed.append(document.stem)
    return completed, failures


def proof_subject(request: ProofRequest) -> ProofScope:
    """What a proof holds for, apart from its pair and use case."""
    return ProofScope(
        workload=request.workload,
        precision=request.precision,
        checkpoint=request.checkpoint,
        snapshot=hash_inside(),
        device_fingerprint=describe_device(request.device)["fingerprint"],
    )


def list_missing_proofs(campaign: str, state: State) -> list[ProofRequest]:
    """What a campaign's duels rest on, and is not proven yet."""
    engine = open_database(state.database_url)
    requests = list_campaign_proofs(load_campaign(state, campaign), state)
    return [each for each in requests if _lacking(each, engine)]


def _lacking(request: ProofRequest, engine: Engine) -> ProofRequest | None:
    proven = find_proven(engine, proof_subject(request), request.num_seeds)
    keys = [side.environment.key for side in request.sides]
    pairs = [frozenset(pair) for pair in combinations(keys, 2)]
    use_cases = [
        each for each in request.use_cases if any((each, pair) not in proven for pair in pairs)
    ]
    return dataclasses.replace(request, use_cases=tuple(use_cases)) if use_cases else None


def run_proof(
    request: ProofRequest,
    state: State,
    *,
    repeat: bool = False,
    reuse: bool = False,
    follow: Callable[[float | None], None] = lambda share: None,
    ends_at: float | None = None,
) -> Path:
    """Run a proof in this allocation; returns its document, which replaces an earlier one. With
    `reuse`, an existing document of this device in which every side ran is returned instead.
    `follow` gets the completed share of the evidence; None = another process uses the device.

    Raises OutOfTimeError if it has not ended at `ends_at` (seconds since the epoch), and
    CampaignIncompleteError with the end of its log if it leaves none.
    """
    order, document = _prepare(request, state, repeat=repeat)
    scratch = document.with_suffix("")
    with _hold_proof(document, request.title, ends_at):
        if reuse and _is_complete(document, request.device):
            return document
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write_json(scratch / "order.json", encode(order))
        command = [request.sides[0].environment.python, "-P", "-s", "-m", "benchcore.cell", "proof"]
        paths = (scratch / "order.json", scratch / "proof.json", scratch)
        environ = conductor_environ(take_snapshot(state.snapshots))
        with (
            hold_device(request.device, lambda: follow(None), ends_at) as held,
            (scratch / "proof.log").open("w+") as log,
        ):
            if not held:
                raise DeviceBusyError("another process used the device until the time limit")
            called = [*command, *map(str, paths)]
            code = _run(called, environ, log, follow, ends_at, scratch)
            if code != 0:
                log.seek(0)
                raise CampaignIncompleteError(
                    f"the proof of {request.title} ended with {code} and no document: "
                    f"{log.read()[-4000:]}"
                )
        paths[1].rename(document)
        shutil.rmtree(scratch)
    return document


@contextmanager
def _hold_proof(document: Path, title: str, ends_at: float | None) -> Iterator[None]:
    patience_s = LONGEST_MEASURING_WAIT_S if ends_at is None else max(0.0, ends_at - time.time())
    lock = FileLock(document.with_suffix(".lock"), timeout=patience_s)
    try:
        lock.acquire()
    except Timeout:
        raise OutOfTimeError(f"another process is still proving {title}") from None
    try:
        yield
    finally:
        lock.release()


def _prepare(request: ProofRequest, state: State, *, repeat: bool) -> tuple[ProofOrder, Path]:
    """The order of a proof, and the document that it will write."""
    references = None if repeat else _find_references(state)
    test_images = write_test_images(state.proofs / "test_images.npz")
    order = _make_order(request, state, test_images, references)
    name = hashlib.sha256(json.dumps(encode(order), sort_keys=True).encode()).hexdigest()[:16]
    return order, state.proofs / f"{name}.json"


def _is_complete(document: Path, device: str) -> bool:
    """Whether it is of this device, and no side failed, as one that ran out of memory."""
    try:
        found = json.loads(document.read_text(encoding="utf-8"))
        fingerprint = found["device"]["fingerprint"]
        failed = any(each["status"] != "ok" for each in found.get("contenders", ()))
    except (OSError, ValueError, KeyError, TypeError):
        return False  # there is none, or a crash damaged it
    return not failed and fingerprint == describe_device(device)["fingerprint"]


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    log: TextIO,
    advance: Callable[[float], None],
    ends_at: float | None,
    scratch: Path,
) -> int:
    """The exit code. An interrupt ends the proof and its contenders. Raises
    OutOfTimeError."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environ,
    )
    assert process.stdout is not None
    with end_in_time(process, ends_at, scratch) as overdue, process.stdout:
        try:
            for event in follow_progress(process.stdout, 10 * _TIMEOUT_S):
                advance(event["share"])
        except StuckProcessError as error:
            process.kill()
            log.write(f"the proof was ended: {error}")
        code = process.wait()
    if code and overdue.is_set():
        raise OutOfTimeError("the proof would not have ended before its allocation")
    return code


def _find_references(state: State) -> Path:
    """Where float64 references are stored, as long as the code that computes them is unchanged."""
    folder = state.proofs / "references"
    kept = folder / hash_inside()[:16]
    for other in folder.glob("*"):
        if other != kept:
            shutil.rmtree(other, ignore_errors=True)
    return kept


def _make_order(
    request: ProofRequest, state: State, test_images: Path, references: Path | None
) -> ProofOrder:
    checkpoint = None
    if request.checkpoint is not None:
        weights = checkpoints.find_weights(state, request.checkpoint)
        checkpoint = CheckpointOrder(sha256=request.checkpoint, weights=str(weights))
    return ProofOrder(
        schema=SCHEMA,
        workload=request.workload,
        precision=request.precision,
        use_cases=request.use_cases,
        device=request.device,
        seed=SEED,
        num_seeds=request.num_seeds,
        test_images=str(test_images),
        references=str(references) if references else None,
        checkpoint=checkpoint,
        timeout_s=_TIMEOUT_S,
        harness_version=version("deadheat"),
        snapshot=hash_inside(),
        contenders=tuple(_make_contenders(request.sides)),
    )


def _make_contenders(sides: Sequence[ProofSide]) -> list[ContenderOrder]:
    """Contenders named by version; another environment of the same version gets a number."""
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
