"""What a comparison found: gathered from what its campaign left, and written as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchcore.campaign import load_campaign
from benchcore.comparison import summarise
from benchcore.shard import result_path
from benchcore.state import State
from benchcore.store.bottlenecks import list_bottlenecks
from benchcore.store.database import open_database
from benchcore.store.documents import read_document
from benchcore.store.outcome import list_contenders
from dashboards.wording import format_ns
from flows.commands.compare import say_agreement, say_physics, say_scope, say_verdict


def find_answer(campaign: str, state: State, ratios: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What `summarise` makes of a comparison's campaign, and where its time went."""
    duel = load_campaign(state, campaign).duels[0]  # the others measure the device's ceilings
    engine = open_database(state.database_url)
    found = summarise(
        read_document(result_path(state, campaign, duel.duel_run)),
        [row for row in ratios if row["duel_run"] == duel.duel_run],
        list_contenders(engine, campaign),
    )
    of_campaign = list_bottlenecks(engine, campaign)
    found["why"] = [row for row in of_campaign if row["duel_run"] == duel.duel_run]
    return found


def write_answer(found: Mapping[str, Any], failures: Sequence[Mapping[str, Any]], link: str) -> str:
    """The answer as Markdown. Whatever a framework or a user said is text there, never markup."""
    verdict = say_verdict(found)
    unknown = found["verdict"] == "unknown"
    reason = "" if unknown else f" ({found['reason']})"
    paragraphs = [
        f"## {_plain(title_answer(found))}",
        "\n".join(_list_rows(found)),
        *([_plain(verdict[0].upper() + verdict[1:] + ".")] if unknown else []),
        _plain(f"Verdict: {found['verdict']}{reason}. Holds for {say_scope(found)}."),
        _plain(say_agreement(found)),
        _plain(say_physics(found)),
        *(
            _plain(f"{each['name']}: {each['status']} in {each['stage']}: {each['reason']}")
            for each in failures
        ),
        _plain(f"Program: {found['program']['words']}."),
        f"[The duel's page]({link})",
    ]
    return "\n\n".join(paragraphs) + "\n"


def title_answer(found: Mapping[str, Any]) -> str:
    """The verdict in a few words: why one is unknown is told below."""
    a, b = (found[side]["name"] for side in ("a", "b"))
    if found["verdict"] == "unknown":
        return f"Which of {a} and {b} is faster is unknown"
    return say_verdict(found, a, b)


def _list_rows(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| | a | b |"
    yield "|---|---|---|"
    sides = [found["a"], found["b"]]
    steps = [each["median_step_ns"] for each in sides]
    rows = {
        "contender": [each["name"] for each in sides],
        "status": [each["status"] for each in sides],
        "a step": ["no time that counts" if each is None else format_ns(each) for each in steps],
        "case": [found["case"]] * 2,
    }
    for name, values in rows.items():
        yield f"| {name} | {' | '.join(map(_plain, values))} |"


def _plain(text: object) -> str:
    """Text in one line, of which Markdown and HTML make nothing."""
    words = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", words)
