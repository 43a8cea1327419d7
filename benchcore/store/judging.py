"""Judges the duels of the database: what is marked or unchecked takes no part in ratios."""

from __future__ import annotations

from sqlalchemy import Engine

from benchcore.store.queries import duels_to_judge, replace_ratios
from benchcore.store.records import DuelRecord
from benchcore.verdict.ratios import Exclusion, Ratio, judge_duel
from benchcore.verdict.samples import EQUIVALENCE_BOUND

_UNCHECKED = Exclusion(frozenset(), "the data checks have not seen this duel run")


def judge_campaign(
    engine: Engine, campaign: str, equivalence_bound: float = EQUIVALENCE_BOUND
) -> list[Ratio]:
    """Judge every duel run of a campaign again, and keep the ratios in the database."""
    ratios = []
    for record in duels_to_judge(engine, campaign):
        of_record = judge_record(record, equivalence_bound)
        replace_ratios(engine, record.duel_run, of_record)
        ratios += of_record
    return ratios


def judge_record(record: DuelRecord, equivalence_bound: float = EQUIVALENCE_BOUND) -> list[Ratio]:
    """The ratios of one duel run, less what its marks exclude."""
    return judge_duel(record.sides, exclusions_of(record), equivalence_bound)


def exclusions_of(record: DuelRecord) -> list[Exclusion]:
    """What takes no part: a marked pair, all pairs of a marked contender, or of a marked duel."""
    marked = [Exclusion(mark.names, mark.reason) for mark in record.marks]
    return marked if record.checked else [_UNCHECKED, *marked]
