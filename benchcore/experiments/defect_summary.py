"""What a defect study found: how far each switch moves the ratio, and what catches it. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchcore.cell.measure.degraded import find_degraded, leave_out_degraded
from benchcore.experiments.defect_switches import (
    CLOCKED_STEPS,
    EPOCH_IMAGES,
    SIDES,
    Correction,
    Framework,
    Reading,
    Switch,
    is_played,
    list_corrections,
    list_switches,
    name_side,
    settle,
)
from benchcore.protocol import DEFECT_TRACK
from benchcore.verdict.duel.physics import LIMIT_SHARE
from benchcore.verdict.starts import judge_starts, log_ratios_by_start

Document = Mapping[str, Any]
Row = Mapping[str, Any]
Logs = Mapping[int, float]
"""Log ratios by start."""

DELIBERATE = "deliberate"
"""The suite whose marks keep a study out of every ratio: they catch nothing, they tell."""
_GUARDS = {
    "equivalence": "numerics",
    "pairs": "numerics",
    "parity": "parity of what was read back",
    "profiles": "profile of a step",
    "physics": "invalid physics",
    "starts": "what happened in the blocks",
    "proofs": "proof against float64",
    "contenders": "status",
}


def summarise_study(
    documents: Sequence[Document],
    ratios: Iterable[Row],
    marks: Iterable[Row],
    contenders: Iterable[Row],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """The fair number, every switch with what it moves and who catches it, and the seeds' way.
    With `names` these switches alone, and not the way.

    `documents` are the campaign's results, the rows those of `ratio_frame`, `failed_check_frame`
    and `contender_frame`. A ratio is JAX over PyTorch: above 1 JAX is faster. What could not be
    measured here has a reason and no number. Blocks that were disturbed are left out, as anywhere;
    where that leaves nothing of the fair pair, `disturbed` says so, and all blocks are used.
    """
    study = _Study(documents, ratios, marks, contenders)
    case, allocation = study.document["duel"], study.document["allocation"]
    switches = list_switches(case["workload"], case["use_case"], names)
    fair = study.pair({})
    met = [each for each in switches if study.planned(each)]
    whole = not names and len(met) == len(switches)
    corrections = (
        list_corrections([each for each in met if is_played(each, study.device)]) if whole else []
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
        "campaign": study.document["campaign"],
        "starts": case["starts"],
        "disturbed": study.disturbed,
        "versions": {side: study.fair_side(side)["version"] for side in SIDES},
        "fair": _tell_ratio(fair) | {"caught": study.catch({})},
        "switches": [study.tell_switch(each, fair) for each in met],
        "corrections": [study.describe_correction(each, fair) for each in corrections],
    }


class _Study:
    """The rows of one study, and who is who in its duel."""

    def __init__(
        self,
        documents: Sequence[Document],
        ratios: Iterable[Row],
        marks: Iterable[Row],
        contenders: Iterable[Row],
    ) -> None:
        of_study = [each for each in documents if each["duel"]["track"] == DEFECT_TRACK]
        (self.document,) = [each for each in of_study if len(each["contenders"]) > 1]
        self._alone = [each for each in of_study if len(each["contenders"]) == 1]
        duel_run = self.document["duel_run"]
        self.device = "cuda" if self.document["allocation"]["device"]["kind"] == "gpu" else "cpu"
        self._by_arm = {each["arm"]: each for each in self.document["contenders"]}
        self._ratios = {
            (each["a"], each["b"]): each for each in ratios if each["duel_run"] == duel_run
        }
        self._marks = [each for each in marks if each["duel_run"] == duel_run]
        rows = [each for each in contenders if each["duel_run"] == duel_run]
        self._rows = {each["name"]: each for each in rows}
        self.disturbed: str | None = None
        if not self.pair({}):
            self.disturbed = self._why_disturbed()

    def _why_disturbed(self) -> str | None:
        """Why nothing of the fair pair was undisturbed: the first reason; None = nobody ran."""
        return next(
            (
                reason
                for side in SIDES
                for start in self.fair_side(side)["starts"]
                for reason in find_degraded(start["blocks"]).values()
            ),
            None,
        )

    def _rounds(self, contender: Document) -> dict[int, dict[int, float]]:
        """Nanoseconds of a step by start and round, of the blocks that may be used."""
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

    def _arm(self, settings: Mapping[Framework, Mapping[str, str]], side: Framework) -> str:
        return name_side(side, settle(settings, side, self.device))

    def _sides(self, settings: Mapping[Framework, Mapping[str, str]]) -> tuple[Document, Document]:
        """JAX's contender and torch's."""
        jax, torch = (self._by_arm[self._arm(settings, side)] for side in SIDES)
        return jax, torch

    def fair_side(self, side: Framework) -> Document:
        """The contender that is right."""
        return self._by_arm[self._arm({}, side)]

    def planned(self, switch: Switch) -> bool:
        """Whether its sides are in the plan; what a device can't play is told all the same."""
        if not is_played(switch, self.device):
            return True
        return all(self._arm(switch.settings, side) in self._by_arm for side in SIDES)

    def pair(self, settings: Mapping[Framework, Mapping[str, str]]) -> Logs:
        """Log ratios, JAX over torch, of the starts that both played."""
        jax, torch = map(self._rounds, self._sides(settings))
        found = {
            start: log_ratios_by_start({start: jax[start]}, {start: torch[start]})
            for start in sorted(jax.keys() & torch.keys())
        }
        return {start: logs[0] for start, logs in found.items() if logs}

    def catch(self, settings: Mapping[Framework, Mapping[str, str]]) -> list[dict[str, str]]:
        """The guards that spoke up about a pair, the first word of each; those that speak of the
        fair pair, too, catch no switch."""
        pair = {each["name"] for each in self._sides(settings)}
        fair = {self.fair_side(side)["name"] for side in SIDES}
        known = {self._key(each) for each in self._about(fair)} if pair != fair else set()
        found: dict[str, str] = {}
        for each in self._about(pair):
            if self._key(each) not in known:
                found.setdefault(_GUARDS.get(_suite(each), _suite(each)), each["reason"])
        row, fair_row = self._ratio(settings), self._ratio({})
        if row.get("fair") is False and "parity of what was read back" not in found:
            usual = [tuple(each) for each in fair_row.get("differences", ())]
            differences = [each for each in row["differences"] if tuple(each) not in usual]
            told = "; ".join(f"{key} {a} against {b}" for key, a, b in differences)
            found["never the fair pair"] = told
        return [{"guard": guard, "reason": reason} for guard, reason in found.items()]

    def _ratio(self, settings: Mapping[Framework, Mapping[str, str]]) -> Row:
        """The judged row of a pair; empty where there is none."""
        jax, torch = self._sides(settings)
        return self._ratios.get((jax["name"], torch["name"]), {})

    def _about(self, pair: set[str]) -> list[Row]:
        return [
            each
            for each in self._marks
            if _suite(each) != DELIBERATE and _named(each) <= pair and _named(each)
        ]

    def _key(self, mark: Row) -> tuple[str, str]:
        return _suite(mark), mark["expectation"]

    def tell_switch(self, switch: Switch, fair: Logs) -> dict[str, Any]:
        """One row of the table."""
        told = {
            "name": switch.name,
            "title": switch.title,
            "sides": list(switch.sides),
            "source": switch.source,
            "row": switch.row,
        }
        if not is_played(switch, self.device):
            return told | _lacking("not run here: it takes a GPU")
        if switch.readings:
            return told | self._tell_reading(switch, fair)
        why = self._why_failed(switch.settings)
        logs = self.pair(switch.settings)
        if why and not logs:
            return told | _lacking(why)
        caught = self.catch(switch.settings)
        return told | _tell_ratio(logs) | _tell_move(logs, fair) | {"caught": caught, "why": why}

    def describe_correction(self, correction: Correction, fair: Logs) -> dict[str, Any]:
        """One step of the way from all errors to none."""
        logs, caught = self.pair(correction.settings), self.catch(correction.settings)
        return {"title": correction.title, **_tell_ratio(logs), **_tell_move(logs, fair)} | {
            "caught": caught,
            "why": self._why_failed(correction.settings),
        }

    def _why_failed(self, settings: Mapping[Framework, Mapping[str, str]]) -> str | None:
        failures = [each["failure"] for each in self._sides(settings) if each["failure"]]
        return f"{failures[0]['stage']}: {failures[0]['reason']}" if failures else None

    def _tell_reading(self, switch: Switch, fair: Logs) -> dict[str, Any]:
        read: dict[str, dict[int, float]] = {}
        caught = []
        for side in SIDES:
            reading = switch.readings.get(side)
            read[side] = self._read(side, reading)
            caught += self._hold_against_physics(side, read[side]) if reading else []
        both = sorted(read["jax"].keys() & read["torch"].keys())
        logs = {each: math.log(read["torch"][each] / read["jax"][each]) for each in both}
        if not logs:
            return _lacking("no start was read that way")
        kept_out = [{"guard": "kept out of the clock", "reason": switch.guard}]
        return {
            **_tell_ratio(logs),
            **_tell_move(logs, fair),
            "caught": caught or kept_out,
            "why": None,
        }

    def _read(self, side: Framework, reading: Reading | None) -> dict[int, float]:
        """Nanoseconds a step took in each start, read rightly (None) or wrongly."""
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

    def _hold_against_physics(
        self, side: Framework, read: Mapping[int, float]
    ) -> list[dict[str, str]]:
        """What the ceilings say of a step as short as it was misread; nothing without ceilings."""
        contender = self.fair_side(side)
        share = self._rows[contender["name"]]["limit_share"]
        honest = self._step_ns(contender)
        if not read or not honest or share is None or math.isnan(share):
            return []
        claimed = share * min(honest.values()) / min(read.values())
        if claimed <= LIMIT_SHARE:
            return []
        reason = f"a step claims {claimed:.3g} times what the device can do"
        return [{"guard": "invalid physics", "reason": reason}]


