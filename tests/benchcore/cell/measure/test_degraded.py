from __future__ import annotations

from typing import Any

import pytest
from result_documents import make_document

from benchcore.cell.measure.degraded import MAX_FOREIGN_CPU_SHARE, MAX_STEAL_SHARE, find_degraded
from benchcore.cell.measure.gpu import count_foreign


def blocks(*telemetry: dict[str, Any]) -> list[dict[str, Any]]:
    made = make_document(rounds=len(telemetry))["contenders"][0]["starts"][0]["blocks"]
    return [
        {**block, "telemetry": block["telemetry"] | each}
        for block, each in zip(made, telemetry, strict=True)
    ]


QUIET: dict[str, Any] = {"steal_share": 0.01, "foreign_cpu_share": 0.1, "sm_clock_mhz": 1980}


@pytest.mark.parametrize(
    ("disturbance", "words"),
    [
        ({"steal_share": 0.12}, "12 % CPU time was stolen (at most 5 %)"),
        ({"foreign_cpu_share": 0.33}, "33 % of the CPUs used by other processes (at most 15 %)"),
        ({"foreign_processes": 2}, "2 foreign processes on the GPU"),
        ({"throttle_reasons": 0x44}, "hardware thermal slowdown"),
        ({"throttle_reasons": 0x8}, "hardware slowdown"),
        ({"throttle_reasons": 0x10}, "sync boost"),
        ({"throttle_reasons": 0x20}, "software thermal slowdown"),
        ({"throttle_reasons": 0x80}, "power brake"),
        ({"sm_clock_mhz": 1800}, "SM clock 1800 MHz against 1980 MHz in the start's median"),
        ({"thawed_contenders": 1}, "1 waiting contenders were not frozen"),
        ({"throttle_reasons": 8.0}, "hardware slowdown"),
    ],
)
def test_a_disturbed_block_is_degraded_with_its_reason(
    disturbance: dict[str, Any], words: str
) -> None:
    disturbed = blocks(QUIET, QUIET | disturbance, QUIET)
    assert find_degraded(disturbed) == {1: words}


def test_a_clock_within_five_percent_is_not_degraded() -> None:
    steady = dict.fromkeys(("steal_share", "foreign_cpu_share"))
    clocks = (1000, 1000, 1000, 951, 1049, 949, 1051)
    disturbed = find_degraded(blocks(*({**steady, "sm_clock_mhz": clock} for clock in clocks)))
    assert list(disturbed) == [5, 6]


def test_shares_at_their_limits_disturb_nothing() -> None:
    edge = {"steal_share": MAX_STEAL_SHARE, "foreign_cpu_share": MAX_FOREIGN_CPU_SHARE}
    assert find_degraded(blocks(edge)) == {}
    assert list(find_degraded(blocks({**edge, "steal_share": 0.051}))) == [0]
    assert list(find_degraded(blocks({**edge, "foreign_cpu_share": 0.151}))) == [0]


@pytest.mark.parametrize(
    "telemetry",
    [
        {},
        QUIET,
        {"load_1m": 64.0},
        {"throttle_reasons": 0x1 | 0x2 | 0x4 | 0x100, "sm_clock_mhz": 1900},
        {"foreign_processes": 0},
        {"thawed_contenders": 0},
    ],
    ids=["unknown", "quiet", "load", "cap and set clocks", "no company", "all frozen"],
)
def test_harmless_readings_degrade_no_block(telemetry: dict[str, Any]) -> None:
    assert find_degraded(blocks(telemetry, telemetry)) == {}


def test_in_a_container_gpu_processes_are_counted_without_their_ids() -> None:
    assert count_foreign([10, 11], frozenset({10, 11})) == 0
    assert count_foreign([10, 11, 12], frozenset({10, 11})) == 1
    assert count_foreign([9010, 9011], frozenset({10, 11})) == 0
    assert count_foreign([9010, 9011, 9012], frozenset({10, 11})) == 1
