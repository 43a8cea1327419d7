"""The arithmetic of the benchmark of the loader, and its data set."""

from __future__ import annotations

from pathlib import Path

import pytest
from loader import GOAL, describe, order_dataset


def test_the_cost_is_the_paired_ratio_of_turns() -> None:
    bare = [100e3, 200e3, 150e3, 120e3]
    row = describe([1.03 * each for each in bare], bare)
    assert row["cost_percent"] == pytest.approx(3.0)
    assert row["low_percent"] == row["high_percent"] == pytest.approx(3.0)
    assert row["high_percent"] > 100 * GOAL
    assert row["bare_us"] == 135.0
    assert row["turns"] == 4


def test_turns_that_disagree_widen_the_interval() -> None:
    row = describe([110e3, 90e3, 100e3], [100e3, 100e3, 100e3])
    assert row["low_percent"] < -10
    assert row["high_percent"] > 10


def test_the_data_set_holds_whole_batches_only(tmp_path: Path) -> None:
    order = order_dataset(tmp_path)
    assert order.num_train % order.batch == 0
    assert order.num_val == order.batch
    assert order.mode == "device-resident"
