"""The campaign in sentences: the headline, and one answer per section of the page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dashboards.formatting import (
    case_label,
    contender_label,
    describe_ratio,
    format_count,
    is_missing,
    one_line,
)
from dashboards.frames import NightSummary, counting, is_fair, keep, newest_pairs, version_pairs

_MAX_NAMES = 4
_USE_CASES = ("train", "infer")


def write_headline(ratios: pd.DataFrame, night: NightSummary) -> str:
    """The verdict on the leading pair: fair first, training before inference, then by name.

    The order ignores the values: a headline that picks the largest ratio misleads.
    """
    if night.void is not None:
        return night.void
    pairs = newest_pairs(ratios)
    pairs = keep(pairs, counting(pairs))
    if pairs.empty and "cross_framework" not in set(ratios["kind"]) and counting(ratios).any():
        first = keep(ratios, counting(ratios)).to_dict("records")[0]
        return f"On this machine {_occasion(night)}, {describe_ratio(first)}."
    if pairs.empty:
        return f"Nothing counts {_occasion(night)}: no pair of JAX and PyTorch passed every check."
    lead = min(pairs.to_dict("records"), key=_rank)
    sentence = describe_ratio(lead)
    if not is_fair(lead):
        sentence += "; the fair pair, PyTorch compiled, does not count"
    against = [pair for pair in pairs.to_dict("records") if _opposes(pair, lead)]
    if against:
        winner = "PyTorch" if lead["log_ratio"] > 0 else "JAX"
        sentence += f", and {winner} is faster on {_list_cases(against)}"
    return f"On this machine {_occasion(night)}, {sentence}."


def _occasion(night: NightSummary) -> str:
    return "tonight" if night.campaign.startswith("night") else "in this campaign"


def _opposes(pair: dict[str, Any], lead: dict[str, Any]) -> bool:
    """Whether a fair pair shows the other framework ahead, which a headline must not hide."""
    if lead["verdict"] != "different" or pair["verdict"] != "different" or not is_fair(pair):
        return False
    return (pair["log_ratio"] > 0) != (lead["log_ratio"] > 0)


def _list_cases(pairs: list[dict[str, Any]]) -> str:
    cases = [case_label(pair) for pair in sorted(pairs, key=_rank)]
    rest = len(cases) - _MAX_NAMES
    return ", ".join(cases[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _rank(pair: dict[str, Any]) -> tuple[bool, bool, int, str]:
    """Sort key: the lowest pair is the headline."""
    use_case = pair["use_case"]
    place = _USE_CASES.index(use_case) if use_case in _USE_CASES else len(_USE_CASES)
    return not is_fair(pair), pair["verdict"] == "unknown", place, case_label(pair)


def answer_frameworks(ratios: pd.DataFrame) -> str:
    """Which framework is faster, over the fair pairs that count."""
    pairs = newest_pairs(ratios)
    fair = [pair for pair in pairs.to_dict("records") if is_fair(pair)]
    if not any(_counts(pair) for pair in fair):
        return "Unknown: no pair against PyTorch compiled counts."
    verdicts = _tally(fair, left="PyTorch is faster", right="JAX is faster")
    return f"Against PyTorch compiled, {verdicts}."


def answer_versions(ratios: pd.DataFrame) -> str:
    """Whether a new version changed the speed, and in which direction."""
    pairs = version_pairs(ratios)
    if pairs.empty:
        return "Not measured: no framework ran in two versions."
    if not counting(pairs).any():
        return "Unknown: no pair of versions counts."
    changes: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for pair in pairs.to_dict("records"):
        key = (str(pair["a_framework"]), str(pair["a_version"]), str(pair["b_version"]))
        changes.setdefault(key, []).append(pair)
    return " ".join(_describe_change(*key, changes[key]) for key in sorted(changes))


def _describe_change(framework: str, newer: str, older: str, pairs: list[dict[str, Any]]) -> str:
    verdicts = {pair["verdict"] for pair in pairs if _counts(pair)}
    moved, known = "different" in verdicts, bool(verdicts & {"same", "different"})
    answer = "Yes" if moved else "No" if known else "Unknown"
    name = contender_label(framework, newer, "")
    outcomes = _tally(pairs, left=f"{name} is slower", right=f"{name} is faster")
    return f"{answer}: against {older}, {outcomes}."


def _counts(pair: dict[str, Any]) -> bool:
    return bool(pair["counts"]) and not is_missing(pair["log_ratio"])


def _tally(pairs: list[dict[str, Any]], *, left: str, right: str) -> str:
    """`JAX is faster on mlp train_b128; the same speed on ...`, with every pair."""
    groups: dict[str, list[str]] = {}
    order = (right, left, "the same speed", "unknown", "not counted")
    for pair in pairs:
        groups.setdefault(_outcome(pair, left, right), []).append(case_label(pair))
    return "; ".join(
        f"{outcome} on {_name_cases(groups[outcome])}" for outcome in order if outcome in groups
    )


def _outcome(pair: dict[str, Any], left: str, right: str) -> str:
    if not _counts(pair):
        return "not counted"
    if pair["verdict"] == "different":
        return right if pair["log_ratio"] > 0 else left
    return "the same speed" if pair["verdict"] == "same" else "unknown"


def _name_cases(cases: list[str]) -> str:
    names = sorted(set(cases))
    shown = ", ".join(names[:_MAX_NAMES])
    rest = len(names) - _MAX_NAMES
    return shown if rest <= 0 else f"{shown} and {rest} more"


def answer_failures(contenders: pd.DataFrame) -> str:
    """Which contenders failed, and where."""
    failed = keep(contenders, contenders["status"] != "ok").to_dict("records")
    if contenders.empty:
        return "No contender was measured."
    if not failed:
        return f"All {len(contenders)} contenders finished."
    names = [
        f"{contender_label(row['framework'], row['version'], row['arm'])} on {case_label(row)}: "
        f"{row['status']}" + ("" if is_missing(row["stage"]) else f" in stage {row['stage']}")
        for row in failed[:_MAX_NAMES]
    ]
    rest = [f"and {len(failed) - _MAX_NAMES} more"] if len(failed) > _MAX_NAMES else []
    count = format_count(len(failed), "contender")
    return f"{count} of {len(contenders)} not ok: {'; '.join(names + rest)}."


def answer_exclusions(ratios: pd.DataFrame, failed_checks: pd.DataFrame) -> str:
    """How many measured pairs do not count."""
    excluded = int((~counting(ratios)).sum())
    if ratios.empty:
        return "No pair was measured."
    if excluded == 0 and failed_checks.empty:
        return f"All {format_count(len(ratios), 'pair')} count."
    pairs = f"All {format_count(len(ratios), 'pair')} count"
    if excluded:
        verb = "does" if excluded == 1 else "do"
        pairs = f"{excluded} of {format_count(len(ratios), 'pair')} {verb} not count"
    return f"{pairs}; {format_count(len(failed_checks), 'failed check')}."


def answer_history(rows: pd.DataFrame) -> str:
    """How far back the history of this device goes."""
    nights = len(set(rows["campaign"]))
    if nights == 0:
        return "No pair that counts has been recorded on this device yet."
    first, last = rows["started_at"].min(), rows["started_at"].max()
    if nights == 1:
        return f"One campaign so far, on {one_line(first.date())}; a trend needs more."
    return f"{nights} campaigns on this device, {first.date()} to {last.date()}."
