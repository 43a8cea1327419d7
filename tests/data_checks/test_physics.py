"""The physics gate over documents: what can't have been computed takes no part in ratios."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from proof_documents import keep_proof, make_proof
from result_documents import (
    CAMPAIGN,
    DUEL_RUN,
    JAX,
    OLD_JAX,
    STARTED_AT,
    TORCH,
    Racer,
    make_document,
    spool_document,
)

from benchcore.experiments.compare import summarise
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.ceilings import read_sentinels
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list, list_contenders, list_failures
from dashboards.website.campaign.tonight import describe_campaign
from dashboards.website.gather import read_campaigns
from data_checks.check import check_campaign

SUITES = {"physics", "judged physics"}

Document = dict[str, Any]
FLOPS = 2 * 1024**3
BYTES = 512 << 20


def ingest(state: State, *documents: Document) -> Engine:
    """All of them proven equal: what is marked here is marked for its speed alone."""
    for document in documents:
        spool_document(state.spool, document)
    engine = open_database(f"sqlite:///{state.root / 'deadheat.db'}")
    assert ingest_spool(engine, state).rejected == ()
    for document in documents:
        keep_proof(state, engine, make_proof(document), document["duel_run"])
    return engine


def matmul(**changes: Any) -> Document:
    """The compute sentinel: its step takes 1 ms in both frameworks: 2147 GFLOP/s."""
    document = make_document(duel_run="a" * 16, starts=2)
    work = {"workload": "matmul", "case": "cpu_1024", "use_case": "op"}
    amounts = {"flops_per_step": FLOPS, "least_bytes_per_step": 12 << 20}
    document["duel"] |= {**work, **amounts, **changes}
    return document


def copy(**changes: Any) -> Document:
    """The bandwidth sentinel: 537 GB/s."""
    document = make_document(duel_run="b" * 16, starts=2)
    work = {"workload": "copy", "case": "cpu_256m", "use_case": "op"}
    document["duel"] |= {**work, "flops_per_step": 0, "least_bytes_per_step": BYTES, **changes}
    return document


def candidate(
    *,
    flops: int = FLOPS,
    least_bytes: int = 0,
    cache_bytes: int = 0,
    racers: Sequence[Racer] = (JAX, TORCH),
) -> Document:
    document = make_document(racers)
    document["duel"].update(flops_per_step=flops, least_bytes_per_step=least_bytes)
    document["allocation"]["host"]["cache_bytes"] = cache_bytes
    return document


def hurry(document: Document, factor: int, *, start: int | None = None) -> Document:
    """The first contender's steps become this much too fast, in one start or in all."""
    for each in document["contenders"][0]["starts"]:
        if start is None or each["index"] == start:
            for block in each["blocks"]:
                block["elapsed_ns"] //= factor
    return document


def marks_of(state: State, *documents: Document) -> dict[tuple[str | None, str], str]:
    engine = ingest(state, *documents)
    report = check_campaign(engine, CAMPAIGN)
    ratios = {each.counts for each in judge_campaign(engine, CAMPAIGN)}
    marks = {(each.contender, each.expectation): each.reason for each in report.failed_checks}
    assert {each.duel_run for each in report.failed_checks} <= {DUEL_RUN}
    assert (False in ratios) == bool(marks)
    engine.dispose()
    return marks


def test_a_possible_step_passes_the_check(state: State) -> None:
    assert marks_of(state, matmul(), copy(), candidate(least_bytes=BYTES)) == {}


@pytest.mark.parametrize("start", [None, 1])
def test_steps_ten_times_too_fast_are_invalid_physics(start: int | None, state: State) -> None:
    """As dead code or a forgotten synchronisation make them; one such start is enough."""
    marks = marks_of(state, matmul(), copy(), hurry(candidate(), 10, start=start))
    assert list(marks) == [("jax-0.9", "invalid_physics")]
    assert marks["jax-0.9", "invalid_physics"].startswith(
        "jax-0.9 is invalid_physics, 9.08 times what the device can do: a step took "
    )
    assert "2147 GFLOP/s" in marks["jax-0.9", "invalid_physics"]


