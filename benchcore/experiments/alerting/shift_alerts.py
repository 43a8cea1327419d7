"""The alert of a confirmed change: its sentence, its details, and the commands that measure it
again. `alerts.py` has those of releases and nights, and `outbox.py` sends them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.experiments.alerting.alerts import format_percent, name_release, write_case
from benchcore.experiments.changes.pairs import BisectTarget, order_versions, write_comparison
from benchcore.names import FRAMEWORK_NAMES, contender_label
from benchcore.planning.requests import list_own_settings, write_extras
from benchcore.protocol import name_case
from benchcore.store.records import ContenderRecord, SuspicionRecord
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.confirmation.event_states import find_shift
from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import Judgement


def write_shift(
    suspicion: SuspicionRecord, finding: Finding, outcome: Mapping[str, Any]
) -> dict[str, Any]:
    """The `text` and the `details` of a confirmed shift; they are stored until they are sent.

    Shifts of one `group`, a release or a machine, become one message, in which the one of the
    largest `size` comes first.
    """
    move = _find_move(finding)
    details = {
        **{name: outcome[name] for name in ("suspicion", "series", "metric", "culprit")},
        "change": {**move.ratios, "verdict": move.verdict},
        "subject": _name_subject(suspicion, finding),
        "conditions": outcome["conditions"],
        "differences": outcome["candidates"],
        "moved": outcome["moved"],
        "dashboard": None,
        **_name_cause(suspicion, finding),  # `outbox` knows the event
    }
    group = _name_group(suspicion, finding)
    return {"text": describe_shift(suspicion, finding), "details": details, "group": group}


def _name_subject(suspicion: SuspicionRecord, finding: Finding) -> str | None:
    """Whose amount changed, and of what: the series against the other framework and against the
    older version show the same change. None where no one side is the culprit."""
    sides, key = _list_sides(suspicion, finding), suspicion.key
    if finding.culprit not in sides:
        return None
    of_case = name_case(key.workload, key.case_name, key.track)
    new = sides[finding.culprit][1]
    return f"{key.metric} of {new.name} in {of_case} on {key.device_fingerprint}"


def _find_move(finding: Finding) -> Judgement:
    """How far the ratio moved. If only the control moved: how far the old environment is from
    itself."""
    moved = find_shift(asdict(finding))
    return Judgement(**moved) if moved else finding.control


def _list_sides(
    suspicion: SuspicionRecord, finding: Finding
) -> dict[str, tuple[ContenderRecord, ContenderRecord, Judgement | None]]:
    return {
        "a": (suspicion.a_old, suspicion.a_new, finding.a),
        "b": (suspicion.b_old, suspicion.b_new, finding.b),
    }


def _name_group(suspicion: SuspicionRecord, finding: Finding) -> str | None:
    """The machine, or what changed of each side that is a culprit; None = it isn't known."""
    if finding.culprit == "infrastructure":
        return f"The infrastructure of {suspicion.device_model}"
    moved = [
        _name_new(old, new)
        for side, (old, new, _) in _list_sides(suspicion, finding).items()
        if finding.culprit in (side, "both")
    ]
    return " and ".join(moved) or None


def _name_new(old: ContenderRecord, new: ContenderRecord) -> str:
    """`JAX 0.12.0 against 0.11.0`, or `JAX 0.12.0 in a new environment`."""
    if old.version != new.version:
        return name_release(new.framework, new.version, old.version)
    changed = "with new settings" if _has_new_settings(old, new) else "in a new environment"
    return f"{_title(new)} {new.version} {changed}"


def _name_cause(suspicion: SuspicionRecord, finding: Finding) -> dict[str, Any]:
    """The release behind a shift, and the command that finds its package; None = no one release.
    And the commands that measure it again."""
    sides = _list_sides(suspicion, finding)
    found = {"cause": None, "search": None, "again": _measure_again(suspicion, finding)}
    if finding.culprit not in sides:
        return {**found, "size": abs(_find_move(finding).log_ratio or 0.0)}
    old, new, effect = sides[finding.culprit]
    size = abs((effect.log_ratio if effect else None) or 0.0)
    if old.version == new.version:
        return {**found, "size": size}
    target = name_target(suspicion, old, new)
    return {
        "cause": name_release(new.framework, new.version, old.version),
        "again": target.repeat_command,
        "search": f"{target.search_command} --dependencies",
        "size": size,
    }


def _measure_again(suspicion: SuspicionRecord, finding: Finding) -> str | None:
    """Without one release as culprit: the commands that compare the versions of each side, else
    the one that compares both sides as they are now; None = they are one environment."""
    sides = ((suspicion.a_old, suspicion.a_new), (suspicion.b_old, suspicion.b_new))
    moved = [each for each in sides if each[0].version != each[1].version]
    if moved and finding.culprit in ("both", "unknown"):
        return " && ".join(name_target(suspicion, *each).repeat_command for each in moved)
    a, b = (
        (
            f"{new.framework}{write_extras(new.arm)}=={new.version}",
            list_own_settings(new.framework, new.settings),
        )
        for _, new in sides
    )
    if a == b:
        return None
    case = spec_case(suspicion.key.case_name)
    where = (suspicion.device, suspicion.site)
    return write_comparison(suspicion.key.workload, case, a, b, *where)


def name_target(
    suspicion: SuspicionRecord, old: ContenderRecord, new: ContenderRecord
) -> BisectTarget:
    """A side's two versions as a search where the suspicion was raised."""
    key, (good, bad) = suspicion.key, order_versions(old.version, new.version)
    return BisectTarget(
        framework=f"{new.framework}{write_extras(new.arm)}",
        good=good,
        bad=bad,
        workload=key.workload,
        case=spec_case(key.case_name),
        settings=list_own_settings(new.framework, new.settings),
        metric=key.metric,
        device=suspicion.device,
        site=suspicion.site,
    )


