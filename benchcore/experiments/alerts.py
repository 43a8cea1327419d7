"""Alerts: the text and the details of each. `outbox.py` sends them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.errors import UserError
from benchcore.experiments.pairs import BisectTarget, write_comparison
from benchcore.names import FRAMEWORKS, name_arm, name_case_in_words
from benchcore.planning.catalog import find_case
from benchcore.planning.requests import list_own_settings, write_extras
from benchcore.protocol import DEFAULT_TRACK, name_case
from benchcore.store.metrics import find_tracked
from benchcore.store.records import ContenderRecord, SuspicionRecord
from benchcore.store.reports.certificates import CHANGED
from benchcore.store.reports.operations import SLOW, find_move, measure_slowness
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.confirmation.event_states import find_shift
from benchcore.verdict.history.conditions import describe_changes
from benchcore.verdict.history.series import STEP_TIME
from benchcore.verdict.samples import Judgement

_MOST_NAMED = 5
_MANY = 2.0
"""From here on a change of speed is written as a factor, not in percent."""
PAYLOAD = (
    *("cause", "culprit", "series", "metric", "change", "size", "moved"),
    *("differences", "conditions", "dashboard", "again", "search"),
)
"""What every alert and its event hold beside their `text`; None or empty = there is none."""


def describe_release(
    framework: str,
    new: str,
    old: str,
    rows: Sequence[Mapping[str, Any]],
    trends: Sequence[Mapping[str, Any]] = (),
) -> str:
    """`JAX 0.12.0 against 0.11.2: MLP, inference, batch 1, fp32 (JAX) is 24 % slower (22 to 26 %).
    Unchanged: 11 of 16. Not shown: 4.`, from its certificates
    (`benchcore.store.reports.certificates`, as `ReleaseVerdict.rows`) and the trends over several
    releases. Names five of each at most."""
    changed = [row for row in rows if row["certificate"] in CHANGED]
    named = "; ".join(describe_factors(row) for row in changed[:_MOST_NAMED])
    if len(changed) > _MOST_NAMED:
        named += f"; and {len(changed) - _MOST_NAMED} more"
    counts = Counter(row["certificate"] for row in rows)
    counted = f"Unchanged: {counts['unchanged']} of {len(rows)}. Not shown: {counts['not shown']}."
    text = f"{name_release(framework, new, old)}: {named or 'no change is shown'}. {counted}"
    for each in trends[:_MOST_NAMED]:
        text += f" Over {each['num_releases']} releases since {each['since']}: "
        text += f"{describe_factors(each)}."
    return text


def describe_failures(rows: Sequence[Mapping[str, Any]], version: str) -> str:
    """The failures of the new version; those of others are not news of this release."""
    of_new = [row for row in rows if str(row["name"]).endswith(f"-{version.lower()}")]
    return "; ".join(
        f"{row['case']}, {row['name']}: {row['status']} in {row['stage']}: {row['reason']}"
        for row in of_new
    )


def describe_operations(rows: Sequence[Mapping[str, Any]]) -> str:
    """` One framework takes more than 2 times as long in 3 of 34 pairs of single operations.
    Entered the list since earlier versions: Operations, batch 512, fp32, FFT, medium size: PyTorch
    compiled takes 3 times as long as JAX.`, from `ReleaseVerdict.operations`; "" without any.
    Pairs that were not measured with an earlier version are counted separately."""
    if not rows:
        return ""
    listed = [each for each in rows if measure_slowness(each).is_listed]
    text = f" One framework takes more than {SLOW:g} times as long in {len(listed)} of "
    text += f"{len(rows)} pairs of single operations."
    moves = list_moves(rows)
    for words, kinds in (
        ("Entered the list since earlier versions", _ENTERED),
        ("Left the list", ("left",)),
    ):
        named = [each["text"] for each in moves if each["move"] in kinds]
        if named:
            text += f" {words}: {'; '.join(named[:_MOST_NAMED])}"
            text += f"; and {len(named) - _MOST_NAMED} more." if len(named) > _MOST_NAMED else "."
    num_before = sum(each["earlier"] is not None for each in rows)
    if not num_before:
        return f"{text} No pair was measured with earlier versions."
    if not any(each["move"] != "new" for each in moves):
        text += (
            f" No pair entered or left the list, of {num_before} measured with earlier versions."
        )
    first = sum(each["move"] == "new" for each in moves)
    return text + (
        f" On the list, but not measured with earlier versions: {first}." if first else ""
    )


_ENTERED = ("entered", "turned")


def list_moves(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What entered or left the list of slow operations: the `move` of each
    (`reports.operations.Move`), with a `text` that names the operation and both sides."""
    moves = [(row, find_move(row)) for row in rows]
    return [
        {"move": move, "text": _describe_slowness(row)}
        for row, move in moves
        if move not in (None, "stayed")
    ]


