from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from result_documents import JAX, NEW_JAX, TORCH, make_history
from stored_histories import FOUND, MOVED, store_history

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import Engine, begin_writing
from benchcore.store.duels import list_open_environments
from benchcore.store.history.events import store_finding
from benchcore.store.history.series import find_newest_day, read_series
from benchcore.store.history.suspicions import (
    choose_suspicions,
    list_suspicions,
    read_recent,
    read_suspicion,
    refresh_suspicions,
)
from benchcore.store.history.unmeasured_suspicions import end_unmeasured
from benchcore.store.models import SuspicionRow
from benchcore.store.reports.changes import list_changes
from benchcore.verdict.history.thresholds import GONE_NIGHTS
from dashboards.website.events import events_page

LOGS = np.random.default_rng(4).normal(0.2, 0.005, 24)
SHIFTED = LOGS + 0.06 * (np.arange(24) >= 16)


def test_a_series_holds_only_ratios_that_count_on_one_device(state: State, engine: Engine) -> None:
    documents = make_history(LOGS[:6])
    documents[5]["allocation"]["device"]["fingerprint"] = "9" * 16
    store_history(engine, state, documents, wrong=[2])
    here, there = sorted(read_series(engine), key=lambda each: -len(each.nights))
    assert here.values == pytest.approx(np.exp(LOGS[[0, 1, 3, 4]]))
    assert here.key.title == "mlp tiny: jax-jit against torch-compile"
    assert [night.log_ratio for night in there.nights] == pytest.approx([LOGS[5]])
    assert here.nights[0].a_environment == "jax-0.9.0"


def test_pinned_versions_and_one_framework_alone_form_no_history(
    state: State, engine: Engine
) -> None:
    pinned = make_history(LOGS[:2], [replace(JAX, role="pinned"), TORCH], campaign="pinned")
    store_history(engine, state, pinned)
    assert read_series(engine) == []


def test_one_shift_stays_one_suspicion(state: State, engine: Engine) -> None:
    documents = make_history(SHIFTED, later=[NEW_JAX, TORCH], since=16)
    store_history(engine, state, documents[:20])
    refresh_suspicions(engine)
    store_history(engine, state, documents[20:])
    refresh_suspicions(engine)
    (found,) = list_suspicions(engine)
    assert (found["state"], found["trigger"]) == ("open", "shift")
    assert found["since_run"] == f"{16:016x}"
    assert (found["before_run"], found["after_run"]) == (f"{13:016x}", f"{18:016x}")
    assert found["ratio"] == pytest.approx(math.exp(0.06), abs=0.01)
    assert found["since"] == "2026-01-17"


def test_a_series_goes_on_across_a_new_driver_whose_suspicion_says_what_it_moved(
    state: State, engine: Engine
) -> None:
    documents = make_history(SHIFTED)
    for document in documents:
        new = document["duel_run"] >= f"{16:016x}"
        document["allocation"]["device"]["driver"] = "580.2" if new else "570.1"
        document["allocation"]["device"]["kind"] = "gpu"
        for contender in document["contenders"]:
            contender["effective"]["manifest"]["cudnn"] = "9.11.0" if new else "not loaded"
    store_history(engine, state, documents)
    (series,) = read_series(engine)
    assert series.nights[0].conditions == {
        "METHOD": "1",
        "driver": "570.1",
        "host": "Some CPU, 2 CPUs",
        "kernel": "Linux 6.1",
        "node": "node-1",
    }
    assert series.nights[-1].conditions["cudnn of jax"] == "9.11.0"
    refresh_suspicions(engine)
    (found,) = list_suspicions(engine)
    assert found["conditions"] == [{"name": "driver", "old": "570.1", "new": "580.2"}]
    assert (found["trigger"], found["since_run"]) == ("bridge", f"{16:016x}")
    assert found["ratio"] == pytest.approx(math.exp(0.06), abs=0.01)
    assert found["reason"].startswith("driver 570.1 to 580.2 on 2026-01-17 is bridged: +5.9 % (")
    assert np.log(series.values[16:]).mean() == pytest.approx(0.2, abs=0.005)
    levels = read_suspicion(engine, found["id"]).levels
    assert levels.before == pytest.approx(0.2, abs=0.005)
    assert levels.after == pytest.approx(0.26, abs=0.005)
    assert levels.spread is not None


