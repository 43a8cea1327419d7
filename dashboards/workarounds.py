"""Workarounds in words, for the page and the console: still needed or not, and at what price."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.wording import arm_word, format_speedup

_HIGHEST = {None: "", "ok": "; with precision highest, a different case, it ran"}


def describe_workarounds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The rows of `benchcore.store.workarounds.list_workarounds`."""
    return [
        {
            "case": _describe_case(row),
            "needs": row["needs"],
            "cure": _describe_cure(row),
            "price": _describe_price(row),
            "evidence": f"{row['hlo']}: {row['hlo_command']}" if row["hlo"] else "no HLO was kept",
        }
        for row in rows
    ]


def _describe_case(row: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (row["case"], f"JAX {arm_word(row['arm'])}".strip())))


def _describe_cure(row: Mapping[str, Any]) -> str:
    otherwise = "; nor did it run with precision highest, a different case"
    return (row["cure"] or "nothing") + _HIGHEST.get(row["highest"], otherwise)


def _describe_price(row: Mapping[str, Any]) -> str:
    price = row["price"]
    if price:
        logs = [math.log(price[key]) for key in ("factor", "low", "high")]
        return f"{format_speedup(*logs)} the time of {price['case']} ({price['version']})"
    if row["price_command"]:
        return f"not measured; run {row['price_command']}"
    if row["cure"] and "plain retry" not in row["cure"]:
        return "not measured: nothing of this contender ran clean"
    return "no flag to pay for"