def _describe_slowness(row: Mapping[str, Any]) -> str:
    found = measure_slowness(row)
    slow, fast = (found.slow, "a" if found.slow == "b" else "b")
    sides = (name_arm(row[f"{each}_framework"], row[f"{each}_arm"]) for each in (slow, fast))
    case = _name_case(row["workload"], row["case_name"], row["track"])
    return f"{case}: {f' takes {found.factor:.3g} times as long as '.join(sides)}"


def name_release(framework: str, new: str, old: str) -> str:
    """`JAX 0.12.0 against 0.11.2`: what its alerts are grouped by."""
    return f"{FRAMEWORKS.get(framework, framework)} {new} against {old}"


def describe_factors(row: Mapping[str, Any]) -> str:
    """`MLP, inference, batch 1, fp32 (JAX) is 24 % slower (22 to 26 %)`: it takes 1.24 times as
    long; 24 % faster: it is 1.24 times as fast. Of another metric `the compile time of MLP,
    inference, batch 1, fp32 (JAX) is 1.4 times as high (1.3 to 1.5)`."""
    case = _name_case_and_arm(row)
    factor, low, high = (row["factors"][name] for name in ("ratio", "low", "high"))
    if row["metric"] != STEP_TIME:
        return (
            f"the {row['noun']} of {case} is {factor:.3g} times as high ({low:.3g} to {high:.3g})"
        )
    if factor >= _MANY:
        return f"{case} takes {factor:.3g} times as long ({low:.3g} to {high:.3g})"
    if 1 / factor >= _MANY:
        return f"{case} is {1 / factor:.3g} times as fast ({1 / high:.3g} to {1 / low:.3g})"
    sign, direction = (1, "slower") if factor > 1 else (-1, "faster")
    middle, *ends = (_percent(sign * math.log(each)) for each in (factor, low, high))
    ends.sort(key=float)
    return f"{case} is {middle} % {direction} ({ends[0]} to {ends[1]} %)"


