"""Do versions compute the same function? Proofs of workloads in every precision, pair by pair."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.errors import CampaignIncompleteError, UserError
from benchcore.planning import catalog
from benchcore.planning.checkpoints import take_checkpoint
from benchcore.program import Precision
from benchcore.running.duels import describe_release, find_accelerator
from benchcore.running.equivalence import ProofRequest, ProofSide, proof_subject, prove
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.proofs import list_proofs

_PRECISIONS = get_args(Precision)


@dataclass(frozen=True, kw_only=True)
class EquivalenceRequest:
    """What to prove: one workload or `everything`; no precisions = all that the device has. A
    workload is proven in those of its own cases only."""

    workload: str | None
    everything: bool
    precisions: Sequence[str]
    versions: Sequence[str]
    num_seeds: int
    checkpoint: Path | None = None
    """The file with the weights of both sides; None = seeded ones."""
    python: str | None = None


def draft_proofs(
    request: EquivalenceRequest, state: State, report: Callable[[str], None]
) -> list[ProofRequest]:
    """One proof per workload and precision, between environments that are built if missing. Raises
    UserError."""
    workloads = _choose_workloads(request.workload, request.everything)
    on_gpu = find_accelerator() == "cuda"
    usual = [each for each in _PRECISIONS if on_gpu or each != "tf32"]
    precisions = _check_precisions(request.precisions) or usual
    sha256 = None
    if request.checkpoint is not None:
        if len(workloads) > 1:
            raise UserError(
                "wanted one workload, whose weights --checkpoint has, got --all; name one workload "
                "instead of --all"
            )
        sha256 = take_checkpoint(request.checkpoint, workloads[0], [], state)
    pairs = _pair_up(workloads, precisions)
    sides = _provide(request, state, report)
    return [
        ProofRequest(
            workload=workload,
            precision=precision,
            use_cases=catalog.proof_use_cases(workload),
            sides=sides,
            device="cuda" if on_gpu else "cpu",
            num_seeds=request.num_seeds,
            checkpoint=sha256,
        )
        for workload, precision in pairs
    ]


def run_proofs(
    wanted: Sequence[ProofRequest],
    state: State,
    report: Callable[[str], None],
    advance: Callable[[float, str], None],
    *,
    repeat: bool = False,
) -> list[dict[str, Any]]:
    """Compute what is not proven yet (`repeat`: all); the rows of every quantity.

    `advance` gets the number of proofs done, with the share of the current one, and its title.
    Raises CampaignIncompleteError if a proof left no rows.
    """
    found = []
    for number, each in enumerate(wanted):
        advance(number, each.title)
        began = time.monotonic()
        prove(each, state, report, repeat=repeat, advance=_add_up(advance, number, each.title))
        rows = _list_rows(each, state)
        if not rows:
            raise CampaignIncompleteError(
                f"the proof of {each.title} left no rows: its code changed while it ran; run it "
                "again"
            )
        num_failed = sum(not row["passed"] for row in rows)
        outcome = f"{num_failed} of {len(rows)} quantities failed" if num_failed else "proven"
        report(f"  {outcome} in {time.monotonic() - began:.0f} s")
        found += rows
    return found


def _add_up(
    advance: Callable[[float, str], None], number: int, title: str
) -> Callable[[float], None]:
    return lambda share: advance(number + share, title)


def _choose_workloads(workload: str | None, everything: bool) -> list[str]:
    provable = [name for name in catalog.list_workloads() if catalog.proof_use_cases(name)]
    if everything and workload is None:
        return provable
    if workload in provable and not everything:
        return [str(workload)]
    came = "both a workload and --all" if workload and everything else repr(workload)
    raise UserError(
        f"wanted a workload with proof cases, or --all, got {came[:120]}; "
        f"choose one of {', '.join(provable)}"
    )


def _check_precisions(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in _PRECISIONS:
            raise UserError(
                f"no precision {name[:100]!r}; precisions are {', '.join(_PRECISIONS)}; choose one"
            )
    return list(dict.fromkeys(names))


def _pair_up(workloads: Sequence[str], precisions: Sequence[str]) -> list[tuple[str, str]]:
    """Each workload with each precision that its cases are in: a program computes in no other."""
    pairs = [
        (workload, precision)
        for workload, precision in product(workloads, precisions)
        if precision in catalog.list_precisions(workload)
    ]
    if not pairs:
        there = {each for workload in workloads for each in catalog.list_precisions(workload)}
        raise UserError(
            f"{', '.join(workloads)}: no case in {', '.join(precisions)}; cases are in "
            f"{', '.join(sorted(there))}; choose one of these"
        )
    return pairs


def _provide(
    request: EquivalenceRequest, state: State, report: Callable[[str], None]
) -> tuple[ProofSide, ...]:
    interpreters, requests = find_interpreters(), request.versions
    releases = [
        resolve(parse_request(text), interpreters, python=request.python) for text in requests
    ]
    found: dict[str, ProofSide] = {}
    for release in releases:
        if release.framework == "stdlib":
            raise UserError(
                "wanted versions of jax or torch, got 'stdlib', which computes nothing; choose "
                "versions with --version jax ... or torch ..."
            )
        report(f"environment of {describe_release(release)}")
        record = provision(
            release,
            state,
            accelerator=find_accelerator(),
            report=lambda text: report(f"  {text}"),
        )
        found.setdefault(record.key, ProofSide(release.framework, release.version, record))
    if len(found) < 2:
        raise UserError(
            f"wanted two environments that differ, got {', '.join(requests)[:200]!r}; "
            "name another --version"
        )
    return tuple(found.values())


def _list_rows(wanted: ProofRequest, state: State) -> list[dict[str, Any]]:
    """The database's rows of the requested pairs."""
    keys = {side.environment.key for side in wanted.sides}
    return [
        {key: value for key, value in row.items() if key not in ("id", "snapshot")}
        for row in list_proofs(open_database(state.database_url), proof_subject(wanted))
        if {row["a_key"], row["b_key"]} <= keys and row["use_case"] in wanted.use_cases
    ]