def _suite(mark: Row) -> str:
    return str(mark["suite"]).removeprefix("nightly ")


def _named(mark: Row) -> set[str]:
    """Of whom a mark speaks."""
    return {str(each) for each in (mark["contender"], mark["other"]) if isinstance(each, str)}


def _lacking(why: str) -> dict[str, Any]:
    keys = ("speedup", "low", "high", "moved", "moved_low", "moved_high")
    return {**dict.fromkeys(keys), "num_starts": 0, "caught": [], "why": why}


def _tell_ratio(logs: Logs) -> dict[str, Any]:
    found = judge_starts(np.array(list(logs.values())))
    named = {"speedup": found.log_ratio, "low": found.low, "high": found.high}
    return {**{key: _factor(log) for key, log in named.items()}, "num_starts": len(logs)}


def _tell_move(logs: Logs, fair: Logs) -> dict[str, Any]:
    """How far from the fair ratio, start by start: what starts share drops out."""
    keys = ("moved", "moved_low", "moved_high")
    found = judge_starts(np.array([logs[each] - fair[each] for each in logs.keys() & fair.keys()]))
    values = (found.log_ratio, found.low, found.high)
    return {key: _factor(log) for key, log in zip(keys, values, strict=True)}


def _factor(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else float(f"{math.exp(log_ratio):.5g}")