def test_a_series_goes_on_across_a_new_method_by_the_same_environments(
    state: State, engine: Engine
) -> None:
    """Fresh starts are measured by the new method, so levels are those that it would have seen."""
    documents = make_history(SHIFTED, later=[NEW_JAX, TORCH], since=16)
    for night, document in enumerate(documents):
        document["method"] = 1 if night < 8 else 2
    plain = make_history([log + 0.1 * (night >= 8) for night, log in enumerate(SHIFTED)])
    for document, moved in zip(documents, plain, strict=True):
        document["contenders"][1]["starts"] = moved["contenders"][1]["starts"]
    store_history(engine, state, documents)
    (series,) = read_series(engine)
    assert len(series.nights) == 24
    assert [bridge.applied for bridge in series.bridges] == [True]
    assert series.bridges[0].log_ratio == pytest.approx(0.1, abs=0.01)
    refresh_suspicions(engine)
    (found,) = list_suspicions(engine)
    assert (found["trigger"], found["since_run"]) == ("shift", f"{16:016x}")
    assert found["ratio"] == pytest.approx(math.exp(0.06), abs=0.01)
    levels = read_suspicion(engine, found["id"]).levels
    assert levels.before == pytest.approx(0.3, abs=0.01)
    assert levels.after == pytest.approx(0.36, abs=0.01)


def test_an_outlier_in_the_last_night_passes_if_later_nights_are_as_before(
    state: State, engine: Engine
) -> None:
    logs = LOGS.copy()
    logs[18] += 0.1
    documents = make_history(logs)
    store_history(engine, state, documents[:19])
    refresh_suspicions(engine)
    assert [each["state"] for each in list_suspicions(engine)] == ["open"]
    store_history(engine, state, documents[19:])
    refresh_suspicions(engine)
    assert [each["state"] for each in list_suspicions(engine)] == ["passed"]


def _date_ahead(document: dict[str, Any], days: int) -> None:
    allocation = document["allocation"]
    for name in ("started_at", "ended_at"):
        at = datetime.fromisoformat(allocation[name]) + timedelta(days=days)
        allocation[name] = at.isoformat()


@pytest.mark.parametrize("days", [6, 9, 1100])
def test_a_night_that_a_wrong_clock_dated_ahead_hides_no_later_night(
    state: State, engine: Engine, days: int
) -> None:
    """It stays at the place at which it came, also once its date is over."""
    documents = make_history(SHIFTED, later=[NEW_JAX, TORCH], since=16)
    _date_ahead(documents[12], days)
    for number, document in enumerate(documents):
        document["campaign"] = f"night-{number:02d}"
        store_history(engine, state, [document])
        refresh_suspicions(engine)
        if number == 16 and days == 9:  # two later nights show it, long before its date
            (series,) = read_series(engine)
            assert series.nights[-1].duel_run == f"{16:016x}"
    (series,) = read_series(engine)
    assert [night.duel_run for night in series.nights] == [f"{each:016x}" for each in range(24)]
    assert np.diff(series.numbers).tolist() == [1] * 23
    (found,) = list_suspicions(engine)
    assert (found["state"], found["since_run"]) == ("open", f"{16:016x}")
    assert find_newest_day(engine) == series.nights[-1].number


@pytest.mark.parametrize("days", [2, 5, 7, 30])
def test_a_release_on_a_night_that_was_dated_ahead_is_one_suspicion(
    state: State, engine: Engine, days: int
) -> None:
    """It is confirmed on that night."""
    documents = make_history(SHIFTED, later=[NEW_JAX, TORCH], since=16)
    _date_ahead(documents[16], days)
    for number, document in enumerate(documents):
        document["campaign"] = f"night-{number:02d}"
        store_history(engine, state, [document])
        refresh_suspicions(engine)
        for each in choose_suspicions(engine):
            with begin_writing(engine) as session:
                session.get_one(SuspicionRow, each).state = "confirmed"
    (found,) = list_suspicions(engine)
    assert (found["state"], found["since_run"]) == ("confirmed", f"{16:016x}")
    assert found["since"] == ("2026-01-17" if days > 2 else "2026-01-19")