def describe_shift(suspicion: SuspicionRecord, finding: Finding) -> str:
    """`JAX/PyTorch speedup on MLP, inference, batch 128, fp32 rose 5 % (3 to 7 %): PyTorch 2.15.0
    eager is 5 % slower than 2.14.0. Device: AMD EPYC.`, or `Compile time on MLP, inference, batch
    128, fp32 changed: the compile time of JAX 0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5).`
    Names a framework only if it changed, otherwise the night since which it did; and the
    conditions."""
    key = suspicion.key
    case = write_case(key.workload, key.case_name, key.track)
    moved = f"{suspicion.levels.noun.capitalize()} on {case} changed"
    if key.metric == STEP_TIME:
        moved = f"{_name_speedup(suspicion)} on {case} {_write_change(suspicion, finding)}"
    if finding.culprit not in ("a", "b", "both"):
        moved += f" since {suspicion.since:%Y-%m-%d}"
    text = f"{moved}: {_write_cause(suspicion, finding)}"
    text += f"; {finding.rest}" if finding.rest else ""
    text += f". Device: {suspicion.device_model}."
    changed = describe_changes(suspicion.conditions)
    if changed in text:  # also where nothing has changed
        return text
    return f"{text} Conditions that changed: {changed}."


def _name_speedup(suspicion: SuspicionRecord) -> str:
    a, control = _title(suspicion.a_new), suspicion.key.control
    if control is not None:
        return f"{a}'s speedup over its {control} version"
    return f"{a}/{_title(suspicion.b_new)} speedup"


def _write_change(suspicion: SuspicionRecord, finding: Finding) -> str:
    """`rose 5 % (3 to 7 %)`, or how far the nightly runs moved if fresh starts don't show it."""
    if finding.change.verdict == "different":
        return _write_move(finding.change)
    moved = finding.machine_level
    if moved is None or moved.verdict != "different":
        nights = suspicion.levels.after - suspicion.levels.before
        moved = Judgement(log_ratio=nights, reason="")
    return f"{_write_move(moved)} in the nightly runs"


def _write_move(found: Judgement) -> str:
    assert found.log_ratio is not None, "what moved has a size"
    verb = "rose" if found.log_ratio > 0 else "fell"
    return f"{verb} {_write_percent(found, -1 if found.log_ratio < 0 else 1)}"


def _write_percent(found: Judgement, sign: int = 1) -> str:
    """`5 % (3 to 7 %)`; sign -1 makes the numbers of a fall positive."""
    middle, low, high = found.log_ratio, found.low, found.high
    assert middle is not None
    if low is None or high is None:
        return f"{format_percent(middle, sign)} %"
    ends = sorted((format_percent(low, sign), format_percent(high, sign)), key=float)
    return f"{format_percent(middle, sign)} % ({ends[0]} to {ends[1]} %)"


def _write_cause(suspicion: SuspicionRecord, finding: Finding) -> str:
    sides = _list_sides(suspicion, finding)
    write = _write_side
    if suspicion.key.metric != STEP_TIME:
        write = functools.partial(_write_amount, suspicion.levels.noun)
    if finding.culprit in ("a", "b"):
        return write(*sides[finding.culprit])
    if finding.culprit == "both":
        return " and ".join(write(*side) for side in sides.values())
    if finding.culprit == "infrastructure":
        return f"caused by the infrastructure, not by a framework: {finding.reason}"
    compared = [_name_new(old, new) for old, new, _ in sides.values() if old.version != new.version]
    among = f" ({', '.join(compared)})" if compared else ""
    return f"the cause is unknown{among}: {finding.reason}"


def _write_side(old: ContenderRecord, new: ContenderRecord, effect: Judgement | None) -> str:
    """`PyTorch 2.15.0 eager is 5 % slower than 2.14.0`: other arms may not be."""
    assert effect is not None and effect.log_ratio is not None, "a culprit has an effect"
    preposition, before = _name_old(old, new)
    direction = "slower" if effect.log_ratio > 0 else "faster"
    percent = format_percent(abs(effect.log_ratio))
    return f"{_label(new)} is {percent} % {direction} than {preposition}{before}"


def _write_amount(
    noun: str, old: ContenderRecord, new: ContenderRecord, effect: Judgement | None
) -> str:
    """`the compile time of JAX 0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5)`."""
    assert effect is not None, "a culprit has an effect"
    _, before = _name_old(old, new)
    ratio, low, high = (effect.ratios[name] for name in ("ratio", "low", "high"))
    ends = f" ({low:.3g} to {high:.3g})" if low is not None and high is not None else ""
    return f"the {noun} of {_label(new)} is {ratio:.3g} times that of {before}{ends}"


def _name_old(old: ContenderRecord, new: ContenderRecord) -> tuple[str, str]:
    """What a side is compared with, and before it the preposition that follows "than"."""
    if old.version != new.version:
        return "", old.version
    if _has_new_settings(old, new):
        return "with ", "its old settings"
    return "in ", "its old environment"


def _has_new_settings(old: ContenderRecord, new: ContenderRecord) -> bool:
    return old.environment_key == new.environment_key and old.settings != new.settings


def _label(side: ContenderRecord) -> str:
    return contender_label(side.framework, side.version, side.arm)


def _title(side: ContenderRecord) -> str:
    return FRAMEWORK_NAMES.get(side.framework, side.framework)
