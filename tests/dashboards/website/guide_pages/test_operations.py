"""The page of operations lists what one framework does slowly, with a text for its project."""

from __future__ import annotations

import ast
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from manual import check_command

from benchcore.workloads.ops.table import OPERATIONS
from dashboards.website.guide_pages.operations import operations_page, read_call

AT = datetime(2026, 11, 20, tzinfo=UTC)


def _answer(case: str, ratio: float, within: float = 1.02, **changes: Any) -> dict[str, Any]:
    """JAX against PyTorch compiled; `ratio` is T_torch / T_jax, its interval `within` a factor."""
    low, middle, high = (math.log(ratio * each) for each in (1 / within, 1, within))
    return {
        "workload": "ops", "case_name": case, "use_case": "op", "batch": 512,
        "precision": "fp32_ieee", "track": "default", "counts": True, "verdict": "different",
        "log_ratio": middle, "low": low, "high": high, "num_starts": 3, "started_at": AT,
        "duel_run": "0" * 16, "device_model": "AMD EPYC", "device": "cpu", "site": "local",
        "a_framework": "jax", "a_arm": "jax-jit", "a_version": "0.12.0",
        "b_framework": "torch", "b_arm": "torch-compile", "b_version": "2.15.0",
        "earlier": None, "since": None,
        "of_a": {"median_step_ns": 1e6}, "of_b": {"median_step_ns": 1e6 * ratio},
    } | changes  # fmt: skip


def _list_slow(*answers: dict[str, Any]) -> list[dict[str, Any]]:
    tables = [each for each in operations_page(answers)["blocks"] if each.get("name") == "slow"]
    return [row for each in tables for row in each["rows"]]


def test_only_a_whole_interval_beyond_twice_the_time_is_slow() -> None:
    answers = (
        _answer("fft_medium", 3.0),
        _answer("sort_medium", 1 / 3),
        _answer("softmax_medium", 2.01),
        _answer("gather_medium", 3.0, within=1.6),
        _answer("layer_norm_medium", 4.0, low=None, high=None),
        _answer("train_b128", 9.0, workload="mlp", use_case="train"),
        _answer("cumulative_sum_medium", 9.0, counts=False),
    )
    slow = {row["case"]["text"]: (row["slower"], row["factor"]) for row in _list_slow(*answers)}
    (fft, sort) = (next(slow[each] for each in slow if name in each) for name in ("FFT", "sort"))
    assert len(slow) == 2
    assert fft[0] == "PyTorch compiled" and fft[1]["value"] == pytest.approx(3)
    assert sort[0] == "JAX" and sort[1]["value"] == pytest.approx(3)
    assert sort[1]["text"] == "3.00x (2.94 to 3.06)"
    page = str(operations_page(answers))
    assert "One framework is slow in 2 of 5 measured pairs." in page and "mlp" not in page.lower()
    assert operations_page(answers[-1:])["blocks"][0]["parts"] == ["No operation counts yet."]


def test_the_text_for_upstream_has_calls_inputs_times_and_a_command_that_runs() -> None:
    (block,) = [
        each["blocks"][0]["text"]
        for each in operations_page([_answer("scatter_add_medium", 1 / 4, device="cuda")])["blocks"]
        if each["kind"] == "details"
    ]
    assert block.startswith("# scatter add: JAX takes 4.0 times as long as PyTorch on AMD EPYC")
    assert "jnp.zeros_like(updates).at[index].add(updates)" in block
    assert "torch.zeros_like(updates).index_add(0, index, updates)" in block
    assert "JAX 0.12.0: 1.00 ms a call; PyTorch 2.15.0: 250 \u00b5s." in block
    assert "updates (" in block and "int32" in block and "95 % interval over 3 starts" in block
    command = block.splitlines()[-1].strip()
    assert command.endswith("--b torch==2.15.0 --device cuda")
    check_command(command)


