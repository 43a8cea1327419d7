"""What a night's headline names: a confirmed change before a suspicion, and only what matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.store.metrics import find_tracked
from benchcore.verdict.history.series import STEP_TIME, SeriesKey
from dashboards.website.campaign.news import describe_change, write_verdict
from dashboards.website.campaign.tonight import title_campaign
from dashboards.website.pairs import series_of

NIGHT = datetime(2026, 3, 5, 3, tzinfo=UTC)
COUNTS = {"counting": 4, "cases": 4, "begun": NIGHT.isoformat(), "fingerprint": "f" * 16}
KEY = SeriesKey(
    workload="mlp",
    case_name="train_b128",
    track="default",
    a_arm="jax-jit",
    b_arm="torch-compile",
    device_fingerprint="f" * 16,
)
CASES = {series_of(KEY)["case"]}


def _suspicion(ratio: float) -> dict[str, Any]:
    return {
        "ratio": ratio,
        "state": "open",
        "event": None,
        "finding": None,
        "opened_at": NIGHT,
        "since": date(2026, 3, 2),
        "case": {
            "workload": "mlp",
            "case_name": "train_b128",
            "use_case": "train",
            "batch": 128,
            "precision": "fp32",
        },
        "key": KEY,
        "metric": find_tracked(STEP_TIME),
        "low": None,
        "high": None,
    }


@pytest.mark.parametrize(("ratio", "is_news"), [(1.004, False), (0.97, True)])
def test_only_a_suspicion_that_shows_a_change_leads_the_headline(
    ratio: float, is_news: bool
) -> None:
    """Noisy nights after a release are measured again although they show nothing."""
    headline = write_verdict(COUNTS, None, [_suspicion(ratio)], cases=CASES)
    assert headline.startswith("The step time ratio of") is is_news
    assert (headline == "Nothing changed in 4 cases.") is not is_news
    sentence = describe_change(_suspicion(ratio))
    assert ("seems to have changed" in sentence) is is_news
    assert sentence.endswith("not measured again yet.")


def test_the_step_time_leads_before_what_follows_from_it_and_names_whom_it_favours() -> None:
    step, energy, compiled = (_suspicion(each) for each in (1.06, 0.9, 1.2))
    for each, metric in ((energy, "gross_mj"), (compiled, "cold_compile_s")):
        each |= {"key": replace(KEY, metric=metric), "metric": find_tracked(metric)}
    found = write_verdict(COUNTS, None, [step, energy], cases=CASES)
    assert found.startswith("The step time ratio of MLP, training, batch 128, fp32 seems to have")
    assert "changed by +6 %, in favour of JAX, since 2026-03-02;" in found
    assert found.endswith(" And 1 other new suspicion.")
    found = write_verdict(COUNTS, None, [step, energy, compiled], cases=CASES)
    assert found.startswith("The compile time ratio of MLP")  # which does not follow from the step
    found = write_verdict(COUNTS, None, [energy], cases=CASES)
    assert "changed by \u221210 %, in favour of PyTorch, since" in found
    energy["key"] = replace(KEY, a_arm="jax-jit", b_arm="jax-jit", control="previous")
    assert "in favour of the older JAX" in describe_change(energy)


def test_a_change_of_a_case_that_another_profile_measures_leads_no_headline() -> None:
    found = write_verdict(COUNTS, None, [_suspicion(0.97)], cases={"resnet50.infer_b1.f"})
    assert found == "Nothing changed in 4 cases."


def test_a_night_is_titled_by_the_date_in_its_campaign_s_name() -> None:
    """At 1:00 in Berlin it is another day than in UTC in summer alone: two nights in March had one
    title."""
    begun = datetime(2026, 3, 29, 23, tzinfo=UTC)
    named = {"begun": begun, "kind": "nightly"}
    night = SimpleNamespace(name="nightly-laptop-2026-03-30", **named)
    assert title_campaign(night) == "Night of 2026-03-30"  # type: ignore[arg-type]
    other = SimpleNamespace(name="tonight", **named)
    assert title_campaign(other) == "Night of 2026-03-29"  # type: ignore[arg-type]
