"""Which campaigns the database has results of."""

from __future__ import annotations

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from benchcore.store.models import DuelRun


def list_campaigns(engine: Engine) -> list[str]:
    """Their names, oldest first."""
    begun = func.min(DuelRun.started_at)
    query = select(DuelRun.campaign).group_by(DuelRun.campaign).order_by(begun, DuelRun.campaign)
    with Session(engine) as session:
        return list(session.scalars(query))
