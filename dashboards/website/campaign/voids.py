"""Why pairs do not count: causes in words, counted, and each pair with its reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchcore.names import describe_status, name_case_in_words
from benchcore.planning.matrix import PlannedDuel
from dashboards.formatting import is_missing, one_line, side_label
from dashboards.frames import does_count
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.gather import Campaign

_LONGEST, _LONGEST_CAUSE = 240, 80
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(\.\d+)?(e[+-]?\d+)?(?![\w.])")
"""Pairs with other numbers have the same cause. A version is no number."""
MOST_PAIRS = 20
"""Pairs that a table shows at once; more are folded."""


def shorten(reason: object) -> str:
    """The first line of a reason, at most 240 characters."""
    line = one_line(reason, missing="no reason recorded").strip().splitlines()
    text = line[0] if line else "no reason recorded"
    return _cut(text, _LONGEST)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}\u2026"


Contenders = Mapping[tuple[str, str], Mapping[str, Any]]
"""Their rows by duel run and name."""


def explain(row: Mapping[str, Any], contenders: Contenders) -> str:
    """Why a pair does not count: the failure of the side that ended badly, else the first check
    that failed."""
    for side, found in _list_failed(row, contenders):
        if not is_missing(found["reason"]):
            stage = one_line(found["stage"], missing="before its first stage")
            return shorten(f"{side_label(row, side)}, {stage}: {found['reason']}")
    return shorten(row["reason"])


def _list_failed(
    row: Mapping[str, Any], contenders: Contenders
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The sides of a pair that ended badly, and their contenders."""
    for side in ("a", "b"):
        found = contenders.get((row["duel_run"], row[side]), {})
        if found.get("status", "ok") != "ok":
            yield side, found


def _find_cause(row: Mapping[str, Any], contenders: Contenders) -> str:
    """The cause of a void pair in a few words: a failed contender, settings, or a check."""
    for _, found in _list_failed(row, contenders):
        return f"a contender {describe_status(found['status'])}"
    if row["violations"]:
        return "the two sides had different settings"
    if is_missing(row["log_ratio"]) and not row["reason"]:
        return "not measured"
    reason = str(row["reason"]).removeprefix(f"{row['a']}: ").removeprefix(f"{row['b']}: ")
    first = re.split("[:;]", reason, maxsplit=1)[0].strip()
    return _cut(_NUMBER.sub("\u2026", first), _LONGEST_CAUSE) or "no reason recorded"


def index_contenders(campaign: Campaign) -> dict[tuple[str, str], dict[str, Any]]:
    """The contenders' rows by duel run and name."""
    rows = campaign.rows("contenders")
    return {(row["duel_run"], row["name"]): row for row in rows}


def count_causes(campaign: Campaign) -> Counter[str]:
    """How many pairs do not count, by cause."""
    return Counter(each.cause for each in _list_voids(campaign))


@dataclass(frozen=True)
class _Void:
    """A pair that does not count."""

    row: Mapping[str, Any]
    cause: str
    reason: str


def _list_voids(campaign: Campaign) -> list[_Void]:
    contenders = index_contenders(campaign)
    void = [row for row in campaign.rows("ratios") if not does_count(row)]
    return [_Void(row, _find_cause(row, contenders), explain(row, contenders)) for row in void]


def list_unmeasured(campaign: Campaign) -> list[PlannedDuel]:
    """The planned duels without a result; none where the plan is not known."""
    planned = () if campaign.plan is None else campaign.plan.duels
    measured = set(campaign.runs)
    return [each for each in planned if each.duel_run not in measured]


def list_section(campaign: Campaign) -> Block | None:
    """The pairs that do not count with their reasons, and the duels without a result; None if all
    were measured and count."""
    listed = [*_list_pairs(campaign), _unmeasured_table(campaign)]
    kept = [each for each in listed if each is not None]
    return blocks.section("What does not count, and why?", kept, id="voids") if kept else None


def _unmeasured_table(campaign: Campaign) -> Block | None:
    rows = [{"duel": each.title} for each in list_unmeasured(campaign)]
    caption = (
        "Planned, but without a result: the campaign was ended, or the duel's process or node was "
        "lost. The same command measures what is missing."
    )
    return blocks.table("unmeasured", caption, [column("duel", "Duel")], rows)


def _list_pairs(campaign: Campaign) -> list[Block | None]:
    found = _list_voids(campaign)
    if not found:
        return []
    rows = [
        {
            "case": blocks.link(
                name_case_in_words(each.row), f"duel.html#run={each.row['duel_run']}"
            ),
            "pair": f"{side_label(each.row, 'a')} against {side_label(each.row, 'b')}",
            "cause": each.cause,
            "reason": each.reason,
        }
        for each in found
    ]
    columns = (
        column("case", "Case"),
        column("pair", "Pair"),
        column("cause", "Cause", lead=True),
        column("reason", "Reason"),
    )
    caption = "Measured, but not counted. The duel shows its times and failed checks."
    listed = [blocks.table("voids", caption, columns, rows)]
    if len(found) > MOST_PAIRS:
        summary = f"{len(found)} pairs, each with its reason"
        listed = [_cause_table(found), blocks.details(summary, listed)]
    return listed


def _cause_table(found: Sequence[_Void]) -> Block | None:
    count = Counter((name_case_in_words(each.row), each.cause) for each in found)
    rows = [
        {"case": case, "cause": cause, "pairs": pairs}
        for (case, cause), pairs in count.most_common()
    ]
    columns = (
        column("case", "Case"),
        column("cause", "Cause", lead=True),
        column("pairs", "Pairs", align="number", lead=True),
    )
    caption = "Measured, but not counted, by cause."
    return blocks.table("causes", caption, columns, rows)
