"""A shard's flow: which duels it begins, which it gives up, and which it hands back."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError
from flows import measure_shard


class _Measuring:
    """The steps of a shard of duels a to d; `ends` says how each ends: measured unless told, and
    'late' is one that the job's end stops. From `no_time_from` on there is no time for another."""

    def __init__(self, ends: dict[str, str], no_time_from: str = "z") -> None:
        self._ends, self._no_time_from = ends, no_time_from
        self.begun: list[str] = []
        self.report: tuple[list[str], list[str]] | None = None

    def open_shard(self, *_: str) -> None: ...
    def prove_shard(self, *_: Any, **__: Any) -> None: ...
    def find_job(self, _: None) -> None: ...
    def shard_log(self, *_: Any) -> str:
        return "log"

    def list_shard(self, *_: Any) -> dict[str, str]:
        return {name: f"duel {name}" for name in "abcd"}

    def has_time(self, _: None, duel_run: str, __: None) -> bool:
        return duel_run < self._no_time_from

    def measure_duel(self, _: str, duel_run: str, **__: Any) -> Any:
        self.begun.append(duel_run)
        how = self._ends.get(duel_run)
        return Failed(message=how) if how else Completed()

    def ran_out_of_time(self, ended: Any) -> bool:
        return ended.message == "late"

    def report_shard(self, _: None, __: str, lost: dict[str, str], rest: list[str]) -> None:
        self.report = (list(lost), rest)


@pytest.mark.parametrize(
    ("ends", "no_time_from", "begun", "lost", "rest"),
    [
        ({}, "z", "abcd", "", ""),
        ({"b": "conductor"}, "z", "abcd", "b", ""),
        ({}, "c", "ab", "", "cd"),
        ({}, "a", "a", "", "bcd"),  # the first is begun all the same
        ({"b": "late"}, "z", "ab", "", "bcd"),  # in a shard of its own it may do
        ({"a": "late"}, "b", "a", "a", "bcd"),  # that was a shard of its own
        ({"a": "conductor", "c": "late"}, "z", "abc", "a", "cd"),
    ],
)
def test_what_is_not_measured_is_either_given_up_or_handed_back(
    monkeypatch: pytest.MonkeyPatch,
    ends: dict[str, str],
    no_time_from: str,
    begun: str,
    lost: str,
    rest: str,
) -> None:
    measuring = _Measuring(ends, no_time_from)
    monkeypatch.setattr(measure_shard, "measuring", measuring)
    if lost:
        with pytest.raises(CampaignIncompleteError, match=ends[lost]):
            measure_shard.measure_shard.fn("night", "0" * 16, "token")
    else:
        told = measure_shard.measure_shard.fn("night", "0" * 16, "token")
        back = f"{len(rest)} handed back" if rest else f"{len(begun)} duels measured"
        assert back in str(told.message)
    assert "".join(measuring.begun) == begun
    assert measuring.report == (list(lost), list(rest))