@pytest.mark.parametrize(
    ("kind", "case", "marked"),
    [("gpu", "train_b32_x2", 0), ("gpu", "train_b32", 1), ("cpu", "train_b32_x2", 1)],
)
def test_a_step_on_two_gpus_may_take_half_the_time_of_one(
    kind: str, case: str, marked: int, state: State
) -> None:
    """Devices of a CPU are parts of it: they make nothing possible that it is not capable of."""
    document = hurry(candidate(flops=int(0.9 * FLOPS)), 2)
    document["duel"] |= {"workload": "text_classifier", "case": case, "use_case": "train"}
    documents = [matmul(), copy(), document]
    for each in documents:
        each["allocation"]["device"]["kind"] = kind
    assert len(marks_of(state, *documents)) == marked


def test_an_impossible_contender_has_that_status_everywhere_and_its_duel_counts_nowhere(
    state: State,
) -> None:
    documents = matmul(), copy(), hurry(candidate(), 10)
    engine = ingest(state, *documents)
    check_campaign(engine, CAMPAIGN)
    pairs = {row["case"]: row for row in judge_and_list(engine, CAMPAIGN)}
    pair, failures = pairs["mlp tiny"], list_failures(engine, CAMPAIGN)
    assert {case for case, row in pairs.items() if not row["counts"]} == {"mlp tiny"}
    assert pair["verdict"] == "unknown"
    assert "jax-0.9 is invalid_physics, 9.08 times" in pair["reason"]
    assert [(row["name"], row["status"]) for row in failures] == [("jax-0.9", "invalid_physics")]
    assert failures[0]["reason"].startswith("a step took 1.002e+05 ns; the ceilings (2147 GFLOP/s")
    found = summarise(documents[-1], [pair], list_contenders(engine, CAMPAIGN))
    assert [found[side]["status"] for side in ("a", "b")] == ["invalid_physics", "ok"]
    (campaign,) = read_campaigns(state, engine, [CAMPAIGN])
    page = describe_campaign(campaign, "")
    engine.dispose()
    (failures,) = [each for each in page["blocks"] if each["id"] == "failures"]
    (row,) = failures["blocks"][0]["rows"]
    assert (row["contender"], row["stage"]) == ("JAX 0.9.0", "block")
    assert row["status"]["text"] == "invalid_physics"


def test_checking_again_finds_the_same(state: State) -> None:
    engine = ingest(state, matmul(), copy(), hurry(candidate(), 10))
    first, again = (check_campaign(engine, CAMPAIGN).failed_checks for _ in range(2))
    assert [mark.expectation for mark in first] == ["invalid_physics"]
    assert again == first
    engine.dispose()


