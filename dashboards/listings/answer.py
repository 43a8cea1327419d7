"""The answer of a comparison as text: its sentences, and the whole as Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchcore.names import format_percent
from dashboards.formatting import describe_verdict, format_ns, format_relative

_ENDS = {
    "target": "until the interval was narrow enough",
    "budget": "until its time was spent",
    "max_starts": "the requested maximum",
    "no_pair": "as one of them did not run",
}


def write_answer(found: Mapping[str, Any], failures: Sequence[Mapping[str, Any]], link: str) -> str:
    """The answer as Markdown. Messages of a framework or a user are text there, never markup."""
    verdict = format_verdict(found)
    unknown = found["verdict"] == "unknown"
    reason = "" if unknown else f" ({found['reason']})"
    paragraphs = [
        f"## {_plain(title_answer(found))}",
        "\n".join(_list_rows(found)),
        *([_plain(verdict[0].upper() + verdict[1:] + ".")] if unknown else []),
        _plain(f"Verdict: {found['verdict']}{reason}. Holds for {format_scope(found)}."),
        _plain(format_agreement(found)),
        _plain(format_physics(found)),
        *(
            _plain(f"{each['name']}: {each['status']} in {each['stage']}: {each['reason']}")
            for each in failures
        ),
        _plain(f"Program: {found['program']['summary']}."),
        f"[The duel's page]({link})",
    ]
    return "\n\n".join(paragraphs) + "\n"


def title_answer(found: Mapping[str, Any]) -> str:
    """The verdict in a few words; the reason for `unknown` is shown below."""
    a, b = (found[side]["name"] for side in ("a", "b"))
    if found["verdict"] == "unknown":
        return f"Which of {a} and {b} is faster is unknown"
    return format_verdict(found, a, b)


def _list_rows(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| | a | b |"
    yield "|---|---|---|"
    sides = [found["a"], found["b"]]
    steps = [each["median_step_ns"] for each in sides]
    rows = {
        "contender": [each["name"] for each in sides],
        "status": [each["status"] for each in sides],
        "per step": ["no time that counts" if each is None else format_ns(each) for each in steps],
        "case": [found["case"]] * 2,
    }
    for name, values in rows.items():
        yield f"| {name} | {' | '.join(map(_plain, values))} |"


def _plain(text: object) -> str:
    """Text in one line, escaped for Markdown and HTML."""
    words = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", words)


def format_verdict(found: Mapping[str, Any], a: str = "a", b: str = "b") -> str:
    """The verdict of a comparison as a sentence; `a` and `b` name the sides."""
    low, middle, high = (
        math.nan if found[key] is None else math.log(found[key])
        for key in ("low", "speedup", "high")
    )
    return describe_verdict(a, b, found["verdict"], (middle, low, high), why=found["reason"])


def format_scope(found: Mapping[str, Any]) -> str:
    """What the verdict holds for, and its number of starts."""
    if found["num_starts"] == 0:
        return "nothing: no start gave a ratio"
    if found["scope"] == "this start":
        return "a single start, no interval. One start gives no verdict: run more starts"
    ended = _ENDS[found["stopped_by"]]
    return (
        f"{found['scope']} ({found['node']}, {found['device']}); {found['num_starts']} starts, "
        f"{ended}; 95 % interval"
    )


def format_physics(found: Mapping[str, Any]) -> str:
    """Whether the steps could be compared with the device's ceilings."""
    shares = [found[side]["limit_share"] for side in ("a", "b")]
    if None in shares:
        return "Physics: not judged, as a step or the ceilings of this device were not measured."
    most = format_percent(max(shares))
    return f"Physics: the fastest step reaches {most} of what the device allows."


def format_agreement(found: Mapping[str, Any]) -> str:
    """Whether both computed the same, and how closely."""
    if found["outputs_agree"] is None:
        return "Outputs: not compared."
    rows = [
        f"{row['quantity']} {_format_distance(row['max_relative'])}"
        f" (tolerance {format_relative(row['tolerance'])})"
        for row in found["outputs"]
    ]
    return f"Outputs {'agree' if found['outputs_agree'] else 'DIFFER'}: {', '.join(rows)}."


def _format_distance(max_relative: float | None) -> str:
    return "identical" if max_relative == 0 else f"within {format_relative(max_relative)}"
