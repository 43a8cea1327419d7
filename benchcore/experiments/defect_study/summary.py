"""Summarise a defect study: how much each switch changes the ratio, and which guard catches it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchcore.cell.measure.degraded import find_degraded, leave_out_degraded
from benchcore.experiments.defect_study.switches import (
    CLOCKED_STEPS,
    EPOCH_IMAGES,
    Correction,
    Reading,
    Settings,
    Switch,
    can_run,
    fill_in_settings,
    list_corrections,
    list_switches,
    name_side,
)
from benchcore.protocol import COMPARED, DEFECT_TRACK, ComparedFramework
from benchcore.verdict.duel.physics import LIMIT_SHARE
from benchcore.verdict.starts import judge_starts, log_ratios_by_start

Document = Mapping[str, Any]
Row = Mapping[str, Any]
Logs = Mapping[int, float]
"""Log ratios by start."""

DELIBERATE = "deliberate"
"""The suite that keeps every study's ratio from counting; it catches no switch."""
_GUARDS = {
    "equivalence": "numerics",
    "pairs": "numerics",
    "parity": "parity of the settings read back",
    "profiles": "profile of a step",
    "physics": "invalid physics",
    "starts": "state of the blocks",
    "proofs": "proof against float64",
    "contenders": "status",
}


