"""Alerts: the text and the details of a release and of a night. `shift_alerts.py` has those of
confirmed changes, and `outbox.py` sends them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchcore.cell.document import spec_case
from benchcore.errors import UserError
from benchcore.names import (
    FRAMEWORK_NAMES,
    contender_label,
    describe_status,
    name_arm,
    name_case_in_words,
)
from benchcore.planning.catalog import find_case
from benchcore.protocol import DEFAULT_TRACK, name_case
from benchcore.store.metrics import find_tracked
from benchcore.store.reports.certificates import CHANGED
from benchcore.store.reports.operations import SLOW, find_move, measure_slowness
from benchcore.verdict.history.series import STEP_TIME

_MOST_NAMED = 5
_MANY = 2.0
"""From here on a change of speed is written as a factor, not in percent."""
PAYLOAD = (
    *("cause", "culprit", "series", "metric", "change", "size", "moved"),
    *("differences", "conditions", "dashboard", "again", "search"),
)
"""What every alert and its event hold besides their `text`; None or empty = there is none."""


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


def describe_broken(rows: Sequence[Mapping[str, Any]]) -> str:
    """`Failed in two nights: ViT-B/16, training, batch 32, bf16: JAX 0.12.1 crashed in compile: no
    memory. Before 2026-11-27 it ran, with 0.12.0.`, from `benchcore.store.reports.broken`."""
    named = [_describe_broken(row) for row in rows[:_MOST_NAMED]]
    if len(rows) > _MOST_NAMED:
        named.append(f"And {len(rows) - _MOST_NAMED} more.")
    return f"Failed in two nights: {' '.join(named)}"


def _describe_broken(row: Mapping[str, Any]) -> str:
    case = write_case(row["workload"], row["case_name"], row["track"])
    side = contender_label(row["framework"], row["version"], row["arm"])
    ended = f"{side} {describe_status(row['status'])} in {row['stage']}"
    why = str(row["reason"] or "").strip().partition("\n")[0].rstrip(". ")
    before = "" if row["ran"] == row["version"] else f", with {row['ran']}"
    found = ": ".join(filter(None, (case, ended, why)))
    return f"{found}. Before {row['since']} it ran{before}."


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
    case = write_case(row["workload"], row["case_name"], row["track"])
    return f"{case}: {f' takes {found.factor:.3g} times as long as '.join(sides)}"


def name_release(framework: str, new: str, old: str) -> str:
    """`JAX 0.12.0 against 0.11.2`: what its alerts are grouped by."""
    return f"{FRAMEWORK_NAMES.get(framework, framework)} {new} against {old}"


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
    middle, *ends = (format_percent(sign * math.log(each)) for each in (factor, low, high))
    ends.sort(key=float)
    return f"{case} is {middle} % {direction} ({ends[0]} to {ends[1]} %)"


def list_changed(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The factors (`describe_factors`) of the certificates in an alert's details that are a change,
    the largest first."""
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
    words = write_case(row["workload"], row["case_name"], row.get("track", DEFAULT_TRACK))
    return f"{words} ({name_arm(arm.partition('-')[0], arm)})"


def _add_factors(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of an alert's details as a certificate: with the new amount over the old one."""
    metric = find_tracked(row["metric"])
    factors = metric.factors(tuple(math.log1p(row[name]) for name in ("change", "low", "high")))
    return {"track": DEFAULT_TRACK, **row, "noun": metric.noun, "factors": factors}


def write_case(workload: str, case_name: str, track: str) -> str:
    """The case in words; its name in commands if the catalogue no longer has it."""
    try:
        case = find_case(workload, spec_case(case_name))
    except UserError:
        return name_case(workload, case_name, track)
    named = {"workload": workload, "case_name": case_name, "track": track}
    return name_case_in_words({**named, **{key: getattr(case, key) for key in _NAMED}})


_NAMED = ("use_case", "batch", "precision")


def format_percent(log_ratio: float, sign: int = 1) -> str:
    """A log ratio in percent, with at least two digits."""
    percent = sign * 100 * math.expm1(log_ratio)
    return f"{percent:.0f}" if abs(percent) >= 10 else f"{percent:.2g}"


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
