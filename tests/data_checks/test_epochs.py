"""Sides that did not learn the same take no part in ratios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from result_documents import make_document, spool_document

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.frames.epochs import epoch_frame
from benchcore.store.incoming.ingest import ingest_spool
from dashboards.listings.epochs import list_epochs
from data_checks.check import check_campaign

SUITES = {"epochs"}

_DATASET = {
    "name": "pets",
    "sha256": "c" * 64,
    "num_classes": 2,
    "num_train": 320,
    "num_val": 1000,
    "mode": "end-to-end",
    "workers": 2,
}


def _document(*correct: int, gross_mj: float | None = None) -> dict[str, Any]:
    """Both sides trained two epochs a start, and were right on so many of 1000 images."""
    document = make_document(rounds=2)
    document["duel"]["dataset"] = _DATASET
    for contender, right in zip(document["contenders"], correct, strict=True):
        for start in contender["starts"]:
            start["epochs"] = [
                {
                    "epoch": epoch,
                    "wait_ns": start["blocks"][epoch]["elapsed_ns"] // 4,
                    "loss": 2.0 - epoch,
                    "correct": right if epoch else 500 + right,
                    "validation_ns": 10**9,
                    "gross_mj": gross_mj,
                }
                for epoch in range(2)
            ]
    return document


@pytest.mark.parametrize(("correct", "marked"), [((480, 500), False), ((400, 500), True)])
def test_accuracies_further_apart_than_chance_void_the_pair(
    tmp_path: Path, correct: tuple[int, int], marked: bool
) -> None:
    state = open_state(tmp_path)
    document = _document(*correct)
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    assert not ingest_spool(engine, state).rejected
    report = check_campaign(engine, document["campaign"])
    found = [mark.reason for mark in report.failed_checks if mark.expectation == "same accuracy"]
    assert bool(found) is marked
    if marked:
        assert found[0].startswith(
            "400 and 500 of 1000 validation images are classified correctly: "
        )


def test_epochs_are_printed_as_text(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    document = _document(480, 500, gross_mj=2.5e6)
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    rows = list_epochs(epoch_frame(engine, document["campaign"]).to_dict("records"))
    assert [(row["contender"], row["epoch"]) for row in rows][:2] == [
        ("JAX 0.9.0", "1"),
        ("JAX 0.9.0", "2"),
    ]
    assert rows[1]["accuracy"] == "48.0 % of 1000"
    assert (rows[1]["wait"], rows[1]["loss"], rows[1]["energy"]) == ("25 %", "1.000", "2.50 kJ")
    assert rows[1]["starts"] == "3"
