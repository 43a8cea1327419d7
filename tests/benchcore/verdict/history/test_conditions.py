from __future__ import annotations

from benchcore.verdict.history.conditions import (
    describe_changes,
    find_new_conditions,
    list_condition_changes,
)


def test_a_condition_that_one_night_does_not_know_has_not_changed() -> None:
    before = {"driver": "570.1", "node": "a", "kernel": "Linux 6.1"}
    after = {"driver": "580.2", "node": "a", "clock policy": "performance"}
    changes = list_condition_changes(before, after)
    assert describe_changes(changes) == "driver 570.1 to 580.2"
    assert describe_changes(list_condition_changes(before, before)) == ""


def test_nodes_that_alternate_are_new_only_once() -> None:
    nights = [{"node": each} for each in ("a", "b", "a", "b", "c", "a")]
    found = find_new_conditions([*nights[:3], {}, *nights[3:]])
    named = [describe_changes(each) for each in found]
    assert named == ["", "node a to b", "", "", "", "node b to c", ""]
