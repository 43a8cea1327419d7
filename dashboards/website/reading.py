"""How to read a number, what each check means, what is not measured, and the page Glossary."""

from __future__ import annotations

from benchcore.store.reports.guide import NOT_MEASURED
from dashboards.website import blocks
from dashboards.website.blocks import Block, column
from dashboards.website.glossary import CHECKS, READING, list_terms


def reading_section() -> Block:
    """How to read a number, part by part."""
    pairs = [(term, meaning) for term, meaning in READING]
    glossary = blocks.text("Every word: ", blocks.link("Glossary", "glossary.html"), ".")
    return blocks.section("How to read a number", [blocks.facts(pairs), glossary], id="reading")


def checks_section() -> Block:
    """What each check means that a pair passes before its number counts."""
    columns = (
        column("check", "Check"),
        column("asks", "What it asks"),
        column("fails", "If it fails"),
        column("look", "Where to look"),
    )
    rows = [
        {"check": check, "asks": asks, "fails": fails, "look": blocks.link(*look)}
        for check, asks, fails, look in CHECKS
    ]
    caption = "A pair that fails one check is stored with its reason, and does not count."
    table = blocks.table("gates", caption, columns, rows)
    return blocks.section("What makes a number count", [table], id="gates")


def not_measured_section() -> Block:
    """What no row answers, and why."""
    columns = (column("topic", "Topic"), column("answer", "Answer"), column("why", "Why"))
    rows = [{"topic": topic, "answer": "not measured", "why": why} for topic, why in NOT_MEASURED]
    caption = "People who choose a framework ask these, too, but nothing here measures them."
    table = blocks.table("not-measured", caption, columns, rows)
    return blocks.section("Not measured", [table], id="not-measured")


def glossary_page() -> Block:
    """The content of `glossary.html`: every word with an anchor of its own."""
    terms = list_terms()
    ids = [each.id for each in terms]
    shown = blocks.facts([(each.word, each.meaning) for each in terms], ids=ids)
    lead = "What the words on these pages mean. Each has a link of its own: glossary.html#speedup."
    return blocks.page("Glossary", [shown], lead=lead)
