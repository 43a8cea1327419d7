"""Collectives are counted by the whole of what they reduce or gather."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.cell.explain.communication import count_in_hlo, count_in_torch

_HLO = """
ENTRY %main (p: f32[8,16]) -> f32[8,16] {
  %all-reduce.1 = (f32[64]{0}, bf16[4,16]{1,0}) all-reduce(%a, %b), to_apply=%add
  %all-gather = f32[8,16]{1,0} all-gather(%part), dimensions={0}
  %reduce-scatter.2 = f32[4,16]{1,0} reduce-scatter(%whole), dimensions={0}
  %all-gather-start = (f32[4]{0}, f32[8]{0}) all-gather-start(%part), dimensions={0}
  %done = f32[8]{0} all-gather-done(%all-gather-start)
  %reduce-start = (f32[2,3]{1,0}, f8e4m3fn[4]{0}) all-reduce-start(%p0, %p1), to_apply=%add
  %reduce-done = (f32[2,3]{1,0}, f8e4m3fn[4]{0}) all-reduce-done(%reduce-start)
  ROOT %flags = pred[16]{0} collective-permute(%c)
}
"""


def test_collectives_of_a_program() -> None:
    reduced, gathered, scattered = 64 * 4 + 4 * 16 * 2, 8 * 16 * 4, 2 * 4 * 16 * 4
    assert count_in_hlo(_HLO, 2) == reduced + gathered + scattered + 8 * 4 + (24 + 4) + 16
    assert count_in_hlo("%add = f32[8]{0} add(%all-gather, %b)", 2) == 0


class _Profile:
    def __init__(self, events: list[Any]) -> None:
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))

    def __enter__(self) -> _Profile:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _event(name: str, shape: list[int], dtype: str) -> Any:
    return SimpleNamespace(name=lambda: name, shapes=lambda: [shape], dtypes=lambda: [dtype])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (_event("gloo:all_reduce", [10, 3], "float"), 120),
        (_event("gloo:all_gather", [10], "float"), 80),
        (_event("nccl:_all_gather_base", [10], "c10::BFloat16"), 40),
        (_event("nccl:_reduce_scatter_base", [10], "float"), 40),
        (_event("c10d::allreduce_", [10], "float"), 0),  # the same again
        (_event("aten::mm", [10], "float"), 0),
    ],
    ids=lambda event: event.name() if hasattr(event, "name") else "",
)
def test_collectives_of_a_profiled_step(event: Any, expected: int) -> None:
    steps: list[int] = []
    torch = SimpleNamespace(profiler=SimpleNamespace(profile=lambda **_: _Profile([event])))
    assert count_in_torch(torch, lambda: steps.append(1), 2) == expected
    assert steps == [1]
