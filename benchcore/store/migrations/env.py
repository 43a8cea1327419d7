"""Alembic's entry: migrates over the connection that `benchcore.store.database` hands in."""

from __future__ import annotations

from alembic import context

from benchcore.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite alters a table by copying it.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
