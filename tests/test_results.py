"""Stored results: each document is valid, and every reported figure comes from them."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from benchcore.experiments.defect_study.summary import summarise_study
from benchcore.experiments.releases.backfill import CHANGE_COLUMNS, tabulate_changes
from benchcore.names import name_arm
from benchcore.planning.catalog import load_spec
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.duels import judge_campaign
from benchcore.store.frames.contenders import amount_frame, contender_frame
from benchcore.store.frames.duels import failed_check_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.incoming.documents import read_document
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.packs import list_packed, unpack
from benchcore.store.incoming.proofs import ingest_proofs
from benchcore.store.reports.certificates import list_certificates
from benchcore.store.reports.waterfalls import read_waterfall
from benchcore.verdict.duel.crossing import Point, find_crossing
from benchcore.verdict.samples import swap_sides
from dashboards.formatting import format_seconds, format_speedup
from dashboards.studies.defects_page import format_move, format_ratio
from dashboards.studies.waterfall_page import format_gain
from data_checks.check import check_campaign

RESULTS = Path(__file__).parent.parent / "results"
MACHINES = sorted(path for path in RESULTS.iterdir() if path.is_dir())
_RATIO = re.compile(r"[\d.]+x \([\d.]+ to [\d.]+\)")
_RATIOS_ALONE = ("train-", "nightly-", "sweep-", "compare-", "bisect-", "tune-", "tuned-")
"""How the names of folders begin that have ratios, and no study."""
_CROSSING = re.compile(r"(?:batch )?[\d.]+(?: models)? \(95 % interval [\d.]+ to [\d.]+")


@pytest.fixture(scope="module", params=MACHINES, ids=lambda path: path.name)
def machine(request: pytest.FixtureRequest) -> Path:
    """The folder of a machine's stored results."""
    return request.param


@pytest.fixture(scope="module")
def stored(
    machine: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[State, Engine]]:
    """All documents of the machine, ingested, checked and judged."""
    state = open_state(tmp_path_factory.mktemp("results") / "state")
    shutil.copytree(machine, state.root, dirs_exist_ok=True)
    engine = open_database(state.database_url)
    report = ingest_spool(engine, state)
    assert report.rejected == ()
    packed = [each for folder in machine.glob("spool/*") for each in list_packed(folder)]
    assert len(report.ingested) == len([*machine.glob("spool/*/*.json"), *packed])
    assert ingest_proofs(engine, state) == []
    names = sorted(each.name for each in (machine / "spool").iterdir())
    check_campaign(engine, names)
    for name in names:
        judge_campaign(engine, name)
    yield state, engine
    engine.dispose()


def test_stored_documents_can_be_ingested_and_give_the_stated_figures(
    machine: Path, stored: tuple[State, Engine]
) -> None:
    state, engine = stored
    assert f"({machine.name}/README.md)" in (RESULTS / "README.md").read_text()
    chapters = re.split(r"^## ", (machine / "README.md").read_text(), flags=re.MULTILINE)
    folders = [
        each for each in (machine / "spool").iterdir() if not each.name.startswith("backfill-")
    ]  # those have a test of their own
    _check_costs(engine, (machine / "README.md").read_text())
    named = 0
    for chapter in chapters:
        of_chapter = [each for each in folders if f"`spool/{each.name}`" in chapter]
        named += len(of_chapter)
        figures = _RATIO.findall(chapter) if of_chapter else []
        few = all(each.name.startswith(("train-", "compare-", "bisect-")) for each in of_chapter)
        assert len(figures) >= (len(of_chapter) if few else 3)
        spools = [state.spool / folder.name for folder in of_chapter]
        assert set(figures) <= {each for spool in spools for each in _figures(engine, spool)}
        crossings = _CROSSING.findall(" ".join(chapter.split()))
        assert set(crossings) <= {*_list_crossings(engine, of_chapter)}
    assert named == len(folders)
    for path in machine.glob("tuned/*.json"):
        _check_winner(engine, json.loads(path.read_text()))


def _list_crossings(engine: Engine, folders: list[Path]) -> Iterator[str]:
    """Where the lead changes sides, over the models or batches of ensembles: of two frameworks, or
    of one with two settings."""
    cases = load_spec("ensemble").cases
    found = defaultdict[tuple[Any, ...], list[Point]](list)
    for row in [each for folder in folders for each in _list_pairs(engine, folder)]:
        case, logs = cases[row["case_name"]], (row["log_ratio"], row["low"], row["high"])
        a, b = ((row[f"{side}_framework"], row[f"{side}_arm"]) for side in "ab")
        log_ratio, low, high = logs if a < b else swap_sides(*logs)
        for varied in ("models", "batch"):
            alike = (*sorted((a, b)), varied, replace(case, **{varied: 0}))
            value = getattr(case, varied)
            found[alike].append(Point(value=value, log_ratio=log_ratio, low=low, high=high))
    for (*_, varied, _), points in found.items():
        crossing = find_crossing(points)
        if crossing.value is not None:
            value, low, high = (
                f"{each:.3g}" for each in (crossing.value, crossing.low, crossing.high)
            )
            where = f"batch {value}" if varied == "batch" else f"{value} models"
            yield f"{where} (95 % interval {low} to {high}"


