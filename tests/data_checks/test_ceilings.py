"""Which sentinels make the ceiling of a case, and what follows where none does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from result_documents import CAMPAIGN, DUEL_RUN, JAX, OLD_JAX, STARTED_AT, TORCH, Racer
from sentinel_documents import (
    Document,
    hurry,
    ingest_proven,
    list_failed_checks,
    make_candidate,
    make_copy,
    make_matmul,
)

from benchcore.state import State
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.ceilings import read_sentinels
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.reports.campaign import judge_and_list
from data_checks.check import check_campaign


@pytest.mark.parametrize(
    "sentinels",
    [
        (),
        (make_matmul(case="tiny_op"),),
        (make_matmul(precision="tf32"),),
        ({**make_matmul(), "campaign": "another", "method": 2},),
    ],
    ids=["none", "too small", "another precision", "another method"],
)
def test_without_a_ceiling_of_its_own_a_case_is_reported_unbounded(
    sentinels: tuple[Document, ...], state: State
) -> None:
    engine = ingest_proven(state, *sentinels, hurry(make_candidate(), 10))
    report = check_campaign(engine, CAMPAIGN)
    assert report.failed_checks == ()
    assert "mlp tiny: no ceiling measured: compute" in report.unbounded
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    assert frame["limit_share"].isna().all()
    assert set(frame["limit_reason"]) == {"no ceiling measured: compute"}
    engine.dispose()


def _in(precision: str, document: Document, duel_run: str = DUEL_RUN) -> Document:
    document["duel"]["precision"] = precision
    return {**document, "duel_run": duel_run}


@pytest.mark.parametrize(
    ("precision", "factor", "marked"),
    [
        ("bf16", 10, False),
        ("bf16", 30, True),
        ("bf16_autocast", 10, False),
        ("bf16_autocast", 30, True),
        ("fp32_ieee", 10, True),
    ],
)
def test_each_precision_is_compared_with_its_own_ceiling(
    precision: str, factor: int, marked: bool, state: State
) -> None:
    """bf16's sentinel is 20 times as fast as fp32's: neither may stand in for the other."""
    full, half = _in("fp32_ieee", make_matmul(), "a" * 16), _in("bf16", make_matmul(), "d" * 16)
    for contender in half["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 20
    tried = hurry(_in(precision, make_candidate()), factor)
    marks = list_failed_checks(state, full, half, _in("fp32_ieee", make_copy(), "b" * 16), tried)
    assert ("jax-0.9", "invalid_physics") in marks if marked else marks == {}


@pytest.mark.parametrize(
    ("precision", "sentinel"),
    [
        ("bf16", "fp32_ieee"),
        ("bf16_autocast", "fp32_ieee"),
        ("tf32", "bf16"),
        ("tf32", "fp32_ieee"),
    ],
)
def test_a_precision_without_its_sentinel_has_no_ceiling(
    precision: str, sentinel: str, state: State
) -> None:
    tried = hurry(_in(precision, make_candidate()), 10)
    engine = ingest_proven(state, _in(sentinel, make_matmul(), "a" * 16), tried)
    report = check_campaign(engine, CAMPAIGN)
    assert report.failed_checks == ()
    assert "mlp tiny: no ceiling measured: compute" in report.unbounded
    engine.dispose()


def test_sentinels_of_other_devices_are_not_read(state: State) -> None:
    own, other = make_matmul(), make_matmul() | {"duel_run": "9" * 16, "campaign": "elsewhere"}
    other["allocation"]["device"]["fingerprint"] = "f" * 16
    engine = ingest_proven(state, own, other, make_candidate())
    device = own["allocation"]["device"]["fingerprint"]
    assert [each for each, _ in read_sentinels(engine, CAMPAIGN)] == [device]
    assert {each for each, _ in read_sentinels(engine, None)} == {device, "f" * 16}
    engine.dispose()


def test_the_ceiling_of_another_device_does_not_count(state: State) -> None:
    sentinel = make_matmul()
    sentinel["allocation"]["device"]["fingerprint"] = "f" * 16
    engine = ingest_proven(state, sentinel, hurry(make_candidate(), 10))
    assert "mlp tiny: no ceiling measured: compute" in check_campaign(engine, CAMPAIGN).unbounded
    engine.dispose()


@pytest.mark.parametrize("failing", ["disagrees", "crash", "numerics"])
def test_a_failed_sentinel_raises_no_ceiling(failing: str, state: State) -> None:
    """Neither side's: of two that disagree, nobody knows which one is wrong."""
    wrong = hurry(make_matmul(), 10)
    wrong["equivalence"][0]["agrees"] = failing != "disagrees"
    if failing != "disagrees":
        failure = {"stage": "block", "start": 1, "reason": "it fell", "traceback": None}
        for contender in wrong["contenders"]:
            contender.update(status=failing, failure=failure)
    engine = ingest_proven(state, wrong, hurry(make_candidate(), 10))
    assert "mlp tiny: no ceiling measured: compute" in check_campaign(engine, CAMPAIGN).unbounded
    engine.dispose()


