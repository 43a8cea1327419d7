"""A shard's flow: which duels it begins, which it gives up, and which it hands back."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect import flow
from prefect.states import Completed, Failed

from benchcore.errors import CampaignIncompleteError
from benchcore.running.duel_process import OutOfTimeError
from benchcore.running.shards import ShardReport
from flows import measure_shard
from tasks import measurement


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
    """The other steps of a shard. From `no_time_from` on there is no time for another duel. Proofs
    took the time of those that are `returnable`."""

    def __init__(self, no_time_from: str, returnable: str = "") -> None:
        self._no_time_from, self._returnable = no_time_from, returnable
        self.report: tuple[list[str], list[str]] | None = None
        self.busy: list[str] = []

    def open_shard(self, campaign: str, *_: str) -> Any:
        return SimpleNamespace(campaign=campaign, devices=1)

    def prove_shard(self, *_: Any, **__: Any) -> None: ...
    def list_proofs(self, _: None) -> list[str]:
        return ["p"]

    def list_returnable(self, _: Any, proofs: list[str], __: str) -> set[str]:
        assert proofs == ["p"]
        return {*self._returnable}

    def find_job(self, _: Any) -> None: ...
    def shard_log(self, *_: Any) -> str:
        return "log"

    def list_shard(self, *_: Any) -> dict[str, str]:
        return {name: f"duel {name}" for name in "abcd"}

    def has_time(self, _: Any, duel_run: str, __: None) -> bool:
        return duel_run < self._no_time_from

    def ran_out_of_time(self, ended: Any) -> bool:
        return ended.message in ("late", "busy")

    def found_busy(self, ended: Any) -> bool:
        return ended.message == "busy"

    def report_shard(self, _: Any, __: str, report: ShardReport) -> None:
        assert report.proofs == ["p"]
        self.report = ([*report.lost], [*report.rest])
        self.busy = [*report.busy]


@pytest.mark.parametrize(
    ("num", "ends", "times", "outcome"),
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
        (1, {}, "a abcd", ("", "", "abcd")),  # proofs took the time
        (1, {"a": "late"}, "z abcd", ("a", "", "abcd")),
        (1, {"a": "conductor"}, "z abcd", ("abcd", "a", "")),
        (2, {"b": "late"}, "a a", ("", "", "abcd")),
        (2, {"b": "late"}, "a b", ("a", "", "bcd")),
        (1, {"a": "busy"}, "b", ("a", "a", "bcd")),
        (1, {"b": "busy"}, "z", ("ab", "", "bcd")),
        (1, {"a": "late"}, "b bcd", ("a", "a", "bcd")),  # they took an earlier job's time
    ],
)
def test_unmeasured_duels_are_given_up_or_returned(
    monkeypatch: pytest.MonkeyPatch,
    num: int,
    ends: dict[str, str],
    times: str,
    outcome: tuple[str, str, str],
) -> None:
    begun, lost, rest = outcome
    slots, measuring = _Slots(num, ends), _Measuring(*times.split())
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
    assert measuring.busy == [each for each in lost if ends[each] == "busy"]


@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize("failures", [[], ["another job is still proving mlp"]])
def test_completed_proofs_are_known_although_another_failed(
    monkeypatch: pytest.MonkeyPatch, failures: list[str], tmp_path: Path
) -> None:
    shard: Any = SimpleNamespace(campaign="night", duel_runs=("a",))
    monkeypatch.setattr(measurement, "load_campaign", lambda *_: None)
    monkeypatch.setattr(measurement.equivalence, "prove_duels", lambda *_: (["p"], failures))

    @flow(name="proves")
    def prove() -> list[str]:
        ended = measurement.prove_shard(shard, root=str(tmp_path), job=None, return_state=True)
        assert ended.is_completed() is not bool(failures)
        return measurement.list_proofs(ended)

    assert prove() == ["p"]


def test_the_end_of_a_task_is_read_also_where_a_loop_runs() -> None:
    """As in a notebook, where Prefect's function of the same name is a coroutine."""

    async def read() -> list[bool]:
        ended = Failed(data=OutOfTimeError("the job ends"))
        return [measurement.found_busy(ended), measurement.ran_out_of_time(ended)]

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests has a loop in this thread
        assert pool.submit(asyncio.run, read()).result() == [False, True]


def test_a_proof_task_that_breaks_completed_nothing() -> None:
    assert measurement.list_proofs(Failed(data=OSError("no space left"))) == []
