"""Fair steps in bfloat16 run the operations of float32, and their programs in float32 agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcore.cell.in_float32 import SAME, takes_float32
from benchcore.cell.proof.agreement import IN_FLOAT32, compare_all
from benchcore.workloads.contract import import_spec

CASES = [
    *(
        ("mlp", f"tiny_{use}_{end}")
        for use in ("infer", "train")
        for end in ("bf16", "bf16_autocast")
    ),
    ("ops", "tiny_op_layer_norm_bf16"),
    ("matmul", "tiny_op_bf16"),
    ("mobilenet_v3_small", "tiny_infer_bf16_autocast"),
]
_SCRIPT = """
import importlib, json, sys
import numpy as np
from benchcore.cell.building import bind_program
from benchcore.cell.in_float32 import InFloat32
from benchcore.cell.proof.agreement import IN_FLOAT32
from benchcore.workloads.contract import import_spec

framework, folder, cases = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
runtime = importlib.import_module(f"benchcore.cell.runtimes.{framework}_runtime").make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="bf16", threads=1, settings={})
found = []
for workload, name in cases:
    case = import_spec(workload).cases[name]
    arrays = import_spec(workload).make_arrays(case, 7)
    settings = {"compile": "jit" if framework == "jax" else "none"}
    order = {"workload": workload, "framework": framework, "seed": 7, "settings": settings}
    order["device"] = "cpu"
    bound = bind_program(order, case, arrays)
    bound.program.reset(arrays.params)
    other = InFloat32(order, case, arrays, runtime)
    found.append(other.describe(runtime.inspect_step(bound.plain_step).operations))
    for when in IN_FLOAT32:
        np.savez(f"{folder}/{framework}-{workload}-{name}-{when}.npz", **other.prove(when))
print(json.dumps(found))
"""


@pytest.mark.provisions
def test_fair_steps_in_bfloat16_run_the_operations_of_float32(
    run_in_framework: Callable[..., str], tmp_path: Path
) -> None:
    cases = json.dumps(CASES)
    for framework in ("jax", "torch"):
        printed = run_in_framework(framework, _SCRIPT, framework, str(tmp_path), cases)
        assert json.loads(printed.splitlines()[-1]) == [{"operations": SAME}] * len(CASES)
    for workload, name in CASES:
        spec = import_spec(workload)
        evidence: Any = {
            side: {
                f"start 0, {when}": tmp_path / f"{side}-{workload}-{name}-{when}.npz"
                for when in IN_FLOAT32
            }
            for side in ("jax", "torch")
        }
        exact = spec.tolerances(takes_float32(spec.cases[name]))
        rows = compare_all(evidence, {}, None, exact)
        assert {row["quantity"] for row in rows} == exact.keys()
        assert [row for row in rows if not row["agrees"]] == []
