"""Hand-written kernels, run by interpreters: they are right, and a wrong one would show."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.provisions
_RUN = """
import importlib, json, sys
import numpy as np
from benchcore.program import UnsupportedError
from benchcore.workloads.contract import import_spec

framework, language = sys.argv[1:]
module = importlib.import_module(f"benchcore.workloads.kernels.in_{framework}")
spec, found = import_spec("kernels"), {}
for name in ("tiny_op_softmax", "tiny_op_rms_norm", "tiny_op_rms_norm_linear"):
    case = spec.cases[name]
    arrays = spec.make_arrays(case, 7)
    wanted = spec.reference(case, arrays)["result"][0]
    if framework == "jax":
        kernel = module.write_kernel(case, interpret=True)
        run = lambda inputs: np.asarray(kernel(*inputs.values()))
    else:
        import torch
        from benchcore.workloads.kernels.in_triton import KERNELS
        kernel = KERNELS[case.formula]
        run = lambda inputs: kernel(*map(torch.tensor, inputs.values())).numpy()
    if framework == "jax":
        import jax
        from benchcore.cell.explain.jax_products import count_asked
        placed = tuple(map(jax.numpy.asarray, arrays.inputs.values()))
        from benchcore.cell.proof.watching.jax_watch import inspect_step
        flops = count_asked(jax, lambda: kernel(*placed)).flops
        seen = inspect_step(jax, lambda: kernel(*placed)).chosen
    else:
        from benchcore.cell.explain.torch_products import count_asked
        placed = tuple(map(torch.tensor, arrays.inputs.values()))
        from benchcore.cell.proof.watching.torch_watch import inspect_step
        flops = count_asked(torch, lambda: kernel(*placed)).flops
        seen = inspect_step(torch, lambda: kernel(*placed)).chosen
    assert sum(flops.values()) == spec.flops(case), (name, flops)
    assert seen["kernel"] == language, (name, seen)
    other = spec.make_arrays(case, 8).inputs
    apart = [np.abs(run(each) - wanted).max() for each in (arrays.inputs, other)]
    found[name] = [float(each / np.abs(wanted).max()) for each in apart]
    mode = {"jax": "jit", "torch": "none"}[framework]
    settings = {"device": "cpu", "compile": mode, "kernel": language}
    try:
        module.build(case, arrays, settings)
    except UnsupportedError as error:
        found["refused"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.parametrize(("framework", "language"), [("jax", "pallas"), ("torch", "triton")])
def test_a_kernel_computes_the_formula_and_has_no_speed_on_a_cpu(
    framework: str, language: str, framework_python: Callable[[str], Path]
) -> None:
    done = subprocess.run(
        [str(framework_python(framework)), "-P", "-s", "-c", _RUN, framework, language],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "needs a GPU" in found.pop("refused")
    for right, of_other_inputs in found.values():
        assert right <= 1e-5 < of_other_inputs
