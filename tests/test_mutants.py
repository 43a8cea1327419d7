"""Every guarded pitfall has mutants that can be made, and the runner reports who noticed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import Mutant, find_tests, judge_outcomes, load_mutants, main

ROOT = Path(__file__).parent.parent
MUTANTS = load_mutants()
TESTS = find_tests()
ROWS = re.findall(
    r"^\| (\d+) \| .+? \| (.+) \| ?(.*?) ?\|$",
    (ROOT / "benchcore" / "cell" / "pitfalls.md").read_text(),
    re.MULTILINE,
)


def _bare(test: str) -> str:
    return test.partition("[")[0]


def test_the_table_has_all_its_rows_and_mutants_are_of_no_other() -> None:
    assert [int(row) for row, *_ in ROWS] == list(range(1, 63))
    assert {row for each in MUTANTS for row in each.rows} <= set(range(1, 63))


@pytest.mark.parametrize(("row", "guard", "named"), ROWS)
def test_every_test_of_a_guarded_row_has_a_mutant_of_that_row(
    row: str, guard: str, named: str
) -> None:
    tests = set(re.findall(r"`(test_\w+)`", named))
    assert bool(tests) != (guard == "open"), (
        f"row {row} is open, or names the tests that commit its error"
    )
    noticed = {_bare(t) for each in MUTANTS if int(row) in each.rows for t in each.tests}
    assert not tests - noticed, f"tests/mutants.toml lacks a mutant of row {row}: {tests - noticed}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.error)
def test_a_mutant_can_be_made_and_its_tests_exist(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    assert source.count(mutant.guard) == 1, f"{mutant.guard!r} in {mutant.file}"
    compile(source.replace(mutant.guard, mutant.instead), mutant.file, "exec")
    assert mutant.tests
    assert [test for test in mutant.tests if len(TESTS.get(_bare(test), ())) != 1] == []


def test_every_case_that_a_mutant_names_is_there() -> None:
    named = {test for each in MUTANTS for test in each.tests if "[" in test}
    nodes = sorted(f"{TESTS[_bare(test)][0]}::{test}" for test in named)
    collect = [sys.executable, "-m", "pytest", "--collect-only", *nodes]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_errors_have_different_names() -> None:
    assert len({each.error for each in MUTANTS}) == len(MUTANTS)


_CODE = "def half(x):\n    if x < 0:\n        raise ValueError(x)\n    return x / 2\n"
_TESTS = """
import pytest
from code_under_test import half

def test_half():
    assert half(4) == 2

def test_below_zero_is_refused():
    with pytest.raises(ValueError):
        half(-1)

@pytest.mark.parametrize("x", [0, 6])
def test_doubled(x):
    assert 2 * half(x) == x

def test_that_fails_anyway():
    assert half(2) == 3

@pytest.mark.parametrize("x", [1])
def test_alone(x):
    assert half(x)
"""
_TABLE = """
[[mutant]]
error = "{what}"
rows = [{row}]
file = "code_under_test.py"
guard = '{guard}'
instead = '{instead}'
tests = {tests}
"""
_MADE = {
    "killed": ("x / 2", "x", ["test_half", "test_doubled[6]", "test_doubled"]),
    "killed by pytest.raises": ("raise ValueError(x)", "pass", ["test_below_zero_is_refused"]),
    "SURVIVED": ("x / 2", "x", ["test_half", "test_doubled[0]"]),
    "BROKEN": ("def half", "def whole", ["test_half"]),
    "BROKEN in a test": ("x / 2", "x / None", ["test_half"]),
    "STALE": ("x / 3", "x", ["test_half"]),
    "FAILS ANYWAY": ("x / 2", "x", ["test_that_fails_anyway"]),
    "FAILS ANYWAY without being there": ("x / 2", "x", ["test_alone[7]"]),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one function, and a mutant for each thing that may be found."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "code_under_test.py").write_text(_CODE)
    (tmp_path / "tests" / "test_code.py").write_text(_TESTS)
    rows = [
        _TABLE.format(what=what, row=row, guard=guard, instead=instead, tests=tests)
        for row, (what, (guard, instead, tests)) in enumerate(_MADE.items(), start=1)
    ]
    (tmp_path / "tests" / "mutants.toml").write_text("".join(rows))
    return tmp_path


def test_a_mutant_is_killed_only_if_all_its_tests_fail(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tree) == 1
    printed = capsys.readouterr()
    for what in _MADE:
        found = "FAILS ANYWAY" if "ANYWAY" in what else what.partition(" ")[0]
        assert f"{found}: {what} " in printed.err
    assert "test_that_fails_anyway: assert 1.0 == 3" in printed.err
    assert "test_alone[7]: pytest ended with 4: ERROR: not found" in printed.err
    assert "test_doubled[6]" in printed.out
    assert "2 of 8 mutants killed, of 8 rows" in printed.out
    assert (tree / "code_under_test.py").read_text() == _CODE


def test_results_are_cached_until_a_source_changes(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--row", "1"], tree) == 0
    with monkeypatch.context() as patched:
        patched.setattr("mutants.subprocess.run", _never)
        assert main(["--row", "1"], tree) == 0
    (tree / "tests" / "test_code.py").write_text(_TESTS.replace("== 2\n", "in (2, 4)\n"))
    assert main(["--row", "1"], tree) == 1
    assert "SURVIVED: killed test_half" in capsys.readouterr().err


def test_requesting_a_row_without_mutants_is_not_a_success(tree: Path) -> None:
    assert main(["--row", "44"], tree) == 1


def _never(*_: object, **__: object) -> None:
    raise AssertionError("the tests ran again")


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("", "SURVIVED"),
        ("assert 1 == 2", "killed"),
        ("AssertionError: so it is", "killed"),
        ("Failed: DID NOT RAISE <class 'ValueError'>", "killed"),
        ("Failed: Timeout (>600.0s) from pytest-timeout.", "BROKEN"),
        ("ImportError: no module", "BROKEN"),
        ("error: fixture 'state' not found", "BROKEN"),
    ],
)
def test_only_an_assertion_notices(message: str, what: str) -> None:
    assert judge_outcomes(["test_x"], {"test_x[1]": message, "test_y": "assert 0"}).what == what