def _list_pairs(engine: Engine, folder: Path) -> list[dict[str, Any]]:
    """Pairs of ensembles that count."""
    rows = ratio_frame(engine, folder.name).to_dict("records")
    return [each for each in rows if each["workload"] == "ensemble" and each["counts"]]


def _check_costs(engine: Engine, text: str) -> None:
    """Compile times and first steps of new shapes, of the newest documents of a case."""
    known = amount_frame(engine).to_dict("records")
    for line in [each for each in text.splitlines() if each.startswith("| recompile ")]:
        case, side, *costs = (each.strip() for each in line.strip("| ").split("|"))
        if len(costs) != 2 or "x (" in line:
            continue
        found = [
            tuple(_write_cost(row[key]) for key in ("cold_compile_s", "new_shape_s"))
            for row in known
            if f"{row['workload']} {row['case_name']}" == case
            and name_arm(row["framework"], row["arm"]) == side
        ]
        assert tuple(costs) in found, (case, side)


def _check_winner(engine: Engine, winner: dict[str, Any]) -> None:
    """Each change that a search tried has the ratio of its duel."""
    pairs = ratio_frame(engine, winner["campaign"]).to_dict("records")
    tried = winner["tried"]
    assert {each["duel_run"] for each in tried} <= {row["duel_run"] for row in pairs}
    for row in pairs:
        for each in [each for each in tried if each["duel_run"] == row["duel_run"]]:
            assert each["speedup"] == pytest.approx(exp(-row["log_ratio"]), rel=1e-3)  # rounded
    last = {each["change"]: each["won"] for each in tried}  # alone, then all of them together
    assert any(last.values()) == (winner["settings"].keys() != {"compile"})


def _write_cost(seconds: float | None) -> str:
    return "none" if seconds is None or seconds != seconds else format_seconds(seconds)


def _figures(engine: Engine, folder: Path) -> Iterator[str]:
    unpack(folder)
    documents = [read_document(path) for path in sorted(folder.glob("*.json"))]
    if folder.name.startswith("waterfall-"):
        yield from _figures_of_waterfall(engine, documents)
    elif folder.name.startswith(_RATIOS_ALONE):
        for row in ratio_frame(engine, folder.name).to_dict("records"):
            assert row["counts"] or folder.name.startswith("nightly-")
            if not row["counts"]:
                continue
            yield format_speedup(row["log_ratio"], row["low"], row["high"])
            yield format_speedup(-row["log_ratio"], -row["high"], -row["low"])
        for row in list_certificates(engine, campaigns=[folder.name]):
            if row["factors"]["low"] is not None:
                yield format_speedup(*(log(row["factors"][k]) for k in ("ratio", "low", "high")))
    else:
        frames = [
            each(engine, folder.name) for each in (ratio_frame, failed_check_frame, contender_frame)
        ]
        ratios, marks, contenders = (frame.to_dict("records") for frame in frames)
        found = summarise_study(documents, ratios, marks, contenders)
        yield format_ratio(found["fair"])
        for each in (*found["switches"], *found["corrections"]):
            if each["speedup"] is not None:
                yield from (format_ratio(each), format_move(each))


def _figures_of_waterfall(engine: Engine, documents: list[dict[str, Any]]) -> Iterator[str]:
    (duel,) = [each for each in documents if each["duel"]["workload"] == "resnet50"]
    labels = ("eager", "channels_last", "compile", "JAX")
    names = [contender["name"] for contender in duel["contenders"]]
    arms = dict(zip(labels, names, strict=True))
    found = read_waterfall(engine, duel["campaign"], duel["duel_run"], arms)
    yield from (format_gain(arm) for arm in found["arms"])
    yield format_gain(found["whole"])


def test_a_stored_history_gives_the_stated_changes_again(
    machine: Path, stored: tuple[State, Engine]
) -> None:
    again = sorted(each.name for each in machine.glob("spool/backfill-*-again-*"))
    if not again:
        assert not [*machine.glob("spool/backfill-*")]
        return
    _, engine = stored
    found = tabulate_changes(list_certificates(engine, campaigns=again))
    stated = (machine / "README.md").read_text()
    rows = {tuple(row[name] for name in CHANGE_COLUMNS) for row in found}
    assert len(rows) >= 2
    assert rows == {
        tuple(each.strip() for each in line.strip("|").split("|"))
        for line in stated.splitlines()
        if line.count("|") == len(CHANGE_COLUMNS) + 1 and line.endswith(" |") and " to " in line
    }
