"""Removes one guard after another and expects its tests to fail: `make mutants`.

    .venv/bin/python tests/mutants.py [--row 5] [--only TEXT] [--fresh]

`mutants.toml` beside this file lists the guards, what replaces each one, and which tests must
notice. Each mutant is made in a copy of the tree, where only its tests run: every one of them must
fail in an assertion, and pass in the untouched copy. Findings are kept in `state/mutants` until a
source changes, so an interrupted run resumes. Exit code 1 if a mutant survives, breaks instead of
failing, or has a guard that no longer exists.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).parent.parent
_LEFT_BEHIND = (".git", ".venv", ".tools", "state", "__pycache__", ".*_cache", ".hypothesis")
_SOURCES = (".py", ".json", ".j2", ".toml")
_ASSERTED = re.compile(r"(AssertionError|assert |Failed: (?!Timeout))")
"""How JUnit's message begins if a test noticed: a failed assertion or a failed `pytest.raises`."""
_ENDED = "pytest ended with"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A guard, what replaces it, and the tests that must notice.

    `rows` are of the table of pitfalls; none = a guard that is not in it.
    """

    error: str
    rows: tuple[int, ...]
    file: str
    guard: str
    instead: str
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MutantResult:
    """`killed`, `SURVIVED`, `BROKEN` (failed, but in no assertion), `STALE` or `FAILS ANYWAY`."""

    what: str
    details: str = ""


def load_mutants(root: Path = ROOT) -> list[Mutant]:
    """The table. Raises TypeError on an unknown or missing key."""
    table = tomllib.loads((root / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    return [
        Mutant(**{**row, "rows": tuple(row["rows"]), "tests": tuple(row["tests"])})
        for row in table["mutant"]
    ]


def find_tests(root: Path = ROOT) -> dict[str, list[str]]:
    """Name of a test -> the files that define it."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(name, []).append(str(path.relative_to(root)))
    return found


