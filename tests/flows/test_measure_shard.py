"""A shard's flow: which duels it begins, which it gives up, and which it hands back."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError
from flows import measure_shard


class _Slots:
    """Duels a to d; `ends` says how each ends: measured by default, and 'late' is one that the
    job's end stops. The one that was begun last is over first."""

    def __init__(self, num: int, ends: dict[str, str]) -> None:
        self.num, self._ends = num, ends
        self.begun: list[str] = []
        self._running: list[str] = []

    @property
    def num_busy(self) -> int:
        return len(self._running)

    def begin(self, _: str, duel_run: str, **__: Any) -> None:
        assert self.num_busy < self.num
        self.begun.append(duel_run)
        self._running.append(duel_run)

    def wait(self) -> Any:
        duel_run = self._running.pop()
        how = self._ends.get(duel_run)
        return duel_run, Failed(message=how) if how else Completed()


class _Measuring:
    """The other steps of a shard. From `no_time_from` on there is no time for another duel."""

    def __init__(self, no_time_from: str) -> None:
        self._no_time_from = no_time_from
        self.report: tuple[list[str], list[str]] | None = None

    def open_shard(self, campaign: str, *_: str) -> Any:
        return SimpleNamespace(campaign=campaign, devices=1)

    def prove_shard(self, *_: Any, **__: Any) -> None: ...
    def find_job(self, _: Any) -> None: ...
    def shard_log(self, *_: Any) -> str:
        return "log"

    def list_shard(self, *_: Any) -> dict[str, str]:
        return {name: f"duel {name}" for name in "abcd"}

    def has_time(self, _: Any, duel_run: str, __: None) -> bool:
        return duel_run < self._no_time_from

    def ran_out_of_time(self, ended: Any) -> bool:
        return ended.message == "late"

    def report_shard(self, _: Any, __: str, lost: dict[str, str], rest: list[str]) -> None:
        self.report = (list(lost), rest)


@pytest.mark.parametrize(
    ("num", "ends", "no_time_from", "outcome"),
    [
        (1, {}, "z", ("abcd", "", "")),
        (1, {"b": "conductor"}, "z", ("abcd", "b", "")),
        (1, {}, "c", ("ab", "", "cd")),
        (1, {}, "a", ("a", "", "bcd")),  # the first is begun all the same
        (1, {"b": "late"}, "z", ("ab", "", "bcd")),  # in a shard of its own it may do
        (1, {"a": "late"}, "b", ("a", "a", "bcd")),  # that was a shard of its own
        (1, {"a": "conductor", "c": "late"}, "z", ("abc", "a", "cd")),
        (2, {}, "z", ("abcd", "", "")),
        (2, {}, "a", ("ab", "", "cd")),
        (2, {"c": "late"}, "d", ("abc", "", "cd")),
        (2, {"b": "late", "a": "late"}, "c", ("ab", "ba", "cd")),
        (2, {"b": "conductor", "c": "late"}, "z", ("abc", "b", "cd")),
        (5, {"d": "late"}, "a", ("abcd", "d", "")),
    ],
)
def test_unmeasured_duels_are_given_up_or_returned(
    monkeypatch: pytest.MonkeyPatch,
    num: int,
    ends: dict[str, str],
    no_time_from: str,
    outcome: tuple[str, str, str],
) -> None:
    begun, lost, rest = outcome
    slots, measuring = _Slots(num, ends), _Measuring(no_time_from)
    monkeypatch.setattr(measure_shard, "measurement", measuring)
    monkeypatch.setattr("tasks.slots.measurement", measuring)
    monkeypatch.setattr("tasks.slots.open_slots", lambda job, devices: nullcontext(slots))
    if lost:
        with pytest.raises(CampaignIncompleteError, match=ends[lost[0]]):
            measure_shard.measure_shard.fn("night", "0" * 16, "token")
    else:
        result = measure_shard.measure_shard.fn("night", "0" * 16, "token")
        back = f"{len(rest)} returned" if rest else f"{len(begun)} duels measured"
        assert back in str(result.message)
    assert "".join(slots.begun) == begun
    assert measuring.report == (list(lost), list(rest))
