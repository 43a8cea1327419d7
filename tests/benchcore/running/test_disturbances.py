"""Before the first duel a busy machine is waited for, no longer than allowed, and named."""

from __future__ import annotations

from benchcore.running.disturbances import read_foreign_share, wait_for_quiet


def _wait(shares: list[float | None], limit_s: float) -> tuple[bool, list[str], list[float]]:
    reports, pauses = list[str](), list[float]()
    shown = iter(shares)
    quiet = wait_for_quiet(limit_s, reports.append, read=lambda: next(shown), pause=pauses.append)
    return quiet, reports, pauses


def test_a_quiet_machine_is_not_mentioned() -> None:
    assert _wait([0.1], 600) == (True, [], [])
    assert _wait([None], 600) == (True, [], [])


def test_a_busy_machine_is_waited_for() -> None:
    quiet, reports, pauses = _wait([0.6, 0.38, 0.05], 600)
    assert quiet and pauses == [10, 10]
    assert reports[0].startswith("the machine is busy: others use 60% of its CPUs (load ")
    assert reports[1].endswith("; waiting for at most 590 s more")


def test_it_waits_no_longer_than_allowed() -> None:
    quiet, reports, pauses = _wait([0.6, 0.6, 0.6], 15)
    assert not quiet and pauses == [10, 5]
    assert "after 15 s" in reports[-1]
    assert not _wait([0.6], 0)[0]


def test_the_share_of_this_machine_is_a_share() -> None:
    share = read_foreign_share()
    assert share is None or 0.0 <= share <= 1.0
