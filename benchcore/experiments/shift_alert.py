"""The text of the alert for a confirmed shift: how the ratio changed, and why."""

from __future__ import annotations

import math

from benchcore.protocol import name_case
from benchcore.store.records import ContenderRecord, SuspicionRecord
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.samples import Judgement

_TITLES = {"jax": "JAX", "torch": "PyTorch"}


def write_alert(suspicion: SuspicionRecord, finding: Finding) -> str:
    """`JAX/PyTorch speedup on mlp infer_b128 rose 5 % (3 to 7 %): PyTorch 2.15.0 is 5 % slower than
    2.14.0. Device: AMD EPYC.` Names a framework only if it changed."""
    key = suspicion.key
    pair = f"{_title(suspicion.a_new)}/{_title(suspicion.b_new)}"
    case = name_case(key.workload, key.case_name, key.track)
    moved = f"{pair} speedup on {case} {_write_change(finding)}"
    return f"{moved}: {_write_cause(suspicion, finding)}. Device: {suspicion.device_model}."


def _write_change(finding: Finding) -> str:
    """`rose 5 % (3 to 7 %)`, or a shift of the nightly runs if fresh starts don't show it."""
    change = finding.change
    if change.verdict != "different" or change.log_ratio is None:
        return "shifted in the nightly runs"
    verb = "rose" if change.log_ratio > 0 else "fell"
    return f"{verb} {_write_percent(change, -1 if change.log_ratio < 0 else 1)}"


def _write_percent(found: Judgement, sign: int = 1) -> str:
    """`5 % (3 to 7 %)`; sign -1 makes the numbers of a fall positive."""
    middle, low, high = found.log_ratio, found.low, found.high
    assert middle is not None
    if low is None or high is None:
        return f"{_percent(middle, sign)} %"
    ends = sorted((_percent(low, sign), _percent(high, sign)), key=float)
    return f"{_percent(middle, sign)} % ({ends[0]} to {ends[1]} %)"


def _percent(log_ratio: float, sign: int = 1) -> str:
    """A log ratio in percent, with at least two digits."""
    percent = sign * 100 * math.expm1(log_ratio)
    return f"{percent:.0f}" if abs(percent) >= 10 else f"{percent:.2g}"


def _write_cause(suspicion: SuspicionRecord, finding: Finding) -> str:
    sides = {
        "a": (suspicion.a_old, suspicion.a_new, finding.a),
        "b": (suspicion.b_old, suspicion.b_new, finding.b),
    }
    if finding.culprit in ("a", "b"):
        return _write_side(*sides[finding.culprit])
    if finding.culprit == "both":
        return " and ".join(_write_side(*side) for side in sides.values())
    if finding.culprit == "infrastructure":
        return f"caused by the infrastructure, not by a framework: {finding.reason}"
    return f"the cause is unknown: {finding.reason}"


def _write_side(old: ContenderRecord, new: ContenderRecord, effect: Judgement | None) -> str:
    """`PyTorch 2.15.0 is 5 % slower than 2.14.0`."""
    assert effect is not None and effect.log_ratio is not None, "a culprit has an effect"
    before = old.version if old.version != new.version else "in its old environment"
    direction = "slower" if effect.log_ratio > 0 else "faster"
    percent = _percent(abs(effect.log_ratio))
    return f"{_title(new)} {new.version} is {percent} % {direction} than {before}"


def _title(side: ContenderRecord) -> str:
    return _TITLES.get(side.framework, side.framework)
