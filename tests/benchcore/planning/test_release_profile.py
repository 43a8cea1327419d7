"""What is measured of versions that are named."""

from __future__ import annotations

import pytest

from benchcore.errors import UserError
from benchcore.planning.profiles import PROFILES, load_profile
from benchcore.planning.release_profile import compare_versions


@pytest.mark.parametrize("name", sorted({*PROFILES} - {"smoke"}))
@pytest.mark.parametrize(("framework", "other"), [("jax", "torch"), ("torch", "jax")])
@pytest.mark.parametrize("versions", [("2.0", "1.0"), ("3.0", "2.0", "1.0")])
def test_versions_meet_each_other_and_the_other_framework(
    name: str, framework: str, other: str, versions: tuple[str, ...]
) -> None:
    profile = load_profile(name)
    compared = compare_versions(profile, framework, versions, name="release")
    assert compared.matches and compared.name == "release"
    before = {(each.workload, each.case, each.track): each for each in profile.matches}
    for match in compared.matches:
        requests = [arm.request for arm in match.arms]
        counts = [requests.count(f"{framework}=={version}") for version in versions]
        assert len(set(counts[:1] if match.sentinel else counts)) == 1 and counts[0] >= 1
        assert not match.sentinel or not any(counts[1:])
        assert {each for each in requests if each.startswith(other)} <= {
            f"{other}@newest",
            f"{other}@previous",
        }
        assert len({(arm.name, arm.request) for arm in match.arms}) == len(match.arms)
        old = before[match.workload, match.case, match.track]
        assert match.expected_s / old.expected_s == pytest.approx(len(match.arms) / len(old.arms))
        limits, old_limits = compared.limits_of(match), profile.limits_of(old)
        assert limits.budget_s / old_limits.budget_s == pytest.approx(
            len(match.arms) / len(old.arms)
        )


def test_a_profile_without_the_framework_is_refused() -> None:
    with pytest.raises(UserError, match="wanted cases with jax in them, but profile 'smoke' has"):
        compare_versions(load_profile("smoke"), "jax", ("2.0", "1.0"), name="release")
