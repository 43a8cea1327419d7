"""What the page of an event offers: commands that run."""

from __future__ import annotations

import pytest

from benchcore.verdict.history.series import SeriesKey
from dashboards.site.events import list_commands

KEY = SeriesKey(
    workload="mlp",
    case_name="train_b128",
    track="default",
    a_arm="jax-jit",
    b_arm="torch-compile",
    device_fingerprint="f" * 16,
)


@pytest.mark.parametrize("versions", [("0.9.0", "0.10.0"), ("0.10.0", "0.9.0")])
def test_a_search_names_the_older_version_first_also_after_a_release_was_withdrawn(
    versions: tuple[str, str],
) -> None:
    before, after = versions
    change = {
        "key": KEY,
        "event": {"id": 3},
        "versions": {"before": (before, "2.0"), "after": (after, "2.0")},
        "case": {"device": "cpu", "site": "local"},
    }
    compare, search, _ = list_commands(change).splitlines()
    assert "--a jax==0.9.0 --b jax==0.10.0" in compare
    assert "--good 0.9.0 --bad 0.10.0 --event 3" in search
