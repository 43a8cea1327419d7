"""PyTorch's other fair ways to compute gradients per sample, or a graph's sums, are not refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchcore.verdict.duel.products import judge_products

ROOT = Path(__file__).parents[4]
_WAYS = [
    ("mnist_cnn", "tiny_per_sample_grad", {"per_sample": "loop"}),
    ("mnist_cnn", "tiny_per_sample_grad", {"chunk": "1"}),
    ("mnist_cnn", "tiny_per_sample_grad", {"chunk": "2"}),
    ("mnist_cnn", "tiny_per_sample_grad_norms", {"per_sample": "loop"}),
    ("text_classifier", "tiny_per_sample_grad", {"per_sample": "loop"}),
    ("ensemble", "tiny_gradient_convolution", {"batching": "loop"}),
    ("ensemble", "tiny_gradient_convolution", {"batching": "batched"}),
    ("graph_gcn", "tiny_infer", {"aggregate": "sparse"}),
    ("graph_gcn", "tiny_train", {"aggregate": "sparse"}),
]
_COUNT = """
import importlib, json, sys
from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.runtimes.torch_runtime import make_runtime
from benchcore.workloads.contract import import_spec

found = []
for workload, name, chosen in json.loads(sys.argv[1]):
    spec, settings = import_spec(workload), {"compile": "none", "device": "cpu", **chosen}
    case = spec.cases[name]
    runtime = make_runtime()
    runtime.import_framework()
    runtime.initialise(device="cpu", precision=case.precision, threads=1, settings=settings)
    arrays = spec.make_arrays(case, 7)
    module = importlib.import_module(f"benchcore.workloads.{workload}.in_torch")
    program = BoundProgram(module.build(case, arrays, settings), spec, case, arrays)
    found.append([runtime.count_products(program), spec.flops(case)])
print(json.dumps(found))
"""


@pytest.mark.provisions
def test_a_fair_way_to_compute_is_not_called_needless_work(
    run_in_framework: Callable[..., str],
) -> None:
    """A loop scales and adds up a sample at a time, and most samples are scaled by exactly 1."""
    counted = json.loads(run_in_framework("torch", _COUNT, json.dumps(_WAYS)).splitlines()[-1])
    for way, (found, analytic) in zip(_WAYS, counted, strict=True):
        reasons = judge_products(
            "torch", found, framework="torch", precision="fp32_ieee", analytic=analytic,
            on_gpu=False,
        )  # fmt: skip
        assert {check: each for check, each in reasons.items() if each} == {}, way