def _begun(document: Document, days_ago: float) -> Document:
    """The document as one of another campaign, begun so long before the others."""
    begun = datetime.fromisoformat(STARTED_AT) - timedelta(days=days_ago)
    document["allocation"] |= {
        "started_at": begun.isoformat(),
        "ended_at": (begun + timedelta(minutes=1)).isoformat(),
    }
    return {**document, "campaign": "another"}


@pytest.mark.parametrize(("days_ago", "judged"), [(1, True), (29, True), (31, False), (-1, False)])
def test_a_ceiling_of_the_last_thirty_days_counts(
    days_ago: float, judged: bool, state: State
) -> None:
    engine = ingest_proven(state, _begun(make_matmul(), days_ago), hurry(make_candidate(), 10))
    (row,) = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9'").to_dict("records")
    engine.dispose()
    assert (row["status"] == "invalid_physics") == judged
    assert bool(row["unjudged"]) != judged


def test_a_slow_sentinel_does_not_lower_a_higher_ceiling_of_before(state: State) -> None:
    """As where something unseen slowed tonight's sentinels to a half."""
    slow = make_matmul()
    for contender in slow["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] *= 2
    fast = {**_begun(make_matmul(), 5), "duel_run": "d" * 16}
    engine = ingest_proven(state, slow, fast, make_candidate())
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok", "ok"]
    assert list(frame["unjudged"]) == ["", ""]


def _disturb(document: Document, names: Sequence[str]) -> Document:
    for contender in document["contenders"]:
        if contender["name"] in names:
            for start in contender["starts"]:
                for block in start["blocks"]:
                    block["telemetry"]["foreign_cpu_share"] = 0.9
    return document


def test_a_disturbed_sentinel_is_void_and_never_the_contender(state: State) -> None:
    """The contender is ten times as fast as what the sentinels reached."""
    documents = _disturb(make_matmul(), (JAX.name, TORCH.name)), hurry(make_candidate(), 10)
    engine = ingest_proven(state, *documents)
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok"]
    assert list(frame["unjudged"]) == [
        "physics could not be judged: no ceiling measured: compute (all blocks of its sentinels "
        "were disturbed)"
    ]


def test_a_single_sentinel_that_nothing_confirms_blames_nobody(state: State) -> None:
    engine = ingest_proven(
        state, _disturb(make_matmul(), (TORCH.name,)), hurry(make_candidate(), 10)
    )
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok"]
    assert "which differ too much to rule it out" in frame["unjudged"].iloc[0]
    assert frame["limit_share"].isna().all()


def _counted(document: Document, method: int = 2) -> Document:
    """As the present METHOD writes it: with the count of a step's products."""
    work = document["duel"]
    for contender in document["contenders"]:
        flops = {"float32": work["flops_per_step"]} if work["flops_per_step"] else {}
        contender["effective"]["products"] = {
            "flops": flops,
            "compiled_dtypes": ["float32"],
            "compiled_share": 1.0,
            "missing": {},
        }
    return {**_in("fp32_ieee", document, document["duel_run"]), "method": method}


@pytest.mark.parametrize("other", [TORCH, OLD_JAX], ids=["two frameworks", "two versions"])
@pytest.mark.parametrize(
    ("sentinels", "method", "sentence"),
    [
        ((), 2, "jax-0.9: physics could not be judged: no ceiling measured: compute"),
        ((_counted(make_matmul()),), 2, None),
        ((), 1, None),
    ],
    ids=["no ceiling", "a ceiling", "before METHOD 2"],
)
def test_a_pair_without_a_ceiling_does_not_count_and_says_why(
    sentinels: tuple[Document, ...],
    method: int,
    sentence: str | None,
    other: Racer,
    state: State,
) -> None:
    tried = _counted(make_candidate(racers=(JAX, other)), method)
    engine = ingest_proven(state, *sentinels, tried)
    failed = check_campaign(engine, CAMPAIGN).failed_checks
    reasons = [each.reason for each in failed if each.expectation == "physics judged"]
    assert reasons == ([sentence] if sentence else [])
    judge_campaign(engine, CAMPAIGN)
    (pair,) = [row for row in judge_and_list(engine, CAMPAIGN) if row["case"] == "mlp tiny"]
    engine.dispose()
    assert pair["counts"] == (sentence is None), pair["reason"]
    assert (sentence or "") in pair["reason"]
