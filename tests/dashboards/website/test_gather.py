"""Campaigns that are read together have the same rows as those that are read alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dashboard_nights import NIGHTS, name_night
from sample_frames import sample_frames
from sqlalchemy import event

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.metrics import METRICS
from dashboards.frames import to_rows
from dashboards.website.campaign.duels import list_duels
from dashboards.website.campaign.tonight import describe_campaign
from dashboards.website.gather import Campaign, read_campaigns


@pytest.fixture(scope="module")
def alone(nights: State) -> Campaign:
    engine = open_database(nights.database_url)
    return next(read_campaigns(nights, engine, [name_night(NIGHTS - 1)]))


def test_reading_nights_together_changes_no_page(nights: State, alone: Campaign) -> None:
    engine = open_database(nights.database_url)
    names = [name_night(0), name_night(NIGHTS - 1)]
    first, last = read_campaigns(nights, engine, names)
    assert (first.name, last.name) == tuple(names)
    assert {row["campaign"] for row in first.rows("ratios")} == {first.name}
    assert describe_campaign(last, "") == describe_campaign(alone, "")
    assert dict(list_duels(last)) == dict(list_duels(alone))
    with pytest.raises(UserError, match="the database holds none"):
        list(read_campaigns(nights, engine, [*names, "nightly-none"]))


def test_many_nights_are_read_with_as_many_queries_as_one(nights: State) -> None:
    engine = open_database(nights.database_url)
    sent: list[str] = []

    def watch(*of_query: Any) -> None:
        sent.append(of_query[2])

    event.listen(engine, "before_cursor_execute", watch)
    one = [*read_campaigns(nights, engine, [name_night(0)])]
    of_one = len(sent)
    every = [*read_campaigns(nights, engine, [name_night(each) for each in range(NIGHTS)])]
    assert (len(one), len(every)) == (1, NIGHTS)
    assert len(sent) - of_one == of_one
    engine.dispose()


def test_past_versions_are_no_night(alone: Campaign) -> None:
    assert alone.kind == "nightly" and alone.plan is not None
    assert replace(alone, name="backfill-jax").kind == "release"
    assert replace(alone, name="seed0-mnist-1").kind == "ad-hoc"
    for profile in ("history", "backfill", "release"):
        past = replace(alone.plan, profile=profile)
        assert replace(alone, name="jax-of-2026", plan=past).kind == "release"


def _read_top(campaign: Campaign) -> str:
    first = describe_campaign(campaign, "")["top"][0]
    return "".join(each if isinstance(each, str) else each["text"] for each in first["parts"])


def test_the_top_of_a_night_names_the_settings_of_its_fair_pairs(alone: Campaign) -> None:
    assert _read_top(alone).endswith(". JAX: jit. PyTorch: compiled.")
    arms = ("channels-last", "max-autotune", "reduce-overhead", "no-donation")
    tuned = {
        run: [row | {"b_arm": f"torch-compile-{arm}", "fair": True, "violations": []}]
        for run, arm in zip(alone.runs, arms, strict=False)
        for row in alone.of_duels["ratios"][run]
        if (row["a_role"], row["b_role"], row["b_arm"]) == ("newest", "newest", "torch-compile")
    }
    ratios = {**alone.of_duels["ratios"], **tuned}
    found = _read_top(replace(alone, of_duels={**alone.of_duels, "ratios": ratios}))
    assert ". JAX: jit. PyTorch: compiled or compiled (" in found and found.endswith(" or 2 more.")
    without = replace(alone, of_duels={**alone.of_duels, "ratios": {}})
    assert "JAX: " not in _read_top(without)


def test_a_duel_shows_whether_the_compiled_program_changed(alone: Campaign) -> None:
    run = alone.runs[0]
    found = {"case": "mlp train", "a": "new", "b": "old", "duel_run": run}
    programs = {run: [{**found, "same": False, "summary": "another program: fusion 3, not 4"}]}
    changed = replace(alone, of_duels={**alone.of_duels, "programs": programs})
    shown = {each.get("title"): each for each in dict(list_duels(changed))[run]["blocks"]}
    (table,) = shown["Did the compiled program change?"]["blocks"]
    assert [row["pair"] for row in table["rows"]] == ["new against old"]
    unread = replace(alone, of_duels={**alone.of_duels, "programs": {}})
    plain = [each.get("title") for each in dict(list_duels(unread))[run]["blocks"]]
    assert "Did the compiled program change?" not in plain


def test_a_duel_without_passes_has_a_sentence_and_no_empty_table(alone: Campaign) -> None:
    run = alone.runs[0]
    nothing = dict.fromkeys((each.key for each in METRICS if each.on_page), None)
    bare = alone.of_duels["contenders"] | {
        run: [row | nothing for row in alone.of_duels["contenders"][run]]
    }
    for campaign, kind in (
        (alone, "table"),
        (replace(alone, of_duels={**alone.of_duels, "contenders": bare}), "text"),
    ):
        found = {each.get("id"): each for each in dict(list_duels(campaign))[run]["blocks"]}
        assert [each["kind"] for each in found["costs"]["blocks"]] == [kind]


def test_epochs_name_the_data_set_that_they_trained_on(alone: Campaign) -> None:
    run = alone.runs[0]
    rows = [row | {"duel_run": run} for row in to_rows(sample_frames(1).epochs)]
    trained = replace(alone, of_duels={**alone.of_duels, "epochs": {run: rows}})
    found = describe_campaign(trained, "")["blocks"]
    (section,) = [each for each in found if each.get("id") == "epochs"]
    assert "Epochs of training on imagenet-100." in str(section)


def test_seeds_of_a_training_are_a_table_of_its_page(alone: Campaign) -> None:
    run = alone.runs[0]
    side = {"framework": "jax", "version": "0.12.0", "arm": "jax-jit", "num_seeds": 2}
    none = {"seconds": None, "low": None, "high": None, "num_disturbed": 0}
    missed = "did not reach it in 1 of 2 seeds"
    trained = {"seconds": 2.0, "num_epochs": 3, "accuracy": 0.912, "disturbed": False}
    never = {**trained, "seconds": None}
    unknown = {"verdict": "unknown", "ratio": None, "low": None, "high": None, "num_seeds": 1}
    few = {"verdict": "not shown", "reason": "2 seeds are few", "margin": 0.01, "difference": None}
    row = {
        "duel_run": run,
        "workload": "mnist_cnn",
        "case_name": "epochs_b32",
        "track": "default",
        "dataset": "mnist-5k",
        "target": 0.9,
        "accuracy": few,
        "b": None,
        "a": {**side, **none, "reason": missed},
        "time": {**unknown, "reason": "there is no pair"},
        "seeds": [{"seed": 7, "a": trained, "b": None}, {"seed": 8, "a": never, "b": None}],
    }
    campaign = replace(alone, of_duels={**alone.of_duels, "trainings": {run: [row]}})
    (section,) = [
        each for each in describe_campaign(campaign, "")["blocks"] if each.get("id") == "seeds"
    ]
    *sentences, table = section["blocks"]
    words = [part for each in sentences for part in each["parts"]]
    assert words[0].startswith(f"Until 90 %: JAX 0.12.0 {missed}; b did not finish. ")
    assert words[1].startswith("Final accuracies are not shown to be equal within 1 percentage")
    cells = [
        (each["seed"], each["time_a"]["text"], each["time_b"]["text"]) for each in table["rows"]
    ]
    assert cells == [
        ({"text": "7", "value": 7}, "2.00 s (3 epochs)", "did not finish"),
        ({"text": "8", "value": 8}, "never (3 epochs)", "did not finish"),
    ]
    assert table["rows"][0]["accuracy_a"] == {"text": "91.2 %", "value": 0.912}
