"""Numbers and names to words: as many digits as the interval justifies, and never a made-up 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

NOT_MEASURED = "not measured"
FRAMEWORKS = {"jax": "JAX", "torch": "PyTorch", "stdlib": "Python"}
_ARMS = {"jax-jit": "", "torch-compile": "compiled", "torch-eager": "eager", "stdlib": ""}
_MAX_DECIMALS = 3


def is_missing(value: object) -> bool:
    """True of None, NA, NaN, NaT and infinities."""
    if value is None or value is pd.NA or value != value:
        return True
    return isinstance(value, float) and not math.isfinite(value)


def one_line(value: object, *, missing: str = NOT_MEASURED) -> str:
    """Text of a cell that may be empty."""
    return missing if is_missing(value) or value == "" else str(value)


def case_label(row: Mapping[str, Any]) -> str:
    """`mlp train_b128`, with the track where it is not the default one."""
    label = f"{row['workload']} {row['case_name']}"
    track = row.get("track", "default")
    return label if is_missing(track) or track in ("default", "") else f"{label} ({track})"


def arm_word(arm: str) -> str:
    """What tells a framework's arms apart: `eager`, `compiled`, or nothing."""
    return _ARMS.get(arm, arm.partition("-")[2])


def contender_label(framework: str, version: object, arm: str) -> str:
    """`PyTorch 2.15.0 compiled`."""
    words = (FRAMEWORKS.get(framework, framework), one_line(version, missing=""), arm_word(arm))
    return " ".join(word for word in words if word)


def side_label(row: Mapping[str, Any], side: str) -> str:
    """`contender_label` of side `a` or `b` of a ratio."""
    return contender_label(
        row[f"{side}_framework"], row[f"{side}_version"], str(row[f"{side}_arm"])
    )


def num_decimals(low: float, high: float) -> int:
    """Decimals that an interval of speedups justifies: its half-width shows one or two digits."""
    half_width = (high - low) / 2
    if half_width <= 0:
        return _MAX_DECIMALS
    wanted = max(0, min(_MAX_DECIMALS, math.ceil(-math.log10(half_width))))
    # A bound that is not 1 must not read as 1: it decides the verdict.
    while wanted < _MAX_DECIMALS and any(
        float(f"{bound:.{wanted}f}") == 1 != bound for bound in (low, high)
    ):
        wanted += 1
    return wanted


def format_speedup(log_ratio: float, low: float, high: float) -> str:
    """`1.42x (1.38 to 1.47)` of natural logs; says so where there is no value or interval."""
    if is_missing(log_ratio):
        return NOT_MEASURED
    if is_missing(low) or is_missing(high):
        return f"{math.exp(log_ratio):.2f}x (interval {NOT_MEASURED})"
    decimals = num_decimals(math.exp(low), math.exp(high))
    while decimals < _MAX_DECIMALS and float(f"{math.exp(log_ratio):.{decimals}f}") == 0:
        decimals += 1  # no speedup is 0
    middle, left, right = (f"{math.exp(log):.{decimals}f}" for log in (log_ratio, low, high))
    return f"{middle}x ({left} to {right})"


def describe_ratio(row: Mapping[str, Any]) -> str:
    """One sentence without its full stop: who is how many times as fast as whom, and on what."""
    a, b, case = side_label(row, "a"), side_label(row, "b"), case_label(row)
    log_ratio, low, high = row["log_ratio"], row["low"], row["high"]
    if is_missing(log_ratio):
        return f"{a} against {b} was {NOT_MEASURED} on {case}"
    if row["verdict"] == "same":
        return (
            f"{a} and {b} run at the same speed on {case}: {format_speedup(log_ratio, low, high)}"
        )
    if row["verdict"] == "different":
        if log_ratio < 0:
            a, b, log_ratio, low, high = b, a, -log_ratio, -high, -low
        return f"{a} is {format_speedup(log_ratio, low, high)} as fast as {b} on {case}"
    measured = "seen in one start, a suspicion only" if is_suspicion(row) else "measured"
    return (
        f"whether {a} or {b} is faster on {case} is unknown"
        f" ({measured}: {format_speedup(log_ratio, low, high)})"
    )


def is_suspicion(row: Mapping[str, Any]) -> bool:
    """Whether one start alone says so: it makes us ask, and holds for nothing else."""
    return row["scope"] == "this start"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    # Round first: 0.9997 has its digits as 1.00 has.
    magnitude = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - magnitude)}f}"


def format_ns(ns: float | None) -> str:
    """A duration to three digits with the unit that suits it."""
    if ns is None or is_missing(ns):
        return NOT_MEASURED
    for unit, scale in (("ns", 1.0), ("\u00b5s", 1e3), ("ms", 1e6)):
        if abs(ns) < 999.5 * scale:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{_three_digits(ns / 1e9)} s"


def format_seconds(seconds: float | None) -> str:
    """A duration given in seconds; minutes and hours where it is long."""
    if seconds is None or is_missing(seconds):
        return NOT_MEASURED
    if seconds < 120:
        return format_ns(seconds * 1e9)
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_bytes(num_bytes: float | None) -> str:
    """Memory in MiB or GiB."""
    if num_bytes is None or is_missing(num_bytes):
        return NOT_MEASURED
    mib = num_bytes / 2**20
    return f"{_three_digits(mib)} MiB" if mib < 1000 else f"{_three_digits(mib / 1024)} GiB"


def format_average(number: float | None) -> str:
    """A count a step, which need not be whole."""
    return NOT_MEASURED if number is None or is_missing(number) else f"{number:.4g}"


def format_rate(per_s: float | None) -> str:
    """Of a throughput: three digits, thousands as `12.3k`."""
    if per_s is None or is_missing(per_s):
        return NOT_MEASURED
    return _three_digits(per_s) if per_s < 999.5 else f"{_three_digits(per_s / 1e3)}k"


def format_energy(millijoules: float | None) -> str:
    """Energy in mJ, J or kJ."""
    if millijoules is None or is_missing(millijoules):
        return NOT_MEASURED
    if abs(millijoules) < 999.5:
        return f"{_three_digits(millijoules)} mJ"
    if abs(millijoules) < 999.5e3:
        return f"{_three_digits(millijoules / 1e3)} J"
    return f"{_three_digits(millijoules / 1e6)} kJ"


def format_factor(factor: float | None) -> str:
    """`1.04x`, `16.3x`, `365x`: three digits."""
    if factor is None or is_missing(factor):
        return NOT_MEASURED
    decimals = 2 if abs(factor) < 10 else 1 if abs(factor) < 100 else 0
    return f"{factor:.{decimals}f}x"


def format_relative(value: float | None) -> str:
    """A relative difference or a tolerance, in the form that people compare: `3.1e-06`."""
    return NOT_MEASURED if value is None or is_missing(value) else f"{value:.1e}"


def format_share(part: float | None, whole: float | None) -> str:
    """`61 %`."""
    if part is None or whole is None or is_missing(part) or is_missing(whole) or whole <= 0:
        return NOT_MEASURED
    return f"{100 * part / whole:.0f} %"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """`1 pair`, `2 pairs`, `no pair`."""
    if count == 0:
        return f"no {noun}"
    return f"1 {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def format_range(values: list[int]) -> str:
    """`5`, or `3 to 5` where they differ."""
    if not values:
        return NOT_MEASURED
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
