"""The verdict of a campaign in one sentence, led by the news."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from benchcore.names import FRAMEWORK_NAMES, name_case_in_words
from benchcore.protocol import name_case
from benchcore.store.reports.guide_groups import NO_FRAMEWORKS
from benchcore.verdict.confirmation.event_states import find_shift
from benchcore.verdict.history.series import STEP_TIME
from dashboards.formatting import case_label, describe_ratio, format_changes, format_count
from dashboards.frames import does_count, is_fair, newest_pair_rows
from dashboards.website.campaign.voids import count_causes
from dashboards.website.gather import Campaign
from dashboards.website.pairs import series_of

_MOST_CAUSES = 2
_MOST_NAMES = 4
_FEWEST_VERSIONS = 3
"""Of a framework in one campaign, where its page is about these."""
_USE_CASES = ("train", "infer")
_CASE = ("workload", "case_name", "track")
Ratio = tuple[float, float | None, float | None]
"""New over old, and the ends of its interval; None = not known."""


def count_pairs(campaign: Campaign) -> dict[str, Any]:
    """The numbers that a verdict needs: pairs, cases, and causes of what does not count."""
    ratios = campaign.rows("ratios")
    counted = list(filter(does_count, ratios))
    return {
        "pairs": len(ratios),
        "counting": len(counted),
        "cases": len({tuple(row[key] for key in _CASE) for row in counted}),
        "causes": dict(count_causes(campaign).most_common()),
        "void": campaign.void,
        "fingerprint": campaign.first["device_fingerprint"],
        "begun": campaign.begun.isoformat(),
    }


def write_verdict(
    counts: Mapping[str, Any],
    until: str | None,
    changes: Sequence[Mapping[str, Any]],
    *,
    cases: Collection[str],
    is_first: bool = False,
) -> str:
    """A night's verdict from its counts: why nothing counts, else the largest confirmed change,
    else the largest new suspicion, else that nothing changed. News is what was opened in one of the
    `cases` that it measured (`pairs.case_key`), from its start to `until`, when the next night of
    its profile on this device began. `is_first`: there is no earlier night of the profile on the
    device."""
    if counts["counting"] == 0:
        return _explain_nothing(counts)
    own = [each for each in changes if _is_news(each, counts, until, cases)]
    confirmed = [each for each in own if each["event"] is not None]
    new = [each for each in own if each["state"] == "open" and _seems_changed(each)]
    for found, noun in ((confirmed, "confirmed change"), (new, "new suspicion")):
        if found:
            return describe_change(_find_lead(found)) + _count_others(len(found) - 1, noun)
    words = format_count(counts["cases"], "case")
    if is_first:
        first = "First night of this profile on this device"
        return f"{first}: {words} measured, with no earlier night to compare with."
    return f"Nothing changed in {words}."


def _is_news(
    change: Mapping[str, Any], counts: Mapping[str, Any], until: str | None, cases: Collection[str]
) -> bool:
    at = (change["event"] or change)["opened_at"]
    ended = until is not None and at >= datetime.fromisoformat(until)
    own = series_of(change["key"])["case"] in cases  # which names the device, too
    return own and at >= datetime.fromisoformat(counts["begun"]) and not ended


_FOLLOWING = ("latency_p95_ns", "gross_mj", "host_dispatch_ns")
"""Metrics that change because the time of a step does."""


def _find_lead(changes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The largest change, but the step time's where others of its case follow from it."""
    steps = {_name_case(each) for each in changes if each["key"].metric == STEP_TIME}
    leading = [
        each
        for each in changes
        if each["key"].metric not in _FOLLOWING or _name_case(each) not in steps
    ]
    return max(leading, key=_size)


