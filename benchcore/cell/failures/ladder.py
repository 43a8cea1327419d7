"""The crash ladder: repeats a crashed JAX contender's starts with one workaround after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchcore.cell import document
from benchcore.cell.failures import hlo_dump
from benchcore.cell.failures.workarounds import (
    HIGHEST,
    NO_WORKAROUND,
    WORKAROUNDS,
    Workaround,
    describe_attempt,
    highest_changes_case,
    knows_flag,
    may_retry,
    usable_workarounds,
    xla_flags_of,
)
from benchcore.cell.start import StartRunner, report_progress
from benchcore.protocol import ContenderOrder


class CrashLadder:
    """The attempts of one duel. `precision` is that of its case."""

    def __init__(self, starts: StartRunner, precision: str) -> None:
        self._starts = starts
        self._precision = precision
        self._crashed: dict[str, dict[str, Any]] = {}
        self._untried: dict[str, Iterator[Workaround]] = {}

    def retry_crashed(self, index: int) -> None:
        """Repeat contenders that crashed in start `index`, with one workaround after another."""
        for order in self._starts.order.contenders:
            contender = self._starts.contenders[order.name]
            status, failure = contender["status"], contender["failure"]
            if failure and may_retry(order.framework, status, failure["cause"]):
                self._retry(order, index)

    def _retry(self, order: ContenderOrder, index: int) -> None:
        """Repeat every start so far, this contender alone, until a workaround holds through all.

        Times without that workaround are dropped: the two are never pooled. If no workaround avoids
        the crash, the times before it remain.
        """
        starts, name = self._starts, order.name
        clean = self._crashed.setdefault(name, starts.contenders[name])
        record = clean["ladder"] = clean["ladder"] or self._new_record(order, clean)
        if name in starts.launcher.workarounds:  # it stopped helping
            used = starts.launcher.workarounds[name]
            record["attempts"][-1] = self._describe_attempt(name, used)
        for workaround in self._list_untried(order):
            if workaround == WORKAROUNDS[-1]:
                record["highest"] = self._try_highest(order)
            report_progress(
                event="workaround", contender=name, start=index, workaround=workaround.number
            )
            starts.launcher.workarounds[name] = workaround
            starts.drop_measurements(order)
            for again in range(index + 1):
                starts.run(again, (order,))
            record["attempts"].append(self._describe_attempt(name, workaround))
            if starts.contenders[name]["status"] == "ok":
                return
        starts.launcher.workarounds.pop(name, None)
        starts.evidence.pop(name, None)
        starts.contenders[name] = clean

    def _new_record(self, order: ContenderOrder, crashed: dict[str, Any]) -> dict[str, Any]:
        """A ladder without attempts. Saves the HLO of the crash first."""
        starts, hlo = self._starts, None
        if hlo_dump.may_have_compiled(crashed["failure"]["stage"]):
            hlo = hlo_dump.save_hlo(
                lambda workaround: starts.launcher.run_briefly(order, workaround),
                starts.scratch / "hlo" / order.name,
                starts.order.device,
                xla_flags_of(order.settings, starts.order.device),
            )
        return {"helped": None, "attempts": [], "highest": None, "hlo": hlo}

    def _describe_attempt(self, name: str, workaround: Workaround) -> dict[str, Any]:
        contender = self._starts.contenders[name]
        return describe_attempt(contender["status"], contender["failure"], workaround)

    def _try_highest(self, order: ContenderOrder) -> dict[str, Any] | None:
        """Whether it runs with JAX's precision `highest`: advice only, its numbers are dropped."""
        if not highest_changes_case(self._precision):
            return None
        failed = self._starts.launcher.run_briefly(order, NO_WORKAROUND, HIGHEST)
        if failed is None:
            return describe_attempt("ok", None)
        return describe_attempt(failed.status, document.describe_failure(failed, 0, None))

    def _list_untried(self, order: ContenderOrder) -> Iterator[Workaround]:
        """The workarounds not tried yet: a later crash continues where the last one stopped."""
        environ = self._starts.launcher.environ(order)
        usable = usable_workarounds(
            self._starts.order.device,
            lambda flag: knows_flag(order.environment.python, environ, flag),
        )
        return self._untried.setdefault(order.name, usable)

    def mark_workarounds(self) -> None:
        """Set the status `workaround`, which ratios leave out, for contenders that needed one."""
        for name, workaround in self._starts.launcher.workarounds.items():
            contender, clean = self._starts.contenders[name], self._crashed[name]
            held = contender["status"] == "ok"
            contender["ladder"] = {**clean["ladder"], "helped": workaround.number if held else None}
            if held:
                for each in (contender, *contender["starts"]):
                    each["status"] = "workaround"
                contender["failure"] = {
                    **clean["failure"],
                    "reason": f"{workaround.describe()} helped after: "
                    f"{clean['failure']['reason']}; {len(clean['starts'])} starts without it "
                    "were dropped",
                }