def test_the_text_for_upstream_states_how_inputs_stay_out_of_caches() -> None:
    texts = {
        case: next(
            each["blocks"][0]["text"]
            for each in operations_page([_answer(case, 5.0)])["blocks"]
            if each["kind"] == "details"
        )
        for case in ("sort_medium", "sort_medium_cold")
    }
    assert "The calls take 64 sets in turn" in texts["sort_medium_cold"]
    assert "in turn: no" not in texts["sort_medium"]


def test_a_workload_without_a_table_of_calls_quotes_its_program_and_its_inputs() -> None:
    (block,) = [
        each["blocks"][0]["text"]
        for each in operations_page([_answer("depthwise_3x3", 1 / 5, workload="convolution")])[
            "blocks"
        ]
        if each["kind"] == "details"
    ]
    assert "lax.conv_general_dilated(" in block and "functional.conv2d(" in block
    assert "Inputs: images (8, 96, 28, 28) float32, weight (96, 1, 3, 3) float32." in block
    assert "Case `convolution depthwise_3x3`: batch 8" in block and "groups 96" in block


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_every_call_can_be_quoted(framework: str) -> None:
    for operation in OPERATIONS:
        ast.parse(read_call(framework, operation))
    with pytest.raises(KeyError, match="wanted the call of 'none'"):
        read_call(framework, "none")


def _earlier(ratio: float, **changes: Any) -> dict[str, Any]:
    """A pair of the JAX before."""
    keys = ("log_ratio", "low", "high", "a_version", "b_version", "started_at")
    before = _answer("any", ratio, a_version="0.11.0", started_at=AT.replace(month=10), **changes)
    return {key: before[key] for key in keys}


def test_the_page_says_as_of_which_versions_and_what_entered_or_left() -> None:
    answers = [
        _answer("fft_medium", 3.0, earlier=_earlier(1.5)),
        _answer("sort_medium", 1.5, earlier=_earlier(1 / 3)),
        _answer("gather_medium", 3.0, earlier=_earlier(3.0)),
        _answer("softmax_medium", 4.0, earlier=_earlier(1 / 4)),
        _answer("layer_norm_medium", 1.1, earlier=_earlier(1.2)),
        _answer("sum_rows_medium", 5.0),
        _answer("sum_columns_medium", 1.0, a_version="0.11.0", started_at=AT.replace(day=1)),
    ]
    page = operations_page(answers)
    (section,) = [each for each in page["blocks"] if each.get("id") == "moved"]
    text, table = section["blocks"]
    moves = {row["case"]["text"]: row for row in table["rows"]}
    found = {
        name: next(row["move"] for case, row in moves.items() if name in case)
        for name in ("FFT", "sort", "softmax", "sum rows")
    }
    assert found == {
        "FFT": "entered the list",
        "sort": "left the list",
        "softmax": "the other framework is slow now",
        "sum rows": "listed; not measured with earlier versions",
    }
    assert len(moves) == 4
    assert text["parts"] == ["5 of 7 pairs were also measured with earlier versions."]
    fft = next(row for case, row in moves.items() if "FFT" in case)
    assert fft["before"] == (
        "PyTorch takes 1.50x (1.47 to 1.53) as long, with JAX 0.11.0 and PyTorch 2.15.0 "
        "(2026-10-20)"
    )
    assert "JAX 0.12.0 and PyTorch 2.15.0 (2026-11-20)" in fft["now"]
    as_of = "As of JAX 0.12.0 and PyTorch 2.15.0, measured last on 2026-11-20. "
    assert f"{as_of}With other versions: 1 of 7 pairs." in str(page)


def test_without_earlier_versions_nothing_is_said_to_have_changed() -> None:
    for answers, words in (
        ([_answer("fft_medium", 1.5)], "No operation was measured with earlier versions yet."),
        (
            [_answer("fft_medium", 1.5, earlier=_earlier(1.5))],
            "also measured with earlier versions. No pair entered or left the list.",
        ),
    ):
        page = str(operations_page(answers))
        assert words in page and "left the list'" not in page
