"""The benchmark of the checks stores one campaign, in which some duels fail."""

from __future__ import annotations

import checks

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.frames.contenders import contender_frame
from data_checks.check import check_campaign


def test_a_large_night_is_one_campaign_with_failures(state: State) -> None:
    engine = open_database(state.database_url, made_up=True)
    checks.store_night(engine, state, 60)
    assert list_campaigns(engine) == [checks.CAMPAIGN]
    contenders = contender_frame(engine, checks.CAMPAIGN)
    assert contenders["duel_run"].nunique() == 60
    assert list(contenders["status"]).count("crash") >= 1
    found = check_campaign(engine, checks.CAMPAIGN).failed_checks
    assert {each.expectation for each in found} == {"finished", "agrees", "within tolerance"}
    engine.dispose()
