"""The headline of a campaign that is no night."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dashboards.formatting import (
    case_label,
    describe_ratio,
)
from dashboards.frames import counting, is_fair, select_rows

_MAX_NAMES = 4
_USE_CASES = ("train", "infer")


def write_headline(ratios: pd.DataFrame, pairs: pd.DataFrame) -> str:
    """The verdict on the first of these pairs: fair first, training before inference, by name.

    The order ignores the values: a headline that picks the largest ratio misleads. Without a pair
    that counts among them, the first ratio that does.
    """
    pairs = select_rows(pairs, counting(pairs))
    if pairs.empty:
        first = select_rows(ratios, counting(ratios)).to_dict("records")[0]
        return f"On this machine, {describe_ratio(first)}."
    lead = min(pairs.to_dict("records"), key=_rank)
    sentence = describe_ratio(lead)
    if not is_fair(lead):
        sentence += "; the fair pair, PyTorch compiled, does not count"
    against = [pair for pair in pairs.to_dict("records") if _opposes(pair, lead)]
    if against:
        winner = "PyTorch" if lead["log_ratio"] > 0 else "JAX"
        sentence += f", and {winner} is faster on {_list_cases(against)}"
    return f"On this machine, {sentence}."


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
