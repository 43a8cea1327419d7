"""A contender whose step does other work than its case's takes no part in ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proof_documents import make_proof, store_proof
from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from data_checks.check import check_campaign

SUITES = {"products"}

COUNT: dict[str, Any] = {
    "flops": {"float32": 1000},
    "compiled_dtypes": ["float32"],
    "compiled_share": 1.0,
    "missing": {},
}


NEEDED = {"elements": 0.0, "operations": 0.0, "names": [], "unusual": []}
UNUSUAL = "no operation that its step does not need"


def _reasons(
    tmp_path: Path,
    method: int,
    count: dict[str, Any] | None,
    *,
    kind: str = "cpu",
    severity: str = "critical",
) -> dict[str, str]:
    """Reasons by check of the JAX side, where the torch side's step is right."""
    document = make_document()
    document["method"] = method
    document["duel"]["precision"] = "fp32_ieee"
    document["allocation"]["device"]["kind"] = kind
    for contender, each in zip(document["contenders"], (count, COUNT), strict=True):
        contender["effective"]["products"] = each
    state = open_state(tmp_path / "state")
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    assert ingest_spool(engine, state).rejected == ()
    store_proof(state, engine, make_proof(document), document["duel_run"])
    failed = check_campaign(engine, CAMPAIGN).failed_checks
    engine.dispose()
    of_products = [each for each in failed if each.suite == "nightly products"]
    assert {(each.contender, each.severity) for each in of_products} <= {("jax-0.9", severity)}
    return {each.expectation: each.reason for each in of_products}


def test_the_work_of_the_case_passes(tmp_path: Path) -> None:
    assert _reasons(tmp_path, 2, COUNT) == {}


@pytest.mark.parametrize(
    ("changes", "check", "reason"),
    [
        ({"flops": {"float32": 500}}, "work of the case", "0.5 times the work of its case"),
        ({"flops": {"bfloat16": 1000}}, "products in the case's precision", "in bfloat16"),
        ({"compiled_dtypes": ["bfloat16"]}, "compiled in the case's precision", "in bfloat16"),
        ({"compiled_share": 0.5}, "compiled without leaving work out", "does 0.5 of the work"),
        ({"flops": None, "missing": {"flops": "E: no"}}, "products counted", "not counted: E: no"),
        (
            {"needless": {**NEEDED, "elements": 0.5, "names": ["tanh"]}},
            "no needless work",
            "does 0.5 of its work needlessly (0 of its operations: tanh)",
        ),
        ({"needless": {**NEEDED, "unusual": ["sort"]}}, UNUSUAL, "sort"),
    ],
)
def test_other_work_is_a_failed_check_of_that_side(
    tmp_path: Path, changes: dict[str, Any], check: str, reason: str
) -> None:
    found = _reasons(tmp_path, 2, {**COUNT, **changes})
    assert list(found) == [check]
    assert reason in found[check]


def test_a_count_that_a_gpus_compiler_hides_is_a_warning(tmp_path: Path) -> None:
    hidden = {**COUNT, "compiled_share": None, "missing": {"compiled_share": "library calls"}}
    assert _reasons(tmp_path / "cpu", 2, hidden) == {}
    found = _reasons(tmp_path / "gpu", 2, hidden, kind="gpu", severity="warning")
    assert list(found) == ["compiled work counted"]


def test_a_document_without_a_count_is_refused_since_the_method_that_counts(
    tmp_path: Path,
) -> None:
    assert list(_reasons(tmp_path / "now", 2, None)) == ["products counted"]
    assert _reasons(tmp_path / "before", 1, None) == {}
