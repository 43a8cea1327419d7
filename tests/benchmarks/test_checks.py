"""The benchmark of the checks stores one campaign, in which some duels fail."""

from __future__ import annotations

import checks

from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from benchcore.store.frames.contenders import contender_frame


def test_a_large_night_is_one_campaign_with_failures(state: State) -> None:
    engine = open_database(state.database_url, made_up=True)
    checks.store_night(engine, 30)
    assert list_campaigns(engine) == [checks.CAMPAIGN]
    contenders = contender_frame(engine, checks.CAMPAIGN)
    assert contenders["duel_run"].nunique() == 30
    assert list(contenders["status"]).count("crash") >= 1
    engine.dispose()
