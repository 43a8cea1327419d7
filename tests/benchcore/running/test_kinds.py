"""Only what `deadheat nightly` named is a night, whatever a campaign's profile measures."""

from __future__ import annotations

import pytest

from benchcore.planning.profiles import PROFILES
from benchcore.running.plans import name_kind, name_night


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"smoke", "ci", "history"}))
def test_a_profile_is_a_night_only_under_the_name_of_one(profile: str) -> None:
    assert name_kind(name_night(profile), profile) == "nightly"
    assert name_kind(f"{profile}-mnist-1-20261127t010203", profile) == "ad-hoc"
    assert name_kind("mine", profile) == "ad-hoc"


@pytest.mark.parametrize("profile", ["smoke", "ci"])
def test_a_trial_of_a_site_is_no_night(profile: str) -> None:
    assert name_kind(name_night(profile), profile) == "ad-hoc"


@pytest.mark.parametrize(
    ("campaign", "profile"),
    [
        ("release-jax-0.12.0-0", "release"),
        ("backfill-jax-1f00ba12", "backfill"),
        ("backfill-jax-1f00ba12", ""),
        ("jax-of-2026", "history"),
        (name_night("history"), "history"),
    ],
)
def test_given_versions_are_releases(campaign: str, profile: str) -> None:
    assert name_kind(campaign, profile) == "release"


def test_a_night_without_its_plan_is_known_by_its_name() -> None:
    assert name_kind(name_night("laptop"), "") == "nightly"
    assert name_kind("compare-mlp-1f00ba12", "unknown") == "ad-hoc"
    assert name_kind("nightly-question", "compare") == "ad-hoc"
