"""What the real frameworks compile has one hash wherever it is compiled, and another if changed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.provisions
ROOT = Path(__file__).parents[3]

_PROFILE = """
import json, pathlib, sys, tempfile
import numpy as np
from benchcore.cell.runtimes.{framework}_runtime import make_runtime
from types import SimpleNamespace
runtime = make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={{}})
host, scale = np.ones((8, 8), np.float32), float(sys.argv[1])
{compile}
runtime.synchronise(step())
with tempfile.TemporaryDirectory() as folder:
    program = SimpleNamespace(step=step, lower=lower)
    print(json.dumps(runtime.profile(program, 3, pathlib.Path(folder))["program"]))
"""
_COMPILE = {
    "jax": """
import jax, jax.numpy as jnp
compiled, x = jax.jit(lambda {x}: jnp.tanh({x} @ {x}) * scale), jnp.asarray(host)
step, lower = lambda: compiled(x), lambda: compiled.lower(x)
""",
    "torch": """
import torch
compiled, {x} = torch.compile(lambda {x}: torch.tanh({x} @ {x}) * scale), torch.from_numpy(host)
step, lower = lambda: compiled({x}), lambda: None
""",
}


@pytest.fixture(scope="module")
def programs(
    framework_python: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """Of each framework three fresh processes: twice the same function under other names, in other
    files and with other caches, and once another one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for framework, text in _COMPILE.items():
        for name, scale in (("x", "2"), ("value", "2"), ("x", "3")):
            folder = tmp_path_factory.mktemp(f"{framework}-{name}")
            script = folder / f"{name}.py"
            text_of = text.format(x=name) if framework == "torch" else text.replace("{x}", name)
            script.write_text(_PROFILE.format(framework=framework, compile=text_of))
            paths = {"PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": str(folder / "caches")}
            done = subprocess.run(
                [framework_python(framework), "-P", script, scale],
                cwd=folder, env={**os.environ, **paths, "CUDA_VISIBLE_DEVICES": ""},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            found.setdefault(framework, []).append(json.loads(done.stdout.splitlines()[-1]))
    return found


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_program_has_one_hash_in_whatever_process(
    programs: dict[str, list[dict[str, Any]]], framework: str
) -> None:
    first, again, _ = programs[framework]
    assert first == again
    assert first["hash"]


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_another_constant_makes_another_program_of_the_same_counts(
    programs: dict[str, list[dict[str, Any]]], framework: str
) -> None:
    first, _, other = programs[framework]
    assert first["hash"] != other["hash"]
    assert first["counts"] == other["counts"]


def test_torchs_graphs_operations_kernels_and_library_calls_are_counted(
    programs: dict[str, list[dict[str, Any]]],
) -> None:
    counts = programs["torch"][0]["counts"]
    assert (counts["graph"], counts["graph break"]) == (1, 0)
    assert counts["captured operation"] == 3
    assert counts["generated kernel"] == 1
    assert counts["library mm"] == 1
