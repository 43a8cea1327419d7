"""Campaigns that are read together have the same rows as those that are read alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_frames import sample_frames
from site_nights import NIGHTS, name_night

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import open_database
from dashboards.site.duels import list_duels
from dashboards.site.gather import Campaign, read_campaign, read_campaigns
from dashboards.site.tonight import describe_campaign


@pytest.fixture(scope="module")
def alone(nights: State) -> Campaign:
    return read_campaign(nights, open_database(nights.database_url), name_night(NIGHTS - 1))


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


def test_past_versions_are_no_night(alone: Campaign) -> None:
    assert alone.kind == "nightly" and alone.plan is not None
    assert replace(alone, name="backfill-jax").kind == "release"
    for profile in ("history", "backfill", "release"):
        past = replace(alone.plan, profile=profile)
        assert replace(alone, name="jax-of-2026", plan=past).kind == "release"


def test_a_duel_shows_whether_the_compiled_program_changed(alone: Campaign) -> None:
    run = alone.runs[0]
    found = {"case": "mlp train", "pair": "new against old", "duel_run": run}
    programs = {run: [{**found, "same": False, "words": "another program: fusion 3, not 4"}]}
    changed = replace(alone, of_duels={**alone.of_duels, "programs": programs})
    titles = [each.get("title") for each in dict(list_duels(changed))[run]["blocks"]]
    assert "Did the compiled program change?" in titles
    unread = replace(alone, of_duels={**alone.of_duels, "programs": {}})
    plain = [each.get("title") for each in dict(list_duels(unread))[run]["blocks"]]
    assert "Did the compiled program change?" not in plain


def test_epochs_name_the_data_set_that_they_trained_on(alone: Campaign) -> None:
    trained = replace(alone, epochs=sample_frames(1).epochs)
    found = describe_campaign(trained, "")["blocks"]
    (section,) = [each for each in found if each.get("id") == "epochs"]
    assert "Epochs of training on imagenet-100." in str(section)
