from __future__ import annotations

import numpy as np
import pytest

from benchcore.program import UnsupportedError
from benchcore.workloads.networks.transformer.widths import (
    Widths,
    check_heads,
    group_heads,
    ungroup_heads,
)

WIDTHS = Widths(vocabulary=4, tokens=4, features=8, heads=4, blocks=1, outputs=4, causal=True)


def test_rows_of_a_device_are_its_queries_keys_and_values() -> None:
    """The canonical rows are (query or key or value, head, feature)."""
    rows = np.array([(part, head) for part in range(3) for head in range(4) for _ in range(2)])
    first, second = np.split(group_heads(WIDTHS, "blocks.0.qkv.weight", rows, 2), 2)
    assert {tuple(each) for each in first} == {(part, head) for part in range(3) for head in (0, 1)}
    assert {tuple(each) for each in second} == {
        (part, head) for part in range(3) for head in (2, 3)
    }
    assert [part for part, _ in first] == sorted(part for part, _ in first)
    back = ungroup_heads(WIDTHS, "blocks.0.qkv.weight", np.concatenate([first, second]), 2)
    assert np.array_equal(back, rows)


def test_other_parameters_stay() -> None:
    array = np.arange(8)
    assert group_heads(WIDTHS, "blocks.0.fc1.bias", array, 2) is array
    assert ungroup_heads(WIDTHS, "blocks.0.fc1.bias", array, 2) is array


def test_heads_that_devices_cannot_share_are_unsupported() -> None:
    check_heads(WIDTHS, 2)
    with pytest.raises(UnsupportedError, match="wanted as many of 4 heads on each of 3 devices"):
        check_heads(WIDTHS, 3)
