"""A duel that trained to an accuracy, from its document to what its seeds show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from result_documents import make_document, spool_document

from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.seeds import list_trainings
from dashboards.listings.seeds import SEED_COLUMNS, format_accuracy, format_time, list_seeds

_DATASET = {
    "name": "pets",
    "sha256": "c" * 64,
    "num_classes": 2,
    "num_train": 320,
    "num_val": 1000,
    "mode": "end-to-end",
    "workers": 2,
    "target_accuracy": 0.9,
}
_ONE_S = 1_000_000_000
Side = Sequence[tuple[float, Sequence[int]]]
"""Of each seed, the seconds of an epoch, and how many of 1000 images were right after each."""
_RATIO = {"counts": True, "reason": "", "duel_run": "0123456789abcdef"}


def _make_document(*sides: Side) -> dict[str, Any]:
    document = make_document(starts=len(sides[0]), rounds=3)
    document["duel"]["dataset"] = _DATASET
    for contender, side in zip(document["contenders"], sides, strict=True):
        for start, (seconds, correct) in zip(contender["starts"], side, strict=True):
            start["seed"] = 7 + start["index"]
            start["inputs_sha256"] = f"{start['seed']:064x}"
            start["blocks"] = start["blocks"][: len(correct)]
            for block in start["blocks"]:
                block["elapsed_ns"] = round(seconds * _ONE_S)
            start["epochs"] = [
                {"epoch": epoch, "wait_ns": 0, "loss": 1.0, "correct": each}
                | {"validation_ns": _ONE_S, "gross_mj": None}
                for epoch, each in enumerate(correct)
            ]
    return document


def _store(state: State, document: dict[str, Any]) -> Engine:
    spool_document(state.spool, document)
    engine = open_database(state.database_url)
    assert not ingest_spool(engine, state).rejected
    return engine


_A: Side = [(1.0, (300, 900, 951)), (1.1, (950, 940, 949)), (1.2, (300, 400, 953))]
_B: Side = [(2.0, (300, 901, 950)), (2.1, (950, 940, 951)), (2.2, (300, 400, 952))]


def test_seeds_are_compared_from_documents(state: State) -> None:
    a, b = ([*side, *side[:2]] for side in (_A, _B))
    engine = _store(state, _make_document(a, b))
    (found,) = list_trainings(engine, None, [_RATIO])
    assert [each["seed"] for each in found["seeds"]] == [7, 8, 9, 10, 11]
    assert [each["a"]["seconds"] for each in found["seeds"][:3]] == pytest.approx([2.0, 1.1, 3.6])
    assert [each["b"]["num_epochs"] for each in found["seeds"][:3]] == [2, 1, 3]
    assert (found["a"]["name"], found["b"]["name"]) == ("jax-0.9", "torch-2.10")
    assert (found["time"]["verdict"], found["time"]["num_seeds"]) == ("different", 5)
    assert found["accuracy"]["verdict"] == "equal"
    assert format_time(found, "JAX", "PyTorch").startswith("Until 90 %: JAX 1.77 s (")
    assert "JAX is 1.93x (1.84 to 2.02)" in format_time(found, "JAX", "PyTorch")
    words = format_accuracy(found, "JAX", "PyTorch")
    assert words.startswith("Final accuracies are equal within 1 percentage point: JAX 95.1 %, ")
    (first, *_) = list_seeds(found)
    assert set(first) == set(SEED_COLUMNS)
    assert (first["time_a"], first["accuracy_b"]) == ("2.00 s (2 epochs)", "95.0 %")


def test_few_seeds_and_one_that_never_arrives_are_reported(state: State) -> None:
    b = [*_B[:2], (2.0, (300, 400, 500))]
    (found,) = list_trainings(_store(state, _make_document(_A, b)), None, [_RATIO])
    assert found["time"]["reason"] == "1 of 6 trainings never reached it"
    assert found["accuracy"]["reason"] == "3 seeds on both sides, at least 5 are needed"
    assert list_seeds(found)[2]["time_b"] == "never (3 epochs)"
    assert "PyTorch did not reach it in 1 of 3 seeds" in format_time(found, "JAX", "PyTorch")


def test_an_epoch_that_was_disturbed_before_the_target_is_marked(state: State) -> None:
    document = _make_document(_A, _B)
    for start, disturbed in zip(document["contenders"][0]["starts"], (0, 1, 2), strict=True):
        start["blocks"][disturbed]["telemetry"]["foreign_cpu_share"] = 0.9
    (found,) = list_trainings(_store(state, document), None, [_RATIO])
    assert [each["a"]["disturbed"] for each in found["seeds"]] == [True, False, True]
    assert list_seeds(found)[0]["time_a"] == "2.00 s (2 epochs, disturbed)"
    assert found["time"]["reason"] == "both sides were undisturbed in 1 of 3 seeds; 2 are needed"


def test_times_of_a_void_pair_are_not_compared_but_accuracies_are(state: State) -> None:
    a, b = ([*side, *side[:2]] for side in (_A, _B))
    void = _RATIO | {"counts": False, "reason": "heat"}
    engine = _store(state, _make_document(a, b))
    (found,) = list_trainings(engine, None, [void])
    assert found["time"]["reason"] == "the pair does not count: heat"
    assert found["accuracy"]["verdict"] == "equal"
    (alone,) = list_trainings(engine, None, [])
    assert alone["time"]["reason"] == "there is no pair"


def test_a_side_that_failed_leaves_the_other_alone(state: State) -> None:
    document = _make_document(_A, _B)
    failure = {"stage": "epoch", "start": 0, "reason": "it broke", "traceback": "", "xids": None}
    document["contenders"][0] |= {"status": "crash", "failure": failure | {"cause": "exception"}}
    (found,) = list_trainings(_store(state, document), None, [])
    assert found["a"] is None
    assert found["b"]["num_seeds"] == 3
    assert "a did not finish; PyTorch " in format_time(found, "a", "PyTorch")
    assert list_seeds(found)[0]["time_a"] == "did not finish"


def test_training_without_a_target_has_no_seeds(state: State) -> None:
    document = _make_document(_A, _B)
    document["duel"]["dataset"] = {**_DATASET, "target_accuracy": None}
    assert list_trainings(_store(state, document), None, [_RATIO]) == []
