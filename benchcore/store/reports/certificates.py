"""Certificates of releases, from the starts of every duel between two versions that counts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from benchcore.cell.stopping import average_compilations
from benchcore.store.models import DuelRun, PairRatio
from benchcore.verdict.samples import EQUIVALENCE_BOUND
from benchcore.verdict.starts import certify

_OF_DUEL = ("workload", "case_name", "track", "device_fingerprint", "device_model", "method")
_OF_RATIO = ("a_arm", "a_framework", "a_version", "b_version")


def list_certificates(engine: Engine, bound: float = EQUIVALENCE_BOUND) -> list[dict[str, Any]]:
    """A row a case, device and pair of versions: `change` is how much faster the newer one is."""
    query = (
        select(DuelRun, PairRatio)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .where(PairRatio.kind == "cross_version", PairRatio.counts)
        .order_by(DuelRun.started_at, DuelRun.id)
    )
    logs = defaultdict[tuple[Any, ...], list[float]](list)
    compilations = defaultdict[tuple[Any, ...], list[Hashable | None]](list)
    with Session(engine) as session:
        for duel, ratio in session.execute(query):
            of_duel = [getattr(duel, name) for name in _OF_DUEL]
            key = (*of_duel, *(getattr(ratio, name) for name in _OF_RATIO))
            logs[key] += ratio.start_log_ratios
            compilations[key] += [
                None if each is None else (duel.id, each) for each in ratio.start_compilations
            ]
    return [
        {
            **dict(zip((*_OF_DUEL, *_OF_RATIO), key, strict=True)),
            **_certify(average_compilations(found, compilations[key]), bound),
            "num_starts": len(found),
        }
        for key, found in sorted(logs.items(), reverse=True)
    ]


def _certify(samples: list[float], bound: float) -> dict[str, Any]:
    certificate, found = certify(samples, bound)
    changes = {"change": found.log_ratio, "low": found.low, "high": found.high}
    return {
        "certificate": certificate,
        "bound": bound,
        **{name: None if log is None else math.expm1(log) for name, log in changes.items()},
        "reason": found.reason,
    }
