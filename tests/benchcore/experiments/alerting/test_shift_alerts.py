"""Alerts of confirmed changes: what their texts name."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import pytest
from stored_histories import make_side, make_suspicion

from benchcore.experiments.alerting.alerts import PAYLOAD
from benchcore.experiments.alerting.shift_alerts import describe_shift, name_target, write_shift
from benchcore.store.records import SuspicionRecord
from benchcore.verdict.confirmation.decide import Finding
from benchcore.verdict.history.conditions import ConditionChange
from benchcore.verdict.samples import Judgement

SAME = Judgement(verdict="same", log_ratio=0.001, low=-0.002, high=0.004, reason="equally fast")


def _moved(ratio: float, low: float, high: float) -> Judgement:
    logs = dict(zip(("log_ratio", "low", "high"), map(math.log, (ratio, low, high)), strict=True))
    return Judgement(verdict="different", reason="a step's time changed", **logs)


SLOWER = _moved(1.05, 1.03, 1.07)
FASTER = _moved(1 / 1.04, 1 / 1.06, 1 / 1.02)


OUTCOME: dict[str, Any] = dict.fromkeys(
    ("suspicion", "series", "metric", "culprit", "conditions", "candidates", "moved")
)


def _suspicion(jax: tuple[str, str], torch: tuple[str, str]) -> SuspicionRecord:
    sides = (("jax", jax), ("torch", torch))
    named = {"workload": "mlp", "case_name": "infer_b128", "device_fingerprint": "0"}
    made = (make_side(of, each, each) for of, versions in sides for each in versions)
    return make_suspicion(*made, **named)


def _write(change: Judgement, **found: Any) -> str:
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("2.14.0", "2.15.0"))
    named: dict[str, Any] = {"a": SAME, "b": SAME, "control": SAME, "level": 0.0, "num_starts": 5}
    return describe_shift(suspicion, Finding(change=change, verdict="confirmed", **named | found))


@pytest.mark.parametrize(
    ("change", "found", "text"),
    [
        (
            SLOWER,
            {"culprit": "b", "b": SLOWER},
            "rose 5 % (3 to 7 %): PyTorch 2.15.0 eager is 5 % slower than 2.14.0.",
        ),
        (
            _moved(1 / 1.05, 1 / 1.07, 1 / 1.03),
            {"culprit": "a", "a": SLOWER},
            "fell 4.8 % (2.9 to 6.5 %): JAX 0.12.0 is 5 % slower than 0.11.0.",
        ),
        (
            SLOWER,
            {"culprit": "b", "b": SLOWER, "rest": "in the nights the ratio moved by +10.0 %"},
            "rose 5 % (3 to 7 %): PyTorch 2.15.0 eager is 5 % slower than 2.14.0; in the nights "
            "the ratio moved by +10.0 %.",
        ),
        (
            _moved(1.092, 1.06, 2.5),
            {"culprit": "both", "a": FASTER, "b": SLOWER},
            "rose 9.2 % (6 to 150 %): JAX 0.12.0 is 4 % faster than 0.11.0 and "
            "PyTorch 2.15.0 eager is 5 % slower than 2.14.0.",
        ),
        (
            SAME,
            {"culprit": "infrastructure", "reason": "the old environment differs from itself"},
            "rose 11 % in the nightly runs since 2026-05-03: caused by the infrastructure, not by "
            "a framework: the old environment differs from itself.",
        ),
        (
            SAME,
            {"culprit": "infrastructure", "machine_level": FASTER, "reason": "it is still so"},
            "fell 3.8 % (2 to 5.7 %) in the nightly runs since 2026-05-03: caused by the "
            "infrastructure, not by a framework: it is still so.",
        ),
        (
            SLOWER,
            {"culprit": "unknown", "reason": "the interval is wide"},
            "rose 5 % (3 to 7 %) since 2026-05-03: the cause is unknown (JAX 0.12.0 against "
            "0.11.0, PyTorch 2.15.0 against 2.14.0): the interval is wide.",
        ),
    ],
)
def test_the_alert_names_what_moved(change: Judgement, found: dict[str, Any], text: str) -> None:
    written = _write(change, **found)
    expected = f"JAX/PyTorch speedup on MLP, inference, batch 128, fp32 {text} Device: AMD EPYC."
    assert written == expected
    assert ("JAX 0.12.0 is" in written) == (found["culprit"] in ("a", "both"))


def _decide(culprit: Any, change: Judgement = SLOWER, **found: Any) -> Finding:
    named: dict[str, Any] = {"a": SAME, "b": SAME, "control": SAME, "level": 0.0, "num_starts": 5}
    return Finding(change=change, verdict="confirmed", culprit=culprit, **named | found)


def test_a_shift_against_an_older_version_has_its_interval() -> None:
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("0.10.0", "0.10.0"))
    suspicion = replace(suspicion, key=replace(suspicion.key, control="previous"))
    change = _moved(1 / 1.05, 1 / 1.07, 1 / 1.03)
    assert describe_shift(suspicion, _decide("a", change, a=SLOWER)) == (
        "JAX's speedup over its previous version on MLP, inference, batch 128, fp32 fell 4.8 % "
        "(2.9 to 6.5 %): JAX 0.12.0 is 5 % slower than 0.11.0. Device: AMD EPYC."
    )


_JAX = "deadheat compare mlp --case infer_b128 --a jax==0.11.0 --b jax==0.12.0"
_TORCH = "deadheat compare mlp --case infer_b128 --a torch==2.14.0 --b torch==2.15.0"
_BOTH = "deadheat compare mlp --case infer_b128 --a jax==0.12.0 --b torch==2.15.0"


@pytest.mark.parametrize(
    ("culprit", "found", "again"),
    [
        ("both", {"a": FASTER, "b": SLOWER}, f"{_JAX} && {_TORCH}"),
        ("unknown", {}, f"{_JAX} && {_TORCH}"),
        ("infrastructure", {}, _BOTH),
    ],
)
def test_a_shift_without_one_release_to_blame_can_be_measured_again(
    culprit: str, found: dict[str, Any], again: str
) -> None:
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("2.14.0", "2.15.0"))
    details = write_shift(suspicion, _decide(culprit, **found), OUTCOME)["details"]
    assert (details["cause"], details["search"], details["again"]) == (None, None, again)
    rebuilt = _suspicion(("0.12.0", "0.12.0"), ("2.15.0", "2.15.0"))
    for each in (culprit, "b"):
        details = write_shift(rebuilt, _decide(each, b=SLOWER), OUTCOME)["details"]
        assert details["again"] == _BOTH, "no version changed, so both sides are measured as now"


def test_an_alert_has_the_size_of_what_moved() -> None:
    """Of a machine it is that of the nights, or of the old environment against itself."""
    suspicion = _suspicion(("1", "1"), ("2", "2"))
    for found, moved in (
        (_decide("infrastructure", SAME, control=FASTER), FASTER),
        (_decide("infrastructure", SAME, control=FASTER, machine_level=SLOWER), SLOWER),
        (_decide("infrastructure", FASTER), FASTER),
        (_decide("unknown", SLOWER), SLOWER),
    ):
        details = write_shift(suspicion, found, OUTCOME)["details"]
        assert details["size"] == abs(moved.log_ratio or 0.0)
        assert details["change"] == {**moved.ratios, "verdict": "different"}


@pytest.mark.parametrize(
    ("culprit", "versions", "group"),
    [
        ("a", ("0.11.0", "0.12.0"), "JAX 0.12.0 against 0.11.0"),
        ("a", ("0.12.0", "0.12.0"), "JAX 0.12.0 in a new environment"),
        (
            *("both", ("0.11.0", "0.12.0")),
            "JAX 0.12.0 against 0.11.0 and PyTorch 2.15.0 against 2.14.0",
        ),
        ("infrastructure", ("0.11.0", "0.12.0"), "The infrastructure of AMD EPYC"),
        ("unknown", ("0.11.0", "0.12.0"), None),
    ],
)
def test_what_one_cause_moved_is_one_group(
    culprit: str, versions: tuple[str, str], group: str | None
) -> None:
    suspicion = _suspicion(versions, ("2.14.0", "2.15.0"))
    suspicion = replace(suspicion, a_new=replace(suspicion.a_new, environment_key="rebuilt"))
    found = _decide(culprit, a=SLOWER, b=SLOWER)
    assert write_shift(suspicion, found, OUTCOME)["group"] == group


def test_both_series_of_a_framework_s_change_have_one_subject() -> None:
    """Another arm of it, as eager beside compiled, is another subject; and so is another metric."""
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("2.14.0", "2.14.0"))

    def subject(other: SuspicionRecord, culprit: str = "a") -> object:
        finding = _decide(culprit, a=SLOWER, b=SLOWER)
        return write_shift(other, finding, OUTCOME)["details"]["subject"]

    control = replace(suspicion, key=replace(suspicion.key, control="previous"))
    assert subject(suspicion) == subject(control)
    assert str(subject(suspicion)).startswith("median_step_ns of jax-jit-0.12.0 in mlp ")
    eager = replace(suspicion, a_new=replace(suspicion.a_new, name="jax-eager-0.12.0"))
    memory = replace(suspicion, key=replace(suspicion.key, metric="planned_bytes"))
    assert len({subject(each) for each in (suspicion, eager, memory)}) == 3
    assert subject(suspicion, "b") != subject(suspicion)
    assert subject(suspicion, "infrastructure") is None


def test_the_commands_of_a_withdrawn_release_name_the_older_version_first() -> None:
    """As a search requires it."""
    suspicion = _suspicion(("0.12.0", "0.11.0"), ("2.14.0", "2.14.0"))
    details = write_shift(suspicion, _decide("a", a=SLOWER), OUTCOME)["details"]
    assert details["cause"] == "JAX 0.11.0 against 0.12.0"
    assert details["again"] == _JAX
    assert "--good 0.11.0 --bad 0.12.0 " in details["search"]


def test_the_alert_names_the_conditions_that_changed() -> None:
    changed = ConditionChange(name="driver", old="570.1", new="580.2")
    suspicion = replace(_suspicion(("1", "1"), ("2", "2")), conditions=(changed,))
    finding = _decide("infrastructure", SAME, a=None, b=None)
    written = describe_shift(suspicion, finding)
    assert written.endswith("Device: AMD EPYC. Conditions that changed: driver 570.1 to 580.2.")
    named = replace(finding, reason="since then, but in no night before: driver 570.1 to 580.2")
    assert describe_shift(suspicion, named).count("driver 570.1") == 1


def test_an_unchanged_version_is_compared_with_its_old_environment() -> None:
    suspicion = _suspicion(("0.12.0", "0.12.0"), ("2.15.0", "2.15.0"))
    finding = _decide("b", a=None, b=SLOWER)
    written = describe_shift(suspicion, finding)
    assert ": PyTorch 2.15.0 eager is 5 % slower than in its old environment." in written
    b_new = dataclasses.replace(suspicion.b_new, settings={"compile": "default"})
    written = describe_shift(dataclasses.replace(suspicion, b_new=b_new), finding)
    assert ": PyTorch 2.15.0 eager is 5 % slower than with its old settings." in written


def test_the_command_measures_the_arm_that_moved_by_the_metric_that_moved() -> None:
    old, new = (
        replace(make_side("torch", each, each, compile="none"), arm="torch-eager-with-opacus")
        for each in ("2.14.0", "2.15.0")
    )
    suspicion = _suspicion(("0.11.0", "0.11.0"), ("2.14.0", "2.15.0"))
    assert name_target(suspicion, old, new).repeat_command == (
        "deadheat compare mlp --case infer_b128 --a 'torch[opacus]==2.14.0' --a-set compile=none "
        "--b 'torch[opacus]==2.15.0' --b-set compile=none"
    )
    compiling = replace(suspicion, key=replace(suspicion.key, metric="cold_compile_s"))
    assert name_target(compiling, old, new).repeat_command == (
        "deadheat bisect 'torch[opacus]' --workload mlp --case infer_b128 --metric cold_compile_s "
        "--set compile=none --good 2.14.0 --bad 2.15.0"
    )


def test_the_commands_measure_on_the_device_and_the_site_of_the_suspicion() -> None:
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("2.14.0", "2.14.0"))
    suspicion = replace(suspicion, device="cuda:1", site="cluster")
    target = name_target(suspicion, suspicion.a_old, suspicion.a_new)
    for command in (target.repeat_command, target.search_command):
        assert command.endswith(" --device cuda:1 --site cluster")
    assert replace(target, site="local").name == target.name


def test_the_alert_of_a_shift_has_the_whole_payload() -> None:
    suspicion = _suspicion(("0.11.0", "0.12.0"), ("2.14.0", "2.15.0"))
    finding = Finding(
        change=SLOWER, a=SAME, b=SLOWER, control=SAME, level=0.0, num_starts=5, culprit="b"
    )
    details = write_shift(suspicion, finding, OUTCOME)["details"]
    assert set(PAYLOAD) <= set(details)
    assert details["cause"] == "PyTorch 2.15.0 against 2.14.0"
    assert details["search"] == (
        "deadheat bisect torch --workload mlp --case infer_b128 --good 2.14.0 --bad 2.15.0 "
        "--dependencies"
    )