class Runner:
    """Makes mutants in a copy of a tree, and runs their tests."""

    def __init__(self, root: Path, copy: Path, kept: Path) -> None:
        self._root = root
        self._copy = copy
        self._kept = kept
        self._files = find_tests(root)
        self._known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
        self._tree = _hash_tree(root)
        shutil.copytree(
            root, copy, ignore=shutil.ignore_patterns(*_LEFT_BEHIND), dirs_exist_ok=True
        )

    def judge(self, mutant: Mutant) -> MutantResult:
        """The finding for a mutant; a stored one if no source has changed since."""
        key = self._key(asdict(mutant))
        if key not in self._known:
            self._remember(key, asdict(self._try(mutant)))
        return MutantResult(**self._known[key])

    def _try(self, mutant: Mutant) -> MutantResult:
        path = self._copy / mutant.file
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        if source.count(mutant.guard) != 1:
            details = f"{mutant.file} holds the guard {source.count(mutant.guard)} times"
            return MutantResult(what="STALE", details=details)
        failing = {test: self._known[self._key(test)] for test in mutant.tests}
        failing = {test: why for test, why in failing.items() if why}
        if failing:
            details = "; ".join(f"{test}: {why}" for test, why in failing.items())
            return MutantResult(what="FAILS ANYWAY", details=details)
        path.write_text(source.replace(mutant.guard, mutant.instead), encoding="utf-8")
        try:
            return judge_outcomes(mutant.tests, self._run(mutant.tests))
        finally:
            path.write_text(source, encoding="utf-8")

    def run_untouched(self, mutants: Sequence[Mutant]) -> Iterator[str]:
        """Run the tests of these mutants in the untouched copy; yields each file of tests.

        Nothing is changed yet, so Python's compiled files can be used later: a mutated file is
        newer than its compiled one.
        """
        unknown = {
            test
            for mutant in mutants
            if self._key(asdict(mutant)) not in self._known
            for test in mutant.tests
            if self._key(test) not in self._known
        }
        named = sorted((self._files[_name(test)][0], test) for test in unknown)
        for file, tests_of in groupby(named, itemgetter(0)):
            tests = [test for _, test in tests_of]
            outcomes = self._run(tests, keep_compiled=True)
            if any(text.startswith(_ENDED) for text in outcomes.values()):  # one does not exist
                alone = [self._run([test], keep_compiled=True) for test in tests]
                outcomes = {case: text for each in alone for case, text in each.items()}
            for test in tests:
                mine = [text for case, text in outcomes.items() if test in (case, _name(case))]
                why = next(filter(None, mine), "" if mine else "it did not run")
                self._remember(self._key(test), " ".join(why.split())[:500])
            yield file

    def _run(self, tests: Sequence[str], *, keep_compiled: bool = False) -> dict[str, str]:
        """Test with its parameters -> '' or the message that it failed with."""
        report = self._copy / "junit.xml"
        report.unlink(missing_ok=True)
        nodes = [f"{self._files[_name(test)][0]}::{test}" for test in tests]
        options = ("-p", "no:cacheprovider", f"--junitxml={report}")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *nodes],
            cwd=self._copy,
            env={
                "DEADHEAT_TEST_STATE": str(self._root / "state" / "mutants" / "test-state"),
                **os.environ,
                "PYTHONPATH": str(self._copy),
                # Python knows compiled files by second and size, which two mutants may share.
                "PYTHONDONTWRITEBYTECODE": "" if keep_compiled else "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists() or done.returncode not in (0, 1):
            details = f"{_ENDED} {done.returncode}: {done.stderr[-300:]} {done.stdout[-200:]}"
            return dict.fromkeys(tests, details)
        return dict(_read_report(report))

    def _key(self, item: object) -> str:
        return hashlib.sha256(json.dumps([self._tree, item]).encode()).hexdigest()

    def _remember(self, key: str, answer: object) -> None:
        self._known[key] = answer
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        part = self._kept.with_suffix(".part")
        part.write_text(json.dumps(self._known))
        part.replace(self._kept)


def judge_outcomes(tests: Sequence[str], outcomes: dict[str, str]) -> MutantResult:
    """Every test must have a case that failed in an assertion."""
    survived, broken = [], []
    for test in tests:
        mine = [text for case, text in outcomes.items() if test in (case, _name(case)) and text]
        if not mine:
            survived.append(test)
        elif not any(_ASSERTED.match(text) for text in mine):
            broken.append(f"{test}: {mine[0].splitlines()[0][:200]}")
    if survived:
        return MutantResult(what="SURVIVED", details=", ".join(survived))
    return (
        MutantResult(what="BROKEN", details="; ".join(broken))
        if broken
        else MutantResult(what="killed")
    )


def _name(test: str) -> str:
    return test.partition("[")[0]


def _read_report(path: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        failure, error = case.find("failure"), case.find("error")
        if error is not None:
            yield case.attrib["name"], f"error: {error.attrib.get('message', '')}"
        elif case.find("skipped") is not None:
            continue
        else:
            yield case.attrib["name"], "" if failure is None else failure.attrib["message"]


def _hash_tree(root: Path) -> str:
    """Of everything that a test may read, except the table of mutants."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        part = path.relative_to(root).parts[0]
        if part.startswith(".") or part == "state" or path.name == "mutants.toml":
            continue
        if path.suffix in _SOURCES and path.is_file():
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Judge every selected mutant, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--row", type=int, action="append", help="of the table of pitfalls")
    parser.add_argument("--only", default="", help="mutants whose error holds this text")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    options = parser.parse_args(arguments)
    mutants = [
        each
        for each in load_mutants(root)
        if options.only in each.error and (not options.row or set(options.row) & set(each.rows))
    ]
    kept = root / "state" / "mutants" / "findings.json"
    if options.fresh:
        kept.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as copy:
        findings = _judge_all(Runner(root, Path(copy), kept), mutants)
    _print(mutants, findings)
    return int(not mutants or any(each.what != "killed" for each in findings))


def _judge_all(runner: Runner, mutants: Sequence[Mutant]) -> list[MutantResult]:
    now = TextColumn("{task.fields[now]}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), now)
    findings = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None, now="run the tests without any mutant")
        for file in runner.run_untouched(mutants):
            progress.update(task, now=f"without any mutant: {file}")
        progress.reset(task, total=len(mutants))
        for mutant in mutants:
            progress.update(task, now=mutant.error)
            findings.append(runner.judge(mutant))
            line = f"{findings[-1].what}: {mutant.error} {findings[-1].details}"
            progress.console.print(line, markup=False, soft_wrap=True)
            progress.advance(task)
    return findings


def _print(mutants: Sequence[Mutant], findings: Sequence[MutantResult]) -> None:
    table = Table("row", "error let through", "tests", "found")
    ordered = sorted(zip(mutants, findings, strict=True), key=lambda each: each[0].rows or (99,))
    for mutant, finding in ordered:
        rows = ", ".join(map(str, mutant.rows)) or "-"
        table.add_row(rows, mutant.error, escape("\n".join(mutant.tests)), finding.what)
    console = Console(width=160)
    console.print(table)
    killed = sum(finding.what == "killed" for finding in findings)
    rows = {row for mutant in mutants for row in mutant.rows}
    console.print(f"{killed} of {len(findings)} mutants killed, of {len(rows)} rows")


if __name__ == "__main__":
    sys.exit(main())
