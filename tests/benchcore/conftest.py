"""Fixtures of several files here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from package_index import Index, serve_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """A package index on loopback, which uv is configured to use."""
    with serve_index() as made:
        for name, value in made.settings(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield made
