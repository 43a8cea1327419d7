"""How devices share the work is read from what one of them holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell.proof.sharing import describe_kept, describe_repeated, describe_sharing

_INPUTS = {"tokens": np.zeros((8, 12), np.int32), "labels": np.zeros(8, np.int32)}


def _in_torch(shape: tuple[int, ...], axis: int | None) -> Any:
    """A DTensor that two devices share along an axis; None = each has a copy."""
    part = np.zeros([size // 2 if index == axis else size for index, size in enumerate(shape)])
    return SimpleNamespace(
        shape=shape,
        dtype="torch.float64",
        nbytes=8 * int(np.prod(shape)),
        placements=[SimpleNamespace(is_shard=lambda: axis is not None)],
        to_local=lambda: part,
    )


def _in_jax(shape: tuple[int, ...], axis: int | None, dtype: str = "float64") -> Any:
    """An array of JAX, in the same way."""
    part = [size // 2 if index == axis else size for index, size in enumerate(shape)]
    return SimpleNamespace(
        shape=shape,
        dtype=dtype,
        nbytes=8 * int(np.prod(shape)),
        is_fully_replicated=axis is None,
        addressable_shards=[SimpleNamespace(data=np.zeros(part))] * 2,
    )


def _describe(make: Any, weight: int | None, bias: int | None, *, whole: bool) -> dict[str, str]:
    """Of a state of a weight and a bias, with the whole batch or a half of it."""
    state = {"weight": make((4, 6), weight), "bias": (make((6,), bias),)}
    inputs = {name: each if whole else each[:4] for name, each in _INPUTS.items()}
    return describe_sharing({"state": state, "inputs": inputs}, _INPUTS, 2)


@pytest.mark.parametrize("make", [_in_torch, _in_jax])
@pytest.mark.parametrize(
    ("weight", "bias", "whole", "strategy", "num_bytes"),
    [
        (None, None, False, "data", 240),
        (0, 0, False, "fully_sharded", 120),
        (1, None, True, "tensor", 144),
        (1, None, False, "1 of 2 arrays shared, 0.5 of the inputs on a device", 144),
        (0, 0, True, "2 of 2 arrays shared, 1 of the inputs on a device", 120),
        (None, None, True, "0 of 2 arrays shared, 1 of the inputs on a device", 240),
    ],
)
def test_a_strategy_is_read_from_the_parts_of_a_device(
    make: Any, weight: int | None, bias: int | None, whole: bool, strategy: str, num_bytes: int
) -> None:
    found = _describe(make, weight, bias, whole=whole)
    assert found == {"strategy": strategy, "state_held": f"{num_bytes} bytes"}


def test_what_devices_can_not_divide_may_be_whole_and_integers_are_no_state() -> None:
    state = [_in_jax((4, 6), 0), _in_jax((5,), None), _in_jax((2,), None, "int32")]
    inputs = [each[:4] for each in _INPUTS.values()]
    found = describe_sharing({"state": state, "inputs": inputs}, _INPUTS, 2)
    assert found == {"strategy": "fully_sharded", "state_held": f"{8 * (12 + 5)} bytes"}


def test_tensors_of_one_process_are_whole() -> None:
    state, inputs = [np.zeros((4, 6), np.float32)], [each[:4] for each in _INPUTS.values()]
    found = describe_sharing({"state": state, "inputs": inputs}, _INPUTS, 2)
    assert found == {"strategy": "data", "state_held": "96 bytes"}


@pytest.mark.parametrize("held", [{}, {"state": [np.zeros(4)]}, {"inputs": [np.zeros(52)]}])
def test_a_program_that_does_not_report_what_it_holds_has_no_strategy(held: Any) -> None:
    strategy = describe_sharing(held, _INPUTS, 2)["strategy"]
    assert strategy not in ("data", "fully_sharded", "tensor")


@pytest.mark.parametrize(
    ("kept", "read", "reading"),
    [
        ("wm", "wmi", None),
        ("wmc", "wmi", None),
        ("wm", "wmib", None),
        ("wm", "wi", "1 arrays that the step does not read, and 0 that it reads and does not"),
        ("sm", "wmi", "1 arrays that the step does not read, and 1 that it reads and does not"),
        ("w", "wmi", "0 arrays that the step does not read, and 1 that it reads and does not"),
    ],
    ids=("fair", "a count", "a small array", "unread", "another one", "not reported"),
)
def test_the_state_that_a_program_reports_is_what_its_step_reads(
    kept: str, read: str, reading: str | None
) -> None:
    floats = {name: np.zeros(100, np.float32) for name in "wmsi"}
    arrays = {**floats, "b": np.zeros(64, np.float32), "c": np.zeros(100, np.int32)}
    found = describe_kept(
        {id(arrays[name]): arrays[name].size for name in read},
        {"state": [arrays[name] for name in kept]},
        (arrays["i"], 0),
    )
    assert found.get("params", "").startswith(reading or "")
    assert bool(found) == (reading is not None)


def test_a_part_that_is_here_stands_for_a_shared_tensor() -> None:
    part = np.zeros(100, np.float32)
    shared = SimpleNamespace(to_local=lambda: part, dtype="torch.float32", nbytes=800)
    assert describe_kept({id(part): 100}, {"state": [shared]}, ()) == {}
    assert describe_kept({id(shared): 100}, {"state": [shared]}, ()) != {}


def test_devices_that_repeat_each_others_work_share_no_step() -> None:
    assert describe_repeated(None) == describe_repeated(1.2) == {}
    assert describe_repeated(2.0) == {"strategy": "devices do 2 times the work of the step"}
