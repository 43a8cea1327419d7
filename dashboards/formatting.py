"""Format numbers, names and verdicts: as many digits as the interval justifies, never a fake 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from benchcore.names import contender_label, format_percent
from benchcore.protocol import DEFAULT_TRACK, name_case
from benchcore.store.metrics import Metric, Unit
from benchcore.verdict.samples import swap_sides

NOT_MEASURED = "not measured"
_MAX_DECIMALS = 3
_MOST_DECIMALS = 6
"""Of a number without an interval."""


def is_missing(value: object) -> bool:
    """True for None, pandas' NA, NaN, NaT and infinities."""
    if type(value) is float:  # most are
        return not math.isfinite(value)
    if value is None or type(value).__name__ == "NAType" or value != value:
        return True
    return isinstance(value, float) and not math.isfinite(value)


def one_line(value: object, *, missing: str = NOT_MEASURED) -> str:
    """Text of a cell that may be empty."""
    return missing if is_missing(value) or value == "" else str(value)


def case_label(row: Mapping[str, Any]) -> str:
    """`mlp train_b128`, with the track where it is not the default one."""
    track = row.get("track")
    known = DEFAULT_TRACK if is_missing(track) or track == "" else str(track)
    return name_case(row["workload"], row["case_name"], known)


_LABELLED = ("framework", "version", "arm")


def _label(framework: str, version: object, arm: str) -> str:
    return contender_label(framework, None if is_missing(version) else str(version), arm)


def side_label(row: Mapping[str, Any], side: str) -> str:
    """`contender_label` of side `a` or `b` of a ratio."""
    return _label(*(row[f"{side}_{each}"] for each in _LABELLED))


def name_contender(row: Mapping[str, Any]) -> dict[str, str]:
    """The columns that name a contender: `case`, `contender` and its own `name`."""
    label = _label(*(row[each] for each in _LABELLED))
    return {"case": case_label(row), "contender": label, "name": str(row["name"])}


def num_decimals(low: float, high: float) -> int:
    """Decimals that an interval of speedups justifies: its half-width shows one or two digits."""
    wanted = _justify((high - low) / 2)
    # A bound that is not 1 must not read as 1: it decides the verdict.
    while wanted < _MAX_DECIMALS and any(
        float(f"{bound:.{wanted}f}") == 1 != bound for bound in (low, high)
    ):
        wanted += 1
    return wanted


