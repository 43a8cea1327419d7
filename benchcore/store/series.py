"""Reads the series of the database: what counts, of versions that roll with the releases."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Engine, and_, select
from sqlalchemy.orm import Session, aliased

from benchcore.store.models import IS_NO_CALIBRATION_RUN, ContenderRun, DuelRun, PairRatio
from benchcore.verdict.history.series import Night, Series, SeriesKey, make_series

_ROLLING = ("newest", "system")
"""Roles whose version is whatever there is that night; pinned ones have no history."""
IN_SERIES = (
    PairRatio.counts,
    IS_NO_CALIBRATION_RUN,
    PairRatio.kind == "cross_framework",
    PairRatio.a_role.in_(_ROLLING),
    PairRatio.b_role.in_(_ROLLING),
)
"""What a pair of a duel run must be to belong to a series."""
_OF_DUEL = ("workload", "case_name", "track", "device_fingerprint", "method", "checkpoint")


def read_series(engine: Engine, only: SeriesKey | None = None) -> list[Series]:
    """Every series of a ratio across frameworks, less what does not count, in order of their keys;
    or `only` one.

    An A/A duel, and one version against another, has no series: its two sides roll together. Nor
    has a calibration run.
    """
    one, other = aliased(ContenderRun), aliased(ContenderRun)
    query = (
        select(DuelRun, PairRatio, one.environment_key, other.environment_key)
        .join(PairRatio, PairRatio.duel_run == DuelRun.id)
        .join(one, and_(one.duel_run == DuelRun.id, one.name == PairRatio.a))
        .join(other, and_(other.duel_run == DuelRun.id, other.name == PairRatio.b))
        .where(*IN_SERIES)
    )
    if only is not None:
        query = query.where(
            *(
                getattr(DuelRun, name).is_not_distinct_from(getattr(only, name))
                for name in _OF_DUEL
            ),
            PairRatio.a_arm == only.a_arm,
            PairRatio.b_arm == only.b_arm,
        )
    nights = defaultdict[SeriesKey, list[Night]](list)
    with Session(engine) as session:
        for duel, ratio, a_environment, b_environment in session.execute(query):
            assert ratio.log_ratio is not None, "what counts has a ratio"
            key = SeriesKey(
                **{name: getattr(duel, name) for name in _OF_DUEL},
                a_arm=ratio.a_arm,
                b_arm=ratio.b_arm,
            )
            nights[key].append(
                Night(
                    key=key,
                    at=duel.started_at,
                    duel_run=duel.id,
                    log_ratio=ratio.log_ratio,
                    a=ratio.a,
                    b=ratio.b,
                    a_environment=a_environment,
                    b_environment=b_environment,
                )
            )
    return [make_series(nights[key]) for key in sorted(nights, key=lambda key: key.title)]
