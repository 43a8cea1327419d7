"""Runs those suites alone that a file of tests names as SUITES: all take a second each time."""

from __future__ import annotations

import pytest

from data_checks.suites import list_suites


@pytest.fixture(autouse=True)
def suites_of_the_file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    names = getattr(request.module, "SUITES", None)
    if names is not None:
        assert {name for name, *_ in list_suites()} >= names
        monkeypatch.setattr(
            "data_checks.suites.list_suites",
            lambda: (each for each in list_suites() if each[0] in names),
        )
