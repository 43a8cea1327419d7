from __future__ import annotations

from typing import Any

import pytest

from benchcore.verdict.duel.programs import compare_programs

HASH, OTHER = "d" * 64, "e" * 64


def _program(**changes: Any) -> dict[str, Any]:
    return {"hash": HASH, "counts": {"dot": 4, "fusion": 12}, "bytes": 4096, **changes}


def test_the_same_hash_is_the_same_program() -> None:
    change = compare_programs(_program(), _program())
    assert (change.same, change.summary) == (True, "same program (dddddddddddd)")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counts": {"dot": 3, "fusion": 12}}, "dot 4 -> 3 ("),
        ({"counts": {"dot": 4, "fusion": 12, "while": 1}}, "while 0 -> 1 ("),
        (
            {"counts": {"fusion": 13}, "bytes": None},
            "fusion 12 -> 13, bytes 4096 -> unknown",
        ),
        ({}, "the same counts in other code (dddddddddddd -> eeeeeeeeeeee)"),
    ],
)
def test_another_program_lists_the_counts_that_changed(changes: dict[str, Any], words: str) -> None:
    change = compare_programs(_program(), _program(hash=OTHER, **changes))
    assert change.same is False
    assert words in change.summary


def test_without_a_hash_programs_are_never_called_the_same() -> None:
    change = compare_programs(_program(hash=None), _program())
    assert (change.same, change.summary) == (None, "without a hash to compare; counts agree")
    assert compare_programs(None, _program()).same is None


def test_a_long_list_is_cut_with_a_note() -> None:
    many = {f"kind {number:02d}": number for number in range(1, 12)}
    change = compare_programs(_program(counts={}), _program(hash=OTHER, counts=many))
    assert "kind 08 0 -> 8, and 3 more (" in change.summary
