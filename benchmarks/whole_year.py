"""Adds to a machine's made-up year what else a real one leaves: the locks of its environments, the
proofs of its pairs, and suspicions with events that people answered."""

from __future__ import annotations

import hashlib
from datetime import date
from itertools import combinations

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session

from benchcore.demo.findings import write_findings
from benchcore.state import State
from benchcore.store.database import begin_writing
from benchcore.store.duels import list_campaigns
from benchcore.store.incoming.environment_locks import ingest_locks
from benchcore.store.models import ContenderRun, DuelRun, Proof

_QUANTITIES = ("logits", "loss", "gradients", "parameters after 3 steps")
_PACKAGES = 60
"""About as many as an environment of JAX or PyTorch has."""


def complete_year(engine: Engine, state: State, last: date) -> None:
    """Add what is missing to the nights until `last`, all of one machine."""
    add_locks(engine, state)
    add_proofs(engine, list_campaigns(engine)[-1])
    write_findings(engine, last)


def add_locks(engine: Engine, state: State) -> None:
    """A lock for each environment of the contender runs."""
    with Session(engine) as session:
        keys = list(session.scalars(select(ContenderRun.environment_key).distinct()))
    locks = dict[str, str]()
    for key in keys:
        text = _write_lock(key)
        sha256 = _hash(text)
        locks[sha256] = text
        of_key = update(ContenderRun).where(ContenderRun.environment_key == key)
        with begin_writing(engine) as session:
            session.execute(of_key.values(lock_sha256=sha256))
    ingest_locks(engine, state, locks)


def _write_lock(key: str) -> str:
    """As uv writes them: a version and hashes per package."""
    packages = (f"package-{each}=={each}.0 \\\n    --hash=sha256:" for each in range(_PACKAGES))
    return "".join(f"{each}{_hash(key + each)}\n" for each in packages)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def add_proofs(engine: Engine, campaign: str) -> None:
    """Proofs of all pairs of a campaign's duel runs, one of each kind of case."""
    rows = dict[tuple[str, ...], dict[str, object]]()
    with Session(engine) as session:
        for duel in session.scalars(select(DuelRun).where(DuelRun.campaign == campaign)):
            of_duel = select(ContenderRun).where(ContenderRun.duel_run == duel.id)
            sides = session.scalars(of_duel.order_by(ContenderRun.position)).all()
            for a, b in combinations(sides, 2):
                keys = (a.environment_key, b.environment_key)
                for quantity in _QUANTITIES:
                    kind = (duel.workload, duel.use_case, duel.precision, *keys, quantity)
                    rows[kind] = _make_proof(duel, a, b, quantity)
    with begin_writing(engine) as session:
        session.execute(insert(Proof), list(rows.values()))


def _make_proof(
    duel: DuelRun, a: ContenderRun, b: ContenderRun, quantity: str
) -> dict[str, object]:
    shared = ("workload", "use_case", "precision", "checkpoint", "snapshot", "device_fingerprint")
    return {
        **{name: getattr(duel, name) for name in shared},
        "a_key": a.environment_key,
        "b_key": b.environment_key,
        "a": a.name,
        "b": b.name,
        "quantity": quantity,
        "num_seeds": 3,
        "reference_error": 1e-15,
        "reference_bound": 2e-8,
        **dict.fromkeys(("a_error", "b_error"), 1e-7),
        **dict.fromkeys(("a_bound", "b_bound"), 1e-6),
        "passed": True,
        "reason": "",
        "proved_at": duel.ended_at,
    }