def _name_case(change: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(getattr(change["key"], name) for name in _CASE)


def _seems_changed(suspicion: Mapping[str, Any]) -> bool:
    """Whether its nights show a change that matters; those of others only don't exclude one."""
    return _size(suspicion) >= math.log1p(suspicion["metric"].tracked_scale.smallest)


def write_run_verdict(campaign: Campaign) -> str:
    """The verdict of a campaign that is not a night: who is faster in its leading pair; of many
    versions of a framework, in how many cases they are compared."""
    ratios = campaign.rows("ratios")
    if not any(map(does_count, ratios)):
        return _explain_nothing(count_pairs(campaign), "in this run")
    return _count_versions(ratios) or write_run_headline(ratios)


def _count_versions(ratios: Sequence[Mapping[str, Any]]) -> str:
    """Of a backfill, what was measured: Releases shows what each version changed."""
    pairs = [row for row in ratios if row["kind"] == "cross_version"]
    versions = defaultdict[str, set[str]](set)
    for row in pairs:
        versions[row["a_framework"]] |= {row["a_version"], row["b_version"]}
    framework, found = max(versions.items(), key=lambda each: len(each[1]), default=("", ()))
    if len(found) < _FEWEST_VERSIONS:
        return ""
    cases = {(row["workload"], row["case_name"]) for row in pairs}
    counting = {(row["workload"], row["case_name"]) for row in pairs if does_count(row)}
    number = format_count(len(cases), "case")
    without = len(cases - counting)
    some = f" ({without} without a pair that counts)" if without else ""
    return (
        f"{len(found)} versions of {FRAMEWORK_NAMES[framework]} were compared on {number}{some}. "
        "Releases shows what each changed."
    )


def write_run_headline(ratios: Sequence[dict[str, Any]]) -> str:
    """The verdict on the first of the newest pairs: fair first, training before inference, by name.

    The order ignores the values: a headline that picks the largest ratio misleads. Without a pair
    that counts among them, the first ratio that does. What measures the device leads only where
    nothing else counts.
    """
    counted = list(filter(does_count, ratios))
    workloads = {row["workload"] for row in counted}
    leading = workloads.difference(NO_FRAMEWORKS) or workloads
    counted = [row for row in counted if row["workload"] in leading]
    newest = filter(does_count, newest_pair_rows(ratios))
    pairs = [row for row in newest if row["workload"] in leading]
    if not pairs:
        return f"On this machine, {_describe_in_words(counted[0])}."
    lead = min(pairs, key=_rank)
    sentence = _describe_in_words(lead)
    if not is_fair(lead):
        sentence += "; the fair pair, PyTorch compiled, does not count"
    against = [pair for pair in pairs if _opposes(pair, lead)]
    if against:
        winner = "PyTorch" if lead["log_ratio"] > 0 else "JAX"
        sentence += f", and {winner} is faster on {_list_cases(against)}"
    return f"On this machine, {sentence}."


def _describe_in_words(row: dict[str, Any]) -> str:
    return describe_ratio(row).replace(case_label(row), name_case_in_words(row))


def _opposes(pair: dict[str, Any], lead: dict[str, Any]) -> bool:
    """Whether a fair pair shows the other framework ahead, which a headline must not hide."""
    if lead["verdict"] != "different" or pair["verdict"] != "different" or not is_fair(pair):
        return False
    return (pair["log_ratio"] > 0) != (lead["log_ratio"] > 0)


def _list_cases(pairs: list[dict[str, Any]]) -> str:
    cases = [name_case_in_words(pair) for pair in sorted(pairs, key=_rank)]
    rest = len(cases) - _MOST_NAMES
    return "; ".join(cases[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _rank(pair: dict[str, Any]) -> tuple[bool, bool, int, str]:
    """Sort key: the lowest pair is the headline."""
    use_case = pair["use_case"]
    place = _USE_CASES.index(use_case) if use_case in _USE_CASES else len(_USE_CASES)
    return not is_fair(pair), pair["verdict"] == "unknown", place, case_label(pair)


def _explain_nothing(counts: Mapping[str, Any], when: str = "tonight") -> str:
    if counts["void"] is not None:
        return str(counts["void"])
    if counts["pairs"] == 0:
        return f"Nothing counts {when}: no pair was measured."
    causes = list(counts["causes"].items())
    named = [f"{cause} ({number} of {counts['pairs']} pairs)" for cause, number in causes]
    rest = len(named) - _MOST_CAUSES
    more = f"; and {format_count(rest, 'more cause')}" if rest > 0 else ""
    return f"Nothing counts {when}: {'; '.join(named[:_MOST_CAUSES])}{more}."


def describe_change(change: Mapping[str, Any]) -> str:
    """A change as a sentence: of an event its alert, of a suspicion what the history shows."""
    words, key = name_case_in_words(change["case"]), change["key"]
    alert = ((change["finding"] or {}).get("alert") or {}).get("text")
    if change["event"] is not None and alert:
        coded = name_case(key.workload, key.case_name, key.track)
        return str(alert).partition(" Device: ")[0].replace(coded, words)
    percent, _ = format_changes(*find_size(change))
    noun = change["metric"].noun
    about = f"The {noun} ratio of {words}"
    if change["event"] is not None:
        return f"{about} changed by {percent}; culprit: {find_culprit(change)}."
    since = f"{change['since']:%Y-%m-%d}"
    if not _seems_changed(change):
        unclear = f"whether the {noun} ratio of {words} changed"
        return f"The nights since {since} don't show {unclear}; not measured again yet."
    moved = f"{about} seems to have changed by {percent}, {_find_favoured(change)}, since {since}"
    return f"{moved}; not measured again yet."


def _find_favoured(change: Mapping[str, Any]) -> str:
    """Whom a change of the ratio favours: `in favour of JAX`, or of its newer or older version."""
    key, is_up = change["key"], change["ratio"] > 1
    name = (key.a_arm if is_up else key.b_arm).partition("-")[0]
    which = "" if key.control is None else f"the {'newer' if is_up else 'older'} "
    return f"in favour of {which}{FRAMEWORK_NAMES.get(name, name)}"


def find_culprit(change: Mapping[str, Any]) -> str:
    """The culprit that a confirmation names: `PyTorch`, `infrastructure`, `unknown`."""
    finding = change["finding"] or {}
    culprit = finding.get("culprit") or "not measured again"
    name = str(finding.get("names", {}).get(culprit, culprit))
    return FRAMEWORK_NAMES.get(name, name)


def find_size(change: Mapping[str, Any]) -> Ratio:
    """The ratio of new level to old and its interval: a confirmation's, else the history's."""
    found = find_shift(change["finding"] or {})
    if found.get("log_ratio") is None:
        return change["ratio"], change["low"], change["high"]
    return _read_ratio(found)


def _read_ratio(found: Mapping[str, Any]) -> Ratio:
    """Of a stored judgement that has one."""
    low, high = (None if found[end] is None else math.exp(found[end]) for end in ("low", "high"))
    return math.exp(found["log_ratio"]), low, high


def find_effect(change: Mapping[str, Any]) -> Ratio | None:
    """The culprit's new amount of the metric over its old one, and the interval; None where no one
    side is the culprit."""
    finding = change["finding"] or {}
    culprit = finding.get("culprit")
    effect = finding.get(culprit) if culprit in ("a", "b") else None
    if not effect or effect["log_ratio"] is None:
        return None
    return _read_ratio(effect)


def _size(change: Mapping[str, Any]) -> float:
    return abs(math.log(change["ratio"]))


def _count_others(count: int, noun: str) -> str:
    return "" if count <= 0 else f" And {format_count(count, f'other {noun}')}."