def format_changes(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """`+5.2 %` of 1.052, and its interval `+4.9 % to +5.5 %`, with as many digits as it justifies.
    Where there is none, "" and two digits."""
    if low is None or high is None or is_missing(low) or is_missing(high):
        return _write_percent(f"{100 * (ratio - 1):+.2g}"), ""
    decimals = _justify(50 * (high - low))
    # A bound that is not 0 must not read as 0: it decides the verdict.
    while decimals < _MAX_DECIMALS and any(
        float(f"{100 * (end - 1):.{decimals}f}") == 0 != end - 1 for end in (low, high)
    ):
        decimals += 1
    texts = (_write_percent(f"{100 * (each - 1):+.{decimals}f}") for each in (ratio, low, high))
    middle, *ends = texts
    return middle, " to ".join(ends)


def format_amounts(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """`1.09x` of a new amount over an old one, and its interval `1.08x to 1.10x`, with as many
    digits as it justifies. Where there is none, "" and three digits."""
    if low is None or high is None or is_missing(low) or is_missing(high):
        return format_factor(ratio), ""
    decimals = _show_all(ratio, num_decimals(low, high))
    return f"{ratio:.{decimals}f}x", f"{low:.{decimals}f}x to {high:.{decimals}f}x"


def _write_percent(number: str) -> str:
    """Zero has no sign: `-0` is `0 %`."""
    shown = number if float(number) else number.lstrip("+-")
    return f"{shown} %".replace("-", "\u2212")


def _justify(half_width: float) -> int:
    if half_width <= 0:
        return _MAX_DECIMALS
    return max(0, min(_MAX_DECIMALS, math.ceil(-math.log10(half_width))))


def _show_all(ratio: float, decimals: int) -> int:
    """More decimals where the ratio would read as 0, which no speedup is."""
    while decimals < _MAX_DECIMALS and float(f"{ratio:.{decimals}f}") == 0:
        decimals += 1
    return decimals


_WIDEST = math.log(1e6)


def to_ratio(log_ratio: float) -> float:
    """The ratio of a log ratio, at most 1e6 and at least 1e-6: the interval of two starts that
    differ may end far beyond what a page can show."""
    return math.exp(max(-_WIDEST, min(log_ratio, _WIDEST)))


def to_plotted_ratio(log_ratio: float | None) -> float | None:
    """Six digits of a log ratio's ratio; None where it is missing. Never 0, which a log axis has
    no place for."""
    if log_ratio is None or is_missing(log_ratio):
        return None
    return float(f"{to_ratio(log_ratio):.6g}")


def format_speedup(log_ratio: float, low: float, high: float) -> str:
    """`1.42x (1.38 to 1.47)` from natural logs; what is missing is `not measured`."""
    if is_missing(log_ratio):
        return NOT_MEASURED
    if is_missing(low) or is_missing(high):
        return f"{format_factor(to_ratio(log_ratio))} (interval {NOT_MEASURED})"
    decimals = _show_all(to_ratio(log_ratio), num_decimals(to_ratio(low), to_ratio(high)))
    left, right = (f"{to_ratio(log):.{decimals}f}" for log in (low, high))
    return f"{to_ratio(log_ratio):.{decimals}f}x ({left} to {right})"


def format_size(log_ratio: float, low: float, high: float) -> str:
    """`1.42x` from natural logs: with the digits that its interval justifies, but without it."""
    if any(is_missing(each) for each in (log_ratio, low, high)):
        return format_factor(None if is_missing(log_ratio) else to_ratio(log_ratio))
    ratio = to_ratio(log_ratio)
    return f"{ratio:.{_show_all(ratio, _justify((to_ratio(high) - to_ratio(low)) / 2))}f}x"


def describe_verdict(
    a: str, b: str, verdict: str, logs: tuple[float, float, float], where: str = "", why: str = ""
) -> str:
    """`JAX is 1.42x (1.38 to 1.47) as fast as PyTorch on mlp infer_b1`: the faster side first.

    `logs` are log(T_b / T_a) and the ends of its interval, NaN where missing; `why` is the reason
    of an unknown verdict.
    """
    log_ratio, low, high = logs
    speedup = format_speedup(log_ratio, low, high)
    if verdict == "unknown" or is_missing(log_ratio):
        measured = "" if is_missing(log_ratio) else f"measured {a} {speedup} as fast as {b}"
        reasons = "; ".join(filter(None, (measured, why))) or NOT_MEASURED
        return f"which of {a} and {b} is faster{where} is unknown: {reasons}"
    if verdict == "same":
        return f"{a} and {b} are equally fast{where}: {speedup}"
    if log_ratio < 0:
        a, b, speedup = b, a, format_speedup(*swap_sides(log_ratio, low, high))
    return f"{a} is {speedup} as fast as {b}{where}"


def describe_ratio(row: Mapping[str, Any]) -> str:
    """The verdict of a row of ratios as one sentence, without its full stop."""
    a, b, where = side_label(row, "a"), side_label(row, "b"), f" on {case_label(row)}"
    logs = (row["log_ratio"], row["low"], row["high"])
    if is_single_start(row) and not is_missing(logs[0]):
        fast, slow = (a, b) if logs[0] >= 0 else (b, a)
        speedup = format_factor(to_ratio(abs(logs[0])))
        return f"{fast} was {speedup} as fast as {slow}{where} in a single start, no interval"
    return describe_verdict(a, b, row["verdict"], logs, where)


def is_single_start(row: Mapping[str, Any]) -> bool:
    """Whether the ratio rests on a single start, which has no interval."""
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
    """Memory in MiB, `1,413 MiB`: both sides of a pair, and all rows of a table, in one unit."""
    if num_bytes is None or is_missing(num_bytes):
        return NOT_MEASURED
    mib = num_bytes / 2**20
    return f"{_three_digits(mib)} MiB" if mib < 999.5 else f"{mib:,.0f} MiB"


def format_average(number: float | None) -> str:
    """An average count per step, which may be fractional."""
    return NOT_MEASURED if number is None or is_missing(number) else f"{number:.4g}"


def format_rate(per_s: float | None) -> str:
    """Items per second: three digits, thousands as `12.3k`."""
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
    """`1.04x`, `16.3x`, `365x`: three digits, and more decimals where it would read as 0."""
    if factor is None or is_missing(factor):
        return NOT_MEASURED
    decimals = 2 if abs(factor) < 10 else 1 if abs(factor) < 100 else 0
    while factor and decimals < _MOST_DECIMALS and float(f"{factor:.{decimals}f}") == 0:
        decimals += 1
    return f"{factor:.{decimals}f}x"


def format_metric(metric: Metric, value: float | None) -> str:
    """A metric's value in its unit, or that it was not measured."""
    return _FORMATS[metric.unit](value)


def format_relative(value: float | None) -> str:
    """A relative difference or a tolerance: `3.1e-06`."""
    return NOT_MEASURED if value is None or is_missing(value) else f"{value:.1e}"


def format_share(part: float | None, whole: float | None) -> str:
    """`61 %`."""
    if part is None or whole is None or is_missing(part) or is_missing(whole) or whole <= 0:
        return NOT_MEASURED
    return format_percent(part / whole)


def format_count(count: int, noun: str, plural: str = "") -> str:
    """`1 pair`, `2 pairs`, `no pair`."""
    if count == 0:
        return f"no {noun}"
    return f"1 {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


_FORMATS: Mapping[Unit, Callable[[float | None], str]] = {
    "ns": format_ns,
    "s": format_seconds,
    "bytes": format_bytes,
    "mj": format_energy,
    "per_s": format_rate,
    "factor": format_factor,
    "count": format_average,
}
