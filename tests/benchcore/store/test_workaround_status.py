"""Whether a workaround is still needed, in words, from what became of each version."""

from __future__ import annotations

import pytest

from benchcore.store.reports.workarounds import VersionOutcome, describe_workaround_status

AVOIDED, CRASHED = ("workaround", True), ("crash", True)
CLEAN = ("ok", False)


def _status(*lives: tuple[str, tuple[str, bool]]) -> str:
    return describe_workaround_status(
        VersionOutcome(version=version, status=status, used_ladder=used_ladder)
        for version, (status, used_ladder) in lives
    )


@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        ([("0.10.1", AVOIDED)], "needed with 0.10.1"),
        (
            [("0.10.1", AVOIDED), ("0.10.2", CLEAN)],
            "needed with 0.10.1, no longer with 0.10.2",
        ),
        (
            [("0.9.2", CLEAN), ("0.10.1", AVOIDED), ("0.10.2", AVOIDED)],
            "not needed with 0.9.2, needed with 0.10.1 and 0.10.2",
        ),
        (
            [("0.10.1", AVOIDED), ("0.11.0", CRASHED), ("0.12.0", CLEAN)],
            "needed with 0.10.1, nothing helps with 0.11.0, no longer with 0.12.0",
        ),
        ([("0.10.1", AVOIDED), ("0.10.1", CLEAN)], "not needed with 0.10.1 (in 1 of 2 runs)"),
        (
            [("0.10.1", CLEAN), ("0.10.1", AVOIDED), ("0.10.1", AVOIDED)],
            "needed with 0.10.1 (in 2 of 3 runs)",
        ),
        ([("0.10.1", AVOIDED), ("0.10.2", ("oom", False))], "needed with 0.10.1"),
        ([("0.10.1", AVOIDED), ("0.10.2", ("crash", False))], "needed with 0.10.1"),
        ([("0.10.2", ("timeout", False))], "unknown"),
    ],
)
def test_need_is_reported_by_version(
    lives: list[tuple[str, tuple[str, bool]]], expected: str
) -> None:
    assert _status(*lives) == expected