def list_changed(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """As `describe_factors`, of the certificates in an alert's details that are a change, the
    largest first."""
    changed = [row for row in rows if row["certificate"] in CHANGED]
    changed.sort(key=lambda row: -abs(math.log1p(row["change"])))
    return [describe_factors(_add_factors(row)) for row in changed]


def list_others(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """`MLP, inference, batch 1, fp32 (JAX) takes 0.998 to 1.01 times as long: unchanged`: the step
    times among an alert's certificates that are no change."""
    others = [each for each in rows if each["certificate"] not in CHANGED]
    return [_describe_other(each) for each in others if each["metric"] == STEP_TIME]


def _describe_other(row: Mapping[str, Any]) -> str:
    case, found = _name_case_and_arm(row), row["certificate"]
    if row["low"] is None or row["high"] is None:
        return f"{case}: {found}"
    factors = _add_factors(row)["factors"]
    return f"{case} takes {factors['low']:.3g} to {factors['high']:.3g} times as long: {found}"


def _name_case_and_arm(row: Mapping[str, Any]) -> str:
    arm = str(row["a_arm"])
    words = _name_case(row["workload"], row["case_name"], row.get("track", DEFAULT_TRACK))
    return f"{words} ({name_arm(arm.partition('-')[0], arm)})"


def _add_factors(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of an alert's details as a certificate: with the new amount over the old one."""
    metric = find_tracked(row["metric"])
    factors = metric.factors(tuple(math.log1p(row[name]) for name in ("change", "low", "high")))
    return {"track": DEFAULT_TRACK, **row, "noun": metric.noun, "factors": factors}


def _name_case(workload: str, case_name: str, track: str) -> str:
    """In words; the name in commands where the case is no longer in the catalogue."""
    try:
        case = find_case(workload, spec_case(case_name))
    except UserError:
        return name_case(workload, case_name, track)
    named = {"workload": workload, "case_name": case_name, "track": track}
    return name_case_in_words({**named, **{key: getattr(case, key) for key in _NAMED}})


_NAMED = ("use_case", "batch", "precision")


def template_failed_night() -> str:
    """The payload of a night that failed or crashed, as a template for Prefect's webhook block."""
    return _template(
        "'The night ' ~ flow_run.name ~ ' ended as ' ~ flow_run.state.name ~ ': ' ~ "
        "(flow_run.state.message or 'without a reason')"
    )


def template_missing_night(span: str) -> str:
    """The payload of missing nights: `span` is how long none has succeeded, `26 hours`."""
    return _template(f"'No night has succeeded for {span}'")


def _template(expression: str) -> str:
    """JSON with a `text` from a Jinja expression, escaped as in `outbox.post_json`."""
    escaped = "replace('&', '&amp;') | replace('<', '&lt;') | replace('>', '&gt;')"
    return f'{{"text": {{{{ ({expression}) | string | {escaped} | tojson }}}}}}'


def write_shift(
    suspicion: SuspicionRecord, finding: Finding, outcome: Mapping[str, Any]
) -> dict[str, Any]:
    """The `text` and the `details` of a confirmed shift; they are stored until they are sent.

    Shifts of one `group`, a release or a machine, become one message, in which the one of the
    largest `size` comes first.
    """
    details = {
        name: outcome[name]
        for name in ("suspicion", "series", "metric", "culprit", "change", "conditions")
    }
    details |= {"differences": outcome["candidates"], "moved": outcome["moved"]}
    details |= {"dashboard": None, **_name_cause(suspicion, finding)}  # `outbox` knows the event
    group = details["cause"]
    if finding.culprit == "infrastructure":
        group = f"The infrastructure of {suspicion.device_model}"
    return {"text": describe_shift(suspicion, finding), "details": details, "group": group}


def _name_cause(suspicion: SuspicionRecord, finding: Finding) -> dict[str, Any]:
    """The release behind a shift, and the command that finds its package; None = no one release.
    And the commands that measure it again."""
    sides = {
        "a": (suspicion.a_old, suspicion.a_new, finding.a),
        "b": (suspicion.b_old, suspicion.b_new, finding.b),
    }
    found = {"cause": None, "search": None, "again": _measure_again(suspicion, finding)}
    if finding.culprit not in sides:
        return {**found, "size": abs(find_shift(asdict(finding)).get("log_ratio") or 0.0)}
    old, new, effect = sides[finding.culprit]
    size = abs((effect.log_ratio if effect else None) or 0.0)
    if old.version == new.version:
        return {**found, "size": size}
    target = name_target(suspicion, old, new)
    return {
        "cause": name_release(new.framework, new.version, old.version),
        "again": target.again,
        "search": f"{target.command} --dependencies",
        "size": size,
    }


def _measure_again(suspicion: SuspicionRecord, finding: Finding) -> str | None:
    """Without one release as culprit: the commands that compare the versions of each side, else
    the one that compares both sides as they are now; None = they are one environment."""
    sides = ((suspicion.a_old, suspicion.a_new), (suspicion.b_old, suspicion.b_new))
    moved = [each for each in sides if each[0].version != each[1].version]
    if moved and finding.culprit in ("both", "unknown"):
        return " && ".join(name_target(suspicion, *each).again for each in moved)
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
    key = suspicion.key
    return BisectTarget(
        framework=f"{new.framework}{write_extras(new.arm)}",
        good=old.version,
        bad=new.version,
        workload=key.workload,
        case=spec_case(key.case_name),
        settings=list_own_settings(new.framework, new.settings),
        metric=key.metric,
        device=suspicion.device,
        site=suspicion.site,
    )


def describe_shift(suspicion: SuspicionRecord, finding: Finding) -> str:
    """`JAX/PyTorch speedup on MLP, inference, batch 128, fp32 rose 5 % (3 to 7 %): PyTorch 2.15.0
    is 5 % slower than 2.14.0. Device: AMD EPYC.`, or `Compile time on MLP, inference, batch 128,
    fp32 changed: the compile time of JAX 0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5).` Names a
    framework only if it changed, and the conditions that did."""
    key = suspicion.key
    case = _name_case(key.workload, key.case_name, key.track)
    moved = f"{suspicion.levels.noun.capitalize()} on {case} changed"
    if key.metric == STEP_TIME:
        moved = f"{_name_speedup(suspicion)} on {case} {_write_change(finding)}"
    text = f"{moved}: {_write_cause(suspicion, finding)}. Device: {suspicion.device_model}."
    changed = describe_changes(suspicion.conditions)
    return f"{text} Conditions that changed: {changed}." if changed else text


def _name_speedup(suspicion: SuspicionRecord) -> str:
    a, control = _title(suspicion.a_new), suspicion.key.control
    if control is not None:
        return f"{a}'s speedup over its {control} version"
    return f"{a}/{_title(suspicion.b_new)} speedup"


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
    write = _write_side
    if suspicion.key.metric != STEP_TIME:
        write = functools.partial(_write_amount, suspicion.levels.noun)
    if finding.culprit in ("a", "b"):
        return write(*sides[finding.culprit])
    if finding.culprit == "both":
        return " and ".join(write(*side) for side in sides.values())
    if finding.culprit == "infrastructure":
        return f"caused by the infrastructure, not by a framework: {finding.reason}"
    return f"the cause is unknown: {finding.reason}"


def _write_side(old: ContenderRecord, new: ContenderRecord, effect: Judgement | None) -> str:
    """`PyTorch 2.15.0 is 5 % slower than 2.14.0`."""
    assert effect is not None and effect.log_ratio is not None, "a culprit has an effect"
    preposition, before = _name_old(old, new)
    direction = "slower" if effect.log_ratio > 0 else "faster"
    percent = _percent(abs(effect.log_ratio))
    return f"{_title(new)} {new.version} is {percent} % {direction} than {preposition}{before}"


def _write_amount(
    noun: str, old: ContenderRecord, new: ContenderRecord, effect: Judgement | None
) -> str:
    """`the compile time of JAX 0.12.0 is 1.4 times that of 0.11.0 (1.3 to 1.5)`."""
    assert effect is not None, "a culprit has an effect"
    _, before = _name_old(old, new)
    ratio, low, high = (effect.ratios[name] for name in ("ratio", "low", "high"))
    ends = f" ({low:.3g} to {high:.3g})" if low is not None and high is not None else ""
    return f"the {noun} of {_title(new)} {new.version} is {ratio:.3g} times that of {before}{ends}"


def _name_old(old: ContenderRecord, new: ContenderRecord) -> tuple[str, str]:
    """What a side is compared with, and before it the preposition that follows "than"."""
    if old.version != new.version:
        return "", old.version
    if old.environment_key == new.environment_key and old.settings != new.settings:
        return "with ", "its old settings"
    return "in ", "its old environment"


def _title(side: ContenderRecord) -> str:
    return FRAMEWORKS.get(side.framework, side.framework)
