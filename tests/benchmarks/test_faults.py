"""The page of fault injection shows the stored rows, and a run stores them as it goes on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import faults
import one_duel
import pytest

from flows.chaos.faults.fault import Fault
from flows.chaos.runner import FAULTS, StateTemplate
from flows.chaos.trial import Run, TrialOutcome

PAGE = (Path(faults.__file__).parent / "chaos.md").read_text()
RUNS = faults.read_runs()
NEWEST = {row["fault"]: row for run in RUNS for row in run["rows"]}
_HEADING = re.compile(r"^## .*: (\d+) faults of (?:(\d+) kinds|as many kinds)$", re.MULTILINE)


def test_the_page_has_the_table_of_every_stored_run_and_no_other() -> None:
    """`benchmarks/faults.py --tables` prints them."""
    assert [each for each in map(faults.format_run, RUNS) if each not in PAGE] == []
    assert len(re.findall(r"^\| fault \|", PAGE, re.MULTILINE)) == len(RUNS)


def test_the_headings_count_the_rows_below_them() -> None:
    headings = list(_HEADING.finditer(PAGE))
    assert len(headings) >= 2
    for heading in headings:
        below = PAGE[heading.end() :].partition("\n## ")[0]
        rows = [run["rows"] for run in RUNS if faults.format_run(run) in below]
        times = [row["times"] for each in rows for row in each]
        kinds = {row["fault"] for each in rows for row in each}
        assert (sum(times), len(kinds)) == (int(heading[1]), int(heading[2] or heading[1]))


def test_at_least_200_faults_of_30_kinds_lost_and_doubled_nothing() -> None:
    assert sum(row["times"] for row in NEWEST.values()) >= 200 and len(NEWEST) >= 30
    for row in NEWEST.values():
        bad = ("lost", "doubled", "orphans", "hung", "unexplained")
        assert [row[each] for each in bad] == [0] * 5 and row["recovered"] == row["times"], row


def test_every_fault_has_a_row() -> None:
    assert [each.name for each in FAULTS if each.name not in NEWEST] == []


_WELL = Run(code=0, stderr="", seconds=1.0, hung=False, orphans=())


def _run(monkeypatch: pytest.MonkeyPatch, folder: Path, names: list[str]) -> Any:
    """Two trials a fault, one loses a duel; that of the fault "late" can't happen."""

    def run_trials(_: object, given: list[Fault], **options: Any) -> list[TrialOutcome]:
        lost = ("a",) if given[0].name == "bad" else ()
        good = TrialOutcome(given[0].name, _WELL, _WELL, (), ())
        both = [good, TrialOutcome(given[0].name, _WELL, _WELL, lost, ())]
        return [] if given[0].name == "late" else both

    monkeypatch.setattr(faults, "run_trials", run_trials)
    template = StateTemplate("measuring", folder)
    return faults.inject(template, [Fault(name=each) for each in names], 2, 1, folder)


def test_rows_are_stored_after_each_fault_and_in_place_of_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (faults, one_duel):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    counts = list[int]()
    for run in _run(monkeypatch, tmp_path, ["one", "two"]):
        faults.store_run(run | {"command": "c"})
        (stored,) = faults.read_runs()
        counts.append(len(stored["rows"]))
    assert counts == [1, 2] and faults.is_good(stored)
    assert stored["rows"][1] == {
        "fault": "two",
        "times": 2,
        "recovered": 2,
        "seconds": 2.0,
        **dict.fromkeys(("lost", "doubled", "orphans", "hung", "unexplained"), 0),
    }
    faults.store_run({**stored, "began": "2999-01-01T00:00:00+00:00"})
    assert [each["began"] for each in faults.read_runs()] == [
        stored["began"],
        "2999-01-01T00:00:00+00:00",
    ]
    assert "| two | 2 | 0 | 0 | 0 | 0 | 2 | 2.0 |" in faults.format_run(stored)


@pytest.mark.parametrize(("name", "good"), [("one", True), ("bad", False), ("late", False)])
def test_a_fault_that_is_survived_badly_or_never_happens_is_no_success(
    name: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, run = _run(monkeypatch, tmp_path, [name])
    assert faults.is_good(run) == good
    assert ("Did not happen: late." in faults.describe_run(run | {"command": "c"})) == (
        name == "late"
    )