@pytest.mark.parametrize(
    ("workload", "case", "share", "marked"),
    [
        ("resnet50", "infer_b1", 0.70, False),
        ("resnet50", "infer_b1", 0.64, True),
        ("mlp", "infer_b128", 0.92, False),
        ("mlp", "infer_b128", 0.70, True),
    ],
)
def test_only_eligible_convolutions_are_allowed_the_winograd_saving(
    workload: str, case: str, share: float, marked: bool, state: State
) -> None:
    """37 % of ResNet-50's operations are in convolutions where it may save three quarters."""
    tried = candidate()
    tried["duel"].update(workload=workload, case=case)
    for start in tried["contenders"][0]["starts"]:
        for block in start["blocks"]:
            block["elapsed_ns"] = int(block["elapsed_ns"] * share)
    engine = ingest(state, matmul(), copy(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == @workload and name == 'jax-0.9'")
    engine.dispose()
    assert list(frame["status"]) == ["invalid_physics" if marked else "ok"]


@pytest.mark.parametrize("status", ["workaround", "crash"])
def test_a_failed_contender_keeps_its_own_status(status: str, state: State) -> None:
    document = hurry(candidate(), 10)
    failure = {"stage": "block", "start": 0, "reason": "it fell", "traceback": None}
    document["contenders"][0].update(status=status, failure=failure)
    engine = ingest(state, matmul(), copy(), document)
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    assert list(zip(frame["status"], frame["reason"], strict=True)) == [(status, "it fell")]
    engine.dispose()


def test_impossible_memory_bandwidth_fails_unless_a_cache_may_hold_the_data(state: State) -> None:
    memory_bound = {"flops": 1, "least_bytes": BYTES}
    marks = marks_of(state, matmul(), copy(), hurry(candidate(**memory_bound), 10))
    assert list(marks) == [("jax-0.9", "invalid_physics")]


def test_a_working_set_that_fits_the_cache_may_beat_the_memory(state: State) -> None:
    cached = candidate(flops=1, least_bytes=BYTES, cache_bytes=BYTES)
    assert marks_of(state, matmul(), copy(), hurry(cached, 10)) == {}


@pytest.mark.parametrize(
    "sentinels",
    [
        (),
        (matmul(case="tiny_op"),),
        (matmul(precision="tf32"),),
        ({**matmul(), "campaign": "another", "method": 2},),
    ],
    ids=["none", "too small", "another precision", "another method"],
)
def test_without_a_ceiling_of_its_own_a_case_is_reported_unbounded(
    sentinels: tuple[Document, ...], state: State
) -> None:
    engine = ingest(state, *sentinels, hurry(candidate(), 10))
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
    full, half = _in("fp32_ieee", matmul(), "a" * 16), _in("bf16", matmul(), "d" * 16)
    for contender in half["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 20
    tried = hurry(_in(precision, candidate()), factor)
    marks = marks_of(state, full, half, _in("fp32_ieee", copy(), "b" * 16), tried)
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
    tried = hurry(_in(precision, candidate()), 10)
    engine = ingest(state, _in(sentinel, matmul(), "a" * 16), tried)
    report = check_campaign(engine, CAMPAIGN)
    assert report.failed_checks == ()
    assert "mlp tiny: no ceiling measured: compute" in report.unbounded
    engine.dispose()


def test_sentinels_of_other_devices_are_not_read(state: State) -> None:
    own, other = matmul(), matmul() | {"duel_run": "9" * 16, "campaign": "elsewhere"}
    other["allocation"]["device"]["fingerprint"] = "f" * 16
    engine = ingest(state, own, other, candidate())
    device = own["allocation"]["device"]["fingerprint"]
    assert [each for each, _ in read_sentinels(engine, CAMPAIGN)] == [device]
    assert {each for each, _ in read_sentinels(engine, None)} == {device, "f" * 16}
    engine.dispose()


def test_the_ceiling_of_another_device_does_not_count(state: State) -> None:
    sentinel = matmul()
    sentinel["allocation"]["device"]["fingerprint"] = "f" * 16
    engine = ingest(state, sentinel, hurry(candidate(), 10))
    assert "mlp tiny: no ceiling measured: compute" in check_campaign(engine, CAMPAIGN).unbounded
    engine.dispose()


@pytest.mark.parametrize("failing", ["disagrees", "crash", "numerics"])
def test_a_failed_sentinel_raises_no_ceiling(failing: str, state: State) -> None:
    """Neither side's: of two that disagree, nobody knows which one is wrong."""
    wrong = hurry(matmul(), 10)
    wrong["equivalence"][0]["agrees"] = failing != "disagrees"
    if failing != "disagrees":
        failure = {"stage": "block", "start": 1, "reason": "it fell", "traceback": None}
        for contender in wrong["contenders"]:
            contender.update(status=failing, failure=failure)
    engine = ingest(state, wrong, hurry(candidate(), 10))
    assert "mlp tiny: no ceiling measured: compute" in check_campaign(engine, CAMPAIGN).unbounded
    engine.dispose()


def test_shares_of_the_ceilings_are_columns(state: State) -> None:
    engine = ingest(state, matmul(), copy(), candidate(flops=FLOPS // 2, least_bytes=BYTES // 4))
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    assert list(frame["name"]) == [JAX.name, TORCH.name]
    assert list(frame["compute_share"]) == pytest.approx([0.5, 0.5], rel=0.01)
    assert list(frame["bandwidth_share"]) == pytest.approx([0.25, 0.25], rel=0.01)
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
    engine = ingest(state, _begun(matmul(), days_ago), hurry(candidate(), 10))
    (row,) = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9'").to_dict("records")
    engine.dispose()
    assert (row["status"] == "invalid_physics") == judged
    assert bool(row["unjudged"]) != judged


def test_a_slow_sentinel_does_not_lower_a_higher_ceiling_of_before(state: State) -> None:
    """As where something unseen slowed tonight's sentinels to a half."""
    slow = matmul()
    for contender in slow["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] *= 2
    fast = {**_begun(matmul(), 5), "duel_run": "d" * 16}
    engine = ingest(state, slow, fast, candidate())
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
    documents = _disturb(matmul(), (JAX.name, TORCH.name)), hurry(candidate(), 10)
    engine = ingest(state, *documents)
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok"]
    assert list(frame["unjudged"]) == [
        "physics could not be judged: no ceiling measured: compute (all blocks of its sentinels "
        "were disturbed)"
    ]


def test_a_single_sentinel_that_nothing_confirms_blames_nobody(state: State) -> None:
    engine = ingest(state, _disturb(matmul(), (TORCH.name,)), hurry(candidate(), 10))
    frame = contender_frame(engine, CAMPAIGN).query("name == 'jax-0.9' and workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok"]
    assert "which differ too much to rule it out" in frame["unjudged"].iloc[0]
    assert frame["limit_share"].isna().all()


def test_both_frameworks_beyond_the_ceiling_show_that_it_is_too_low(state: State) -> None:
    tried = candidate()
    for contender in tried["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 10
    engine = ingest(state, matmul(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok", "ok"]
    assert frame["unjudged"].str.contains("both frameworks are faster than the sentinels").all()


@pytest.mark.parametrize("agree", [True, False])
def test_two_versions_beyond_the_ceiling_void_the_sentinels_if_their_outputs_agree(
    agree: bool, state: State
) -> None:
    tried = candidate(racers=(JAX, OLD_JAX))
    for contender in tried["contenders"]:
        for start in contender["starts"]:
            for block in start["blocks"]:
                block["elapsed_ns"] //= 10
    tried["equivalence"][0]["agrees"] = agree
    engine = ingest(state, matmul(), tried)
    frame = contender_frame(engine, CAMPAIGN).query("workload == 'mlp'")
    engine.dispose()
    assert list(frame["status"]) == ["ok" if agree else "invalid_physics"] * 2
    why = "two environments, whose outputs agree, are faster than the sentinels"
    assert frame["unjudged"].str.contains(why).all() == agree


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
        ((_counted(matmul()),), 2, None),
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
    tried = _counted(candidate(racers=(JAX, other)), method)
    engine = ingest(state, *sentinels, tried)
    failed = check_campaign(engine, CAMPAIGN).failed_checks
    reasons = [each.reason for each in failed if each.expectation == "physics judged"]
    assert reasons == ([sentence] if sentence else [])
    judge_campaign(engine, CAMPAIGN)
    (pair,) = [row for row in judge_and_list(engine, CAMPAIGN) if row["case"] == "mlp tiny"]
    engine.dispose()
    assert pair["counts"] == (sentence is None), pair["reason"]
    assert (sentence or "") in pair["reason"]
