"""The page of releases: each version beside the nearest older one."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from result_documents import JAX, OLD_JAX, make_document
from stored_histories import store_history

from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.duels import list_campaigns
from dashboards.website import releases
from dashboards.website.files import WebsiteFiles
from dashboards.website.gather import read_campaigns
from dashboards.website.releases import releases_page


def _certify(new: str, old: str, case: str = "train_b8", change: float = -0.4) -> dict[str, Any]:
    row: dict[str, Any] = {"a_framework": "jax", "a_version": new, "b_version": old}
    row |= {"workload": "mlp", "case_name": case, "track": "default", "method": 3}
    row |= {"device_fingerprint": "cpu", "device_model": "Some CPU"}
    row |= {
        "words": "MLP, training",
        "a_arm": "jax-jit",
        "batch": 8,
        "noun": "step time",
        "metric": "median_step_ns",
    }
    row |= {"certificate": "worse" if change < -0.02 else "not shown", "bound": 0.02}
    row |= {"change": change, "low": change - 0.005, "high": change + 0.005}
    return row | {"num_samples": 5, "reason": "95 % interval excludes equality"}


def test_a_backfill_of_many_versions_shows_what_each_did_to_the_one_before(tmp_path: Path) -> None:
    files = WebsiteFiles(tmp_path)
    versions = ["0.9.2", "0.10.0", "0.10.1", "0.10.2"]
    files.write("releases", [_certify(new, old) for old, new in combinations(versions, 2)])
    heat, _, *sections = releases_page(files)["blocks"]
    assert [each["title"] for each in sections] == [
        "JAX 0.10.2 against 0.10.1",
        "JAX 0.10.1 against 0.10.0",
        "JAX 0.10.0 against 0.9.2",
    ]
    (grid,) = heat["blocks"]
    assert [each["text"] for each in grid["columns"]] == ["0.10.2", "0.10.1", "0.10.0"]


def test_what_is_not_shown_has_its_factor_and_what_does_not_count_is_named(tmp_path: Path) -> None:
    files = WebsiteFiles(tmp_path)
    void = _certify("0.10.0", "0.9.2", "void_b8") | dict.fromkeys(
        ("change", "low", "high", "bound")
    )
    void |= {"words": "MLP, inference", "certificate": "void", "reason": "'logits' differs"}
    files.write("releases", [_certify("0.10.0", "0.9.2", change=-0.013), void])
    heat, section = releases_page(files)["blocks"]
    cells = {line["head"]: line["cells"] for line in heat["blocks"][0]["rows"]}
    assert [each["text"] for each in cells["MLP, training"]] == ["1.013x?"]
    assert [each["text"] for each in cells["MLP, inference"]] == ["void"]
    assert "'logits' differs" in cells["MLP, inference"][0]["title"]
    (answer, *details) = section["blocks"]
    assert answer["parts"] == ["Of 1 test: 1 not shown. 1 case void: no pair counts."]
    assert [each["summary"] for each in details] == ["Unchanged or not shown (1)", "Void (1)"]


def test_the_packages_that_differ_between_both_locks_are_listed(tmp_path: Path) -> None:
    files = WebsiteFiles(tmp_path)
    files.write("releases", [_certify("0.10.0", "0.9.2")])
    old = {"jax": "0.9.2", "jaxlib": "0.9.2", "numpy": "2.4.0", "scipy": "1.17.0"}
    new = {"jax": "0.10.0", "jaxlib": "0.9.2", "numpy": "2.4.0", "ml-dtypes": "0.6.0"}
    files.write("locks", {"jax": {"0.9.2": old, "0.10.0": new}, "torch": {"0.9.2": new}})
    _, section = releases_page(files)["blocks"]
    locks = section["blocks"][-1]
    assert locks["summary"] == "Differences between the locks: 3 packages"
    (table,) = locks["blocks"]
    assert [(row["name"], row["old"], row["new"]) for row in table["rows"]] == [
        ("jax", "0.9.2", "0.10.0"),
        ("ml-dtypes", "", "0.6.0"),
        ("scipy", "1.17.0", ""),
    ]
    files.write("locks", {"jax": {"0.10.0": new}})
    assert "Differences between" not in str(releases_page(files)), "one of both is not known"


def test_releases_that_cost_a_little_each_are_summed_up(tmp_path: Path) -> None:
    files, versions = WebsiteFiles(tmp_path), ["0.9.2", "0.10.0", "0.10.1", "0.10.2"]
    rows = [
        _certify(new, old, case, change)
        for old, new in pairwise(versions)
        for case, change in (("train_b8", -0.013), ("infer_b8", 0.001))
    ]
    files.write("releases", rows)
    found = {each["title"]: each["blocks"] for each in releases_page(files)["blocks"]}
    (table,) = found["JAX 0.10.2 after several releases"]
    (row,) = table["rows"]
    named = [row[key] for key in ("case", "arm", "metric", "since", "releases")]
    assert named == ["MLP, training", "JAX", "step time", "0.9.2", 3]
    assert row["times"]["value"] == pytest.approx(0.987**-3, abs=1e-4)
    files.write("releases", rows[-2:])  # one release is no sum
    titles = [each["title"] for each in releases_page(files)["blocks"]]
    assert not any("several" in each for each in titles)


def test_a_case_that_only_an_old_campaign_measured_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "_MOST_CAMPAIGNS", 2)
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    names = ["release-jax-0", *(f"nightly-2026-01-0{day}" for day in range(2, 6))]
    for number, name in enumerate(names):
        document = make_document((JAX, OLD_JAX), duel_run=f"{number:016x}", campaign=name)
        document["duel"]["case"] = "tiny" if number else "only_then"
        for key in ("started_at", "ended_at"):
            at = document["allocation"][key]
            document["allocation"][key] = at.replace("2026-01-02", f"2026-01-{2 + number:02}")
        store_history(engine, state, [document])
    files, release = WebsiteFiles(tmp_path / "site"), ("jax", JAX.version, OLD_JAX.version)
    words = {"words": "MLP", "batch": 32}
    cases = {("mlp", case): words for case in ("tiny", "only_then")}
    touched = releases.Touched(releases={release}, cases=cases)
    releases.refresh_certificates(files, engine, touched, names)
    rows = [each for each in files.read("releases") if each["metric"] == "median_step_ns"]
    assert {each["case_name"]: each["num_samples"] for each in rows} == {"only_then": 3, "tiny": 6}
    engine.dispose()


def test_a_case_is_void_until_a_pair_of_it_counts(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    engine = open_database(state.database_url)
    files = WebsiteFiles(tmp_path / "site")
    found = list[list[str]]()
    for number, (case, wrong) in enumerate([("tiny", [0]), ("other", [0]), ("tiny", [])]):
        name = f"release-jax-{number}"
        document = make_document((JAX, OLD_JAX), duel_run=f"{number:016x}", campaign=name)
        document["duel"]["case"] = case
        store_history(engine, state, [document], wrong)
        touched = releases.Touched()
        touched.add(next(read_campaigns(state, engine, [name])))
        releases.refresh_certificates(files, engine, touched, list_campaigns(engine))
        rows = [each for each in files.read("releases") if each["noun"] == "step time"]
        found.append(sorted(f"{row['case_name']} {row['certificate']}" for row in rows))
    assert found == [["tiny void"], ["other void", "tiny void"], ["other void", "tiny unchanged"]]
    engine.dispose()
