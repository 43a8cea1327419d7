"""What Inductor's trials of the C++ compiler add to a compilation with empty caches on a CPU.

    .venv/bin/python benchmarks/compiler_trials.py --python PYTHON_WITH_TORCH

Compiles one small function in fresh processes, in turns: the trials within the compilation, as with
empty caches, or before it. The first, uncounted process compiles Inductor's headers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from one_duel import store_results
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
WAYS = {"within the compilation": "", "before it": "runtime.try_compiler()"}
_COMPILE = """
import os
import time
import torch
from benchcore.cell.runtimes.torch_runtime import make_runtime

def used():
    each = os.times()
    return each.user + each.system + each.children_user + each.children_system

runtime = make_runtime()
runtime.import_framework()
runtime.initialise(
    device="cpu", precision="fp32_ieee", threads=1, settings={{"compile": "default"}}
)
import torch._inductor.cpu_vec_isa
{way}
began, before = time.perf_counter(), used()
torch.compile(lambda x: x.sin() * x)(torch.ones(8))
print(time.perf_counter() - began, used() - before)
"""


def _compile(python: Path, way: str) -> tuple[float, float]:
    """Seconds, and seconds of CPU, of a compilation with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_CACHE_DIR": caches}
        done = subprocess.run(
            [python, "-P", "-c", _COMPILE.format(way=WAYS[way])],
            env={**environ, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of an environment with torch")
    parser.add_argument("--processes", type=int, default=5, help="of each way")
    options = parser.parse_args()
    _compile(options.python, "before it")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(options.processes):
        for way in WAYS:
            found[way].append(_compile(options.python, way))
    table = Table("trials", "compilation, s", "of CPU, s")
    medians = {
        way: [statistics.median(column) for column in zip(*each, strict=True)]
        for way, each in found.items()
    }
    for way, (wall, cpu) in medians.items():
        table.add_row(way, f"{wall:.1f}", f"{cpu:.1f}")
    Console().print(table)
    store_results("compiler_trials", {"seconds": found, "medians": medians})


if __name__ == "__main__":
    main()
