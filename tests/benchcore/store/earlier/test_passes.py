"""Which earlier passes hold, and where their results are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from duel_orders import make_contender, make_order
from result_documents import CAMPAIGN, DUEL_RUN, make_document, spool_document

from benchcore.protocol import EarlierPasses, decode_order, encode
from benchcore.state import State
from benchcore.store.database import Engine
from benchcore.store.earlier.passes import HOLD, read_earlier_passes
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.profiles import bottleneck_frame, profile_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.metric_values import read_campaign_values
from benchcore.store.metrics import find_tracked

Document = dict[str, Any]
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOW = AT + HOLD / 2


def _describe(fingerprint: str, **others: Any) -> dict[str, Any]:
    names = ("driver", "clock_policy", "cpu_model", "cpus")
    return {"fingerprint": fingerprint, **{name: others.get(name) for name in names}}


def _ingest(engine: Engine, state: State, *documents: Document) -> None:
    for document in documents:
        spool_document(state.spool, document)
    assert not ingest_spool(engine, state).rejected


def test_a_duel_run_that_measured_every_pass_is_found(engine: Engine, state: State) -> None:
    document = make_document()
    _ingest(engine, state, document)
    found = read_earlier_passes(engine, [document["duel"]["hash"], "f" * 16], NOW)
    (passes,) = found.pop(document["duel"]["hash"])
    assert not found
    assert passes == EarlierPasses(
        duel_run=DUEL_RUN,
        campaign=CAMPAIGN,
        at=passes.at,
        snapshot="a" * 64,
        environments={"jax-0.9": "jax-0.9.0", "torch-2.10": "torch-2.10.0"},
        device=_describe("00112233445566ff", driver=None),
    )
    assert datetime.fromisoformat(passes.at) == datetime.fromisoformat(
        document["allocation"]["started_at"]
    )


def _lose_memory(document: Document) -> None:
    for start in document["contenders"][1]["starts"]:
        start["memory"]["process_peak_bytes"] = None


def _name_another(document: Document) -> None:
    earlier = {"duel_run": "e" * 16, "campaign": "earlier", "at": AT.isoformat()}
    document["duel"]["passes_of"] = earlier


@pytest.mark.parametrize(
    ("spoil", "now"),
    [
        (lambda _: None, AT + HOLD + timedelta(minutes=1)),
        (_lose_memory, NOW),
        (lambda d: d["contenders"][0]["effective"].update(failed_passes=["profile: it"]), NOW),
        (lambda d: d["contenders"][0].update(status="workaround"), NOW),
        (_name_another, NOW),
    ],
    ids=["too old", "a contender without memory", "a failed pass", "a workaround", "not its own"],
)
def test_incomplete_or_old_passes_do_not_hold(
    spoil: Callable[[Document], object], now: datetime, engine: Engine, state: State
) -> None:
    document = make_document()
    spoil(document)
    _ingest(engine, state, document)
    assert read_earlier_passes(engine, [document["duel"]["hash"]], now) == {}


PASSES = EarlierPasses(
    duel_run="e" * 16,
    campaign="earlier",
    at=AT.isoformat(),
    snapshot="0" * 64,
    environments={"a": "0" * 16},
    device=_describe("1" * 16, driver="570.1"),
)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"snapshot": "2" * 64}, False),
        ({"environments": {"a": "1" * 16}}, False),
        ({"environments": {"a": "0" * 16, "b": "0" * 16}}, False),
        ({"device": _describe("2" * 16, driver="570.1")}, False),
        ({"device": _describe("1" * 16, driver=None)}, False),
        ({"device": _describe("1" * 16, driver="570.1", clock_policy="500 W")}, False),
        ({"device": _describe("1" * 16, driver="570.1", cpu_model="Other CPU")}, False),
    ],
)
def test_passes_hold_while_nothing_that_they_depend_on_changes(
    change: dict[str, Any], holds: bool
) -> None:
    earlier = dataclasses.replace(PASSES, **change)
    order = make_order(make_contender("a"), earlier_passes=(earlier,))
    assert decode_order(encode(order)) == order
    found = order.find_passes({"fingerprint": "1" * 16, "driver": "570.1"})
    assert found == (earlier if holds else None)


def test_without_the_earlier_run_there_are_no_passes(engine: Engine, state: State) -> None:
    document = make_document()
    _name_another(document)
    for contender in document["contenders"]:
        for start in contender["starts"]:
            start["memory"], start["profile"] = dict.fromkeys(start["memory"]), None
    _ingest(engine, state, document)
    shown = contender_frame(engine, CAMPAIGN)
    assert shown["process_peak_bytes"].isna().all() and list(shown["passes_campaign"]) == [None] * 2
    assert profile_frame(engine, CAMPAIGN).empty and len(bottleneck_frame(engine, CAMPAIGN)) == 2


def test_a_contender_that_failed_gets_no_earlier_passes(engine: Engine, state: State) -> None:
    later = make_document()
    _name_another(later)
    later["contenders"][0].update(status="oom", starts=[])
    later["equivalence"] = []
    _ingest(engine, state, make_document(campaign="earlier", duel_run="e" * 16), later)
    failed, other = contender_frame(engine, CAMPAIGN).to_dict("records")
    assert failed["process_peak_bytes"] != failed["process_peak_bytes"]
    assert (failed["passes_campaign"], other["passes_campaign"]) == (None, "earlier")


def test_frames_have_the_passes_that_hold_and_series_do_not(engine: Engine, state: State) -> None:
    earlier = make_document(campaign="earlier", duel_run="e" * 16)
    later = make_document()
    _name_another(later)
    for contender in later["contenders"]:
        for start in contender["starts"]:
            start["memory"] = dict.fromkeys(start["memory"])
            start["profile"] = None
    _ingest(engine, state, earlier, later)
    shown = contender_frame(engine, CAMPAIGN)
    assert list(shown["process_peak_bytes"]) == [1_000_002, 1_000_002]
    assert set(shown["passes_campaign"]) == {"earlier"}
    assert list(contender_frame(engine, "earlier")["passes_campaign"].dropna()) == []
    kept = profile_frame(engine, "earlier").drop(columns=["campaign", "duel_run"])
    assert not kept.empty
    assert profile_frame(engine, CAMPAIGN).drop(columns=["campaign", "duel_run"]).equals(kept)
    assert list(bottleneck_frame(engine, CAMPAIGN)["reason"]) == list(
        bottleneck_frame(engine, "earlier")["reason"]
    )
    values = read_campaign_values(engine, CAMPAIGN, find_tracked("process_peak_bytes"))
    assert set(map(str, values.values())) == {"{}"}
