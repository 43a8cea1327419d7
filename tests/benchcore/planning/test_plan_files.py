"""Plans on disk: what a file preserves, and which files are refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from newest_releases import make_newest_plan

from benchcore.errors import UserError
from benchcore.planning.matrix import load_plan, save_plan
from benchcore.planning.profiles import load_profile
from benchcore.protocol import DuelLimits


def test_a_plan_of_an_older_version_lacks_fields_with_defaults_only(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = make_newest_plan(load_profile("laptop"))
    save_plan(plan, path)
    document = json.loads(path.read_text())
    for release in document["releases"].values():
        del release["extras"]
    del document["separate_nodes"]
    path.write_text(json.dumps(document))
    assert load_plan(path) == plan
    del document["site"]
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="complete Plan, got one that lacks site;"):
        load_plan(path)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    plan = make_newest_plan(load_profile("laptop"))
    path = tmp_path / "plan.json"
    save_plan(plan, path)
    loaded = load_plan(path)
    assert loaded.duels == plan.duels
    assert loaded.notes == plan.notes
    assert list(loaded.releases) == list(plan.releases)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"releases": {}}', '{"releases": 1, "duels": 2, "notes": 3}']
)
def test_a_malformed_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"wanted a plan as JSON .*deadheat plan --json"):
        load_plan(path)


def test_a_plan_for_no_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UserError, match="no device 'cuda:x'; devices are 'cpu'"):
        make_newest_plan(dataclasses.replace(load_profile("ci"), device="cuda:x"))
    save_plan(make_newest_plan(dataclasses.replace(load_profile("ci"), device="cuda:1")), path)
    assert {duel.device for duel in load_plan(path).duels} == {"cuda:1"}
    path.write_text(path.read_text().replace("cuda:1", "/dev/null"))
    with pytest.raises(UserError, match="no device '/dev/null'"):
        load_plan(path)


def test_a_plan_whose_contender_names_no_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(make_newest_plan(load_profile("ci")), path)
    path.write_text(path.read_text().replace('"release": "stdlib"', '"release": "nope"'))
    with pytest.raises(UserError, match=r"wanted a release of .* got 'nope'"):
        load_plan(path)


def test_a_plan_with_unknown_keys_or_a_forged_duel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(make_newest_plan(load_profile("ci")), path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "extra": 1}))
    with pytest.raises(UserError, match="extra"):
        load_plan(path)
    document["duels"][0]["duel_run"] = "../../etc/passwd"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="its own hash"):
        load_plan(path)


def test_a_plan_on_disk_has_its_limits_beside_the_other_fields(tmp_path: Path) -> None:
    """So that a night begun before they had a type of their own goes on."""
    plan = make_newest_plan(load_profile("laptop"))
    save_plan(plan, tmp_path / "plan.json")
    (stored, *_) = json.loads((tmp_path / "plan.json").read_text())["duels"]
    assert (stored["starts"], stored["max_starts"]) == (3, 10)
    assert {field.name for field in dataclasses.fields(DuelLimits)} <= stored.keys()
    assert load_plan(tmp_path / "plan.json").duels == plan.duels
