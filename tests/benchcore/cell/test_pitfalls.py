"""The table of pitfalls is complete, and every test it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = re.findall(
    r"^\| (\d+) \| (.+?) \| (.+?) \| ?(.*?) ?\|$",
    (ROOT / "benchcore" / "cell" / "pitfalls.md").read_text(),
    re.MULTILINE,
)


def test_the_table_has_every_row_once_and_in_order() -> None:
    assert [int(number) for number, *_ in TABLE] == list(range(1, 63))


def test_every_guarded_row_names_tests_that_exist() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    for number, error, guard, tests in TABLE:
        named = re.findall(r"`(test_\w+)`", tests)
        assert bool(named) == (guard != "open"), f"row {number}, {error}"
        assert set(named) <= defined, f"row {number}, {error}"