def test_a_level_from_before_a_framework_s_change_is_not_one_that_the_machine_had(
    state: State, engine: Engine
) -> None:
    """The machine moves the ratio back to where it was before a release that moved it."""
    nights = np.arange(40)
    logs = np.random.default_rng(4).normal(0.2, 0.005, 40)
    logs += 0.06 * ((nights >= 15) & (nights < 33))
    store_history(engine, state, make_history(logs.tolist(), later=[NEW_JAX, TORCH], since=15))
    refresh_suspicions(engine)
    first, back = choose_suspicions(engine)
    alone = read_suspicion(engine, back).levels
    assert alone.known == 15
    same = replace(MOVED, verdict="same", log_ratio=0.0)
    finding = replace(FOUND, control=same)
    store_finding(engine, first, finding, names={"a": "jax", "b": "torch"})
    levels = read_suspicion(engine, back).levels
    assert (levels.known, levels.longest_spell, levels.after) == (0, 0, alone.after)


def _make_elsewhere(logs: Sequence[float], first: int = 0) -> list[dict[str, Any]]:
    """Nights of another device, from day `first` on."""
    documents = make_history(logs, campaign="elsewhere")[first:]
    for document in documents:
        document["duel_run"] = f"e{document['duel_run'][1:]}"
        document["allocation"]["device"]["fingerprint"] = "9" * 16
    return documents


def test_a_suspicion_ends_with_its_reason_when_its_device_is_gone(
    state: State, engine: Engine
) -> None:
    documents = make_history([*SHIFTED, *SHIFTED[16:]])
    store_history(engine, state, documents[:20])
    *others, last = _make_elsewhere(np.resize(LOGS, 20 + GONE_NIGHTS).tolist(), first=18)
    store_history(engine, state, others)
    refresh_suspicions(engine)
    (found,) = list_suspicions(engine)
    assert found["state"] == "open" and list_open_environments(engine)

    store_history(engine, state, [last])
    refresh_suspicions(engine)
    refresh_suspicions(engine)
    (gone,) = list_suspicions(engine)
    assert gone["state"] == "gone" and not list_open_environments(engine)
    assert gone["reason"] == (
        "not measured any more: its series has no row in the 30 nights since 2026-01-20; until "
        f"then: {found['reason']}"
    )
    assert choose_suspicions(engine) == []
    with pytest.raises(UserError, match="got 1, which is gone"):
        choose_suspicions(engine, [1])
    page = json.dumps(events_page(list_changes(engine), datetime(2026, 3, 1, tzinfo=UTC)))
    assert "Suspicions of series that are not measured any more" in page and gone["reason"] in page
    assert '"not measured any more"' in page, "the state, worded"

    for night, document in enumerate(documents[20:], start=60):
        at = datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(days=night)
        document["allocation"] |= {"started_at": at.isoformat(), "ended_at": at.isoformat()}
    store_history(engine, state, documents[20:])
    refresh_suspicions(engine)
    assert [each["state"] for each in list_suspicions(engine)] == ["open"]


def test_an_undecided_suspicion_stays_while_its_series_goes_on(
    state: State, engine: Engine
) -> None:
    store_history(engine, state, make_history(SHIFTED))
    refresh_suspicions(engine)
    with begin_writing(engine) as session:
        row = session.get_one(SuspicionRow, 1)
        row.state, row.updated_at = "unknown", datetime(2026, 1, 20, tzinfo=UTC)
    more = np.concatenate([SHIFTED, SHIFTED[16:], SHIFTED[16:], SHIFTED[16:], SHIFTED[16:]])
    later = [each for each in make_history(more) if each["duel_run"] >= f"{24:016x}"]
    store_history(engine, state, later)
    end_unmeasured(engine, {})
    assert [each["state"] for each in list_suspicions(engine)] == ["unknown"]


def test_a_night_looks_at_the_series_that_it_measured(state: State, engine: Engine) -> None:
    store_history(engine, state, make_history(SHIFTED))
    store_history(engine, state, _make_elsewhere(SHIFTED.tolist()))
    refresh_suspicions(engine, campaign="elsewhere")
    (found,) = list_suspicions(engine)
    assert found["device_fingerprint"] == "9" * 16
    refresh_suspicions(engine)
    assert len(list_suspicions(engine)) == 2


def test_suspicions_rest_on_recent_nights_and_what_was_open_before_stays(
    state: State, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(engine, state, make_history(SHIFTED))
    refresh_suspicions(engine)
    monkeypatch.setattr("benchcore.store.history.suspicions.HISTORY_DAYS", 4)
    (series,) = read_recent(engine, ("median_step_ns",))
    assert [night.duel_run for night in series.nights] == [f"{each:016x}" for each in range(19, 24)]
    refresh_suspicions(engine)
    assert [each["state"] for each in list_suspicions(engine)] == ["open"]