def summarise_study(
    documents: Sequence[Document],
    ratios: Iterable[Row],
    failed_checks: Iterable[Row],
    contenders: Iterable[Row],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """The fair ratio, every switch with its change and the guards that catch it, and the
    corrections from all errors to none. With `names`, only these switches and no corrections.

    `documents` are the campaign's results, the rows those of `ratio_frame`, `failed_check_frame`
    and `contender_frame`. A ratio is JAX over PyTorch: above 1 JAX is faster. A switch that could
    not be measured here has a reason and no number. Disturbed blocks are left out; if none of the
    fair pair's remain, `disturbed` has the reason, and all blocks are used.
    """
    of_study = [each for each in documents if each["duel"]["track"] == DEFECT_TRACK]
    alone = [each for each in of_study if len(each["contenders"]) == 1]
    rows = [list(each) for each in (ratios, failed_checks, contenders)]
    duels = [_Duel(each, alone, *rows) for each in of_study if len(each["contenders"]) > 1]
    first = duels[0]
    case, allocation = first.document["duel"], first.document["allocation"]
    switches = list_switches(case["workload"], case["use_case"], names)
    planned = [
        each
        for each in switches
        if not can_run(each, first.device) or _find_duel(duels, each.settings)
    ]
    whole = not names and len(planned) == len(switches)
    corrections = (
        list_corrections([each for each in planned if can_run(each, first.device)]) if whole else []
    )
    return {
        "workload": case["workload"],
        "case": case["case"],
        "use_case": case["use_case"],
        "batch": case["batch"],
        "precision": case["precision"],
        "device": allocation["device"]["model"],
        "device_kind": allocation["device"]["kind"],
        "node": allocation["node"],
        "started_at": allocation["started_at"],
        "campaign": first.document["campaign"],
        "starts": case["starts"],
        "disturbed": next((each.disturbed for each in duels if each.disturbed), None),
        "versions": {side: first.fair_side(side)["version"] for side in COMPARED},
        "fair": _describe_ratio(first.fair) | {"caught": first.catch({})},
        "switches": [
            (_find_duel(duels, each.settings) or first).describe_switch(each) for each in planned
        ],
        "corrections": [
            duel.describe_correction(each)
            for each in corrections
            if (duel := _find_duel(duels, each.settings))
        ],
    }


def _find_duel(duels: Sequence[_Duel], settings: Settings) -> _Duel | None:
    """The first duel of the pair with these settings."""
    return next((each for each in duels if each.has(settings)), None)


class _Duel:
    """The rows of one duel of a study, and the roles in it."""

    def __init__(
        self,
        document: Document,
        alone: Sequence[Document],
        ratios: Iterable[Row],
        failed_checks: Iterable[Row],
        contenders: Iterable[Row],
    ) -> None:
        """`alone` are the study's documents of a single contender."""
        self.document, self._alone = document, alone
        duel_run = document["duel_run"]
        self.device = "cuda" if self.document["allocation"]["device"]["kind"] == "gpu" else "cpu"
        self._by_arm = {each["arm"]: each for each in self.document["contenders"]}
        self._ratios = {
            (each["a"], each["b"]): each for each in ratios if each["duel_run"] == duel_run
        }
        self._failed_checks = [
            each
            for each in failed_checks
            if each["duel_run"] == duel_run and each["severity"] == "critical"
        ]
        rows = [each for each in contenders if each["duel_run"] == duel_run]
        self._rows = {each["name"]: each for each in rows}
        self.disturbed: str | None = None
        self.fair = self.pair({})
        """Log ratios of the fair pair."""
        if not self.fair:
            self.disturbed = self._why_disturbed()
            self.fair = self.pair({})

    def _why_disturbed(self) -> str | None:
        """The first reason why all blocks of the fair pair were disturbed; None = there are
        none."""
        return next(
            (
                reason
                for side in COMPARED
                for start in self.fair_side(side)["starts"]
                for reason in find_degraded(start["blocks"]).values()
            ),
            None,
        )

    def _rounds(self, contender: Document) -> dict[int, dict[int, float]]:
        """Nanoseconds per step by start and round, of the blocks that may be used."""
        return {
            start["index"]: {
                each["round"]: each["elapsed_ns"] / each["steps"]
                for each in (
                    start["blocks"] if self.disturbed else leave_out_degraded(start["blocks"])
                )
            }
            for start in contender["starts"]
        }

    def _step_ns(self, contender: Document) -> dict[int, float]:
        """The median step of each start."""
        return {
            start: statistics.median(rounds.values())
            for start, rounds in self._rounds(contender).items()
            if rounds
        }

    def _arm(self, settings: Settings, side: ComparedFramework) -> str:
        return name_side(side, fill_in_settings(settings, side, self.device))

    def _sides(self, settings: Settings) -> tuple[Document, Document]:
        """JAX's contender and torch's."""
        jax, torch = (self._by_arm[self._arm(settings, side)] for side in COMPARED)
        return jax, torch

    def fair_side(self, side: ComparedFramework) -> Document:
        """The correct contender."""
        return self._by_arm[self._arm({}, side)]

    def has(self, settings: Settings) -> bool:
        """Whether both sides with these settings are in it."""
        return all(self._arm(settings, side) in self._by_arm for side in COMPARED)

    def pair(self, settings: Settings) -> Logs:
        """Log ratios, JAX over torch, of the starts that both ran."""
        jax, torch = map(self._rounds, self._sides(settings))
        return log_ratios_by_start(jax, torch)

    def catch(self, settings: Settings) -> list[dict[str, str]]:
        """The guards that object to a pair, each with its first reason. Objections to the fair pair
        itself are left out."""
        pair = {each["name"] for each in self._sides(settings)}
        fair = {self.fair_side(side)["name"] for side in COMPARED}
        known = {self._key(each) for each in self._about(fair)} if pair != fair else set()
        found: dict[str, str] = {}
        for each in self._about(pair):
            if self._key(each) not in known:
                found.setdefault(_GUARDS.get(_suite(each), _suite(each)), each["reason"])
        row, fair_row = self._ratio(settings), self._ratio({})
        if row.get("fair") is False and "parity of the settings read back" not in found:
            usual = [tuple(each) for each in fair_row.get("differences", ())]
            differences = [each for each in row["differences"] if tuple(each) not in usual]
            changes = "; ".join(f"{key} {a} against {b}" for key, a, b in differences)
            found["never a fair pair"] = changes
        return [{"guard": guard, "reason": reason} for guard, reason in found.items()]

    def _ratio(self, settings: Settings) -> Row:
        """The judged row of a pair; empty if there is none."""
        jax, torch = self._sides(settings)
        return self._ratios.get((jax["name"], torch["name"]), {})

    def _about(self, pair: set[str]) -> list[Row]:
        return [
            each
            for each in self._failed_checks
            if _suite(each) != DELIBERATE and _named(each) <= pair and _named(each)
        ]

    def _key(self, check: Row) -> tuple[str, str]:
        return _suite(check), check["expectation"]

    def describe_switch(self, switch: Switch) -> dict[str, Any]:
        """One row of the table."""
        row = {
            "name": switch.name,
            "title": switch.title,
            "sides": list(switch.sides),
            "source": switch.source,
            "row": switch.row,
        }
        if not can_run(switch, self.device):
            return row | _without_numbers("not run here: it needs a GPU")
        if switch.readings:
            return row | self._describe_reading(switch)
        why = self._why_failed(switch.settings)
        logs = self.pair(switch.settings)
        if why and not logs:
            return row | _without_numbers(why)
        caught = self.catch(switch.settings)
        return (
            row
            | _describe_ratio(logs)
            | _describe_change(logs, self.fair)
            | {"caught": caught, "why": why}
        )

    def describe_correction(self, correction: Correction) -> dict[str, Any]:
        """One correction: the ratio after an error was removed."""
        logs, caught = self.pair(correction.settings), self.catch(correction.settings)
        return {
            "title": correction.title,
            **_describe_ratio(logs),
            **_describe_change(logs, self.fair),
        } | {
            "caught": caught,
            "why": self._why_failed(correction.settings),
        }

    def _why_failed(self, settings: Settings) -> str | None:
        failures = [each["failure"] for each in self._sides(settings) if each["failure"]]
        return f"{failures[0]['stage']}: {failures[0]['reason']}" if failures else None

    def _describe_reading(self, switch: Switch) -> dict[str, Any]:
        read: dict[str, dict[int, float]] = {}
        caught = []
        for side in COMPARED:
            reading = switch.readings.get(side)
            read[side] = self._read(side, reading)
            caught += self._check_physics(side, read[side]) if reading else []
        both = sorted(read["jax"].keys() & read["torch"].keys())
        logs = {each: math.log(read["torch"][each] / read["jax"][each]) for each in both}
        if not logs:
            return _without_numbers("no start has this reading")
        prevented = [{"guard": "prevented by the clock", "reason": switch.guard}]
        return {
            **_describe_ratio(logs),
            **_describe_change(logs, self.fair),
            "caught": caught or prevented,
            "why": None,
        }

    def _read(self, side: ComparedFramework, reading: Reading | None) -> dict[int, float]:
        """Nanoseconds per step in each start, read correctly (None) or wrongly."""
        contender = self.fair_side(side)
        if reading == "in tf32":
            contender = next((each["contenders"][0] for each in self._alone), None)
            return {} if contender is None else self._step_ns(contender)
        if reading is None:
            return self._step_ns(contender)
        steps = self._step_ns(contender)
        found = {}
        for start in contender["starts"]:
            index = start["index"]
            read = self._misread(contender["name"], start, steps.get(index), reading)
            if read is not None:
                found[index] = read
        return found

    def _misread(
        self, name: str, start: Document, step_ns: float | None, reading: Reading
    ) -> float | None:
        if reading in ("enqueued", "waited for each step"):
            key = {"enqueued": "enqueued_ns", "waited for each step": "latency_ns"}[reading]
            samples = start.get(key)
            return statistics.median(samples) if samples else None
        compile_s = self._rows[name]["cold_compile_s"]
        first_s = start["stages"]["first_run"]
        if step_ns is None or first_s is None or not math.isfinite(compile_s):
            return None
        first_ns = (compile_s + first_s) * 1e9
        if reading == "first call":
            return first_ns
        if reading == "with compilation":
            return (first_ns + (CLOCKED_STEPS - 1) * step_ns) / CLOCKED_STEPS
        steps = EPOCH_IMAGES / self.document["duel"]["batch"]
        return step_ns + compile_s * 1e9 / steps

    def _check_physics(
        self, side: ComparedFramework, read: Mapping[int, float]
    ) -> list[dict[str, str]]:
        """Whether the misread step is too short for the ceilings; empty without ceilings."""
        contender = self.fair_side(side)
        share = self._rows[contender["name"]]["limit_share"]
        correct = self._step_ns(contender)
        if not read or not correct or share is None or math.isnan(share):
            return []
        claimed = share * min(correct.values()) / min(read.values())
        if claimed <= LIMIT_SHARE:
            return []
        reason = f"a step would need {claimed:.3g} times the device's ceiling"
        return [{"guard": "invalid physics", "reason": reason}]


def _suite(check: Row) -> str:
    return str(check["suite"]).removeprefix("nightly ")


def _named(check: Row) -> set[str]:
    """The contenders of a failed check."""
    return {str(each) for each in (check["contender"], check["other"]) if isinstance(each, str)}


def _without_numbers(why: str) -> dict[str, Any]:
    keys = ("speedup", "low", "high", "moved", "moved_low", "moved_high")
    return {**dict.fromkeys(keys), "num_starts": 0, "caught": [], "why": why}


def _describe_ratio(logs: Logs) -> dict[str, Any]:
    found = judge_starts(list(logs.values()))
    named = {"speedup": found.log_ratio, "low": found.low, "high": found.high}
    return {**{key: _factor(log) for key, log in named.items()}, "num_starts": len(logs)}


def _describe_change(logs: Logs, fair: Logs) -> dict[str, Any]:
    """The distance from the fair ratio, paired by start: common effects cancel."""
    keys = ("moved", "moved_low", "moved_high")
    found = judge_starts([logs[each] - fair[each] for each in logs.keys() & fair.keys()])
    values = (found.log_ratio, found.low, found.high)
    return {key: _factor(log) for key, log in zip(keys, values, strict=True)}


def _factor(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else float(f"{math.exp(log_ratio):.5g}")
