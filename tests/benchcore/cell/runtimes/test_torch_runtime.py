"""The precision switches of the real torch; they can be set and read without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcore.protocol import EnvironmentRecord

ROOT = Path(__file__).parents[4]
_READ = """
import json, sys
from benchcore.cell.runtimes.torch_runtime import TorchRuntime

runtime = TorchRuntime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={})
runtime._set_precision(sys.argv[1])
torch = runtime._torch
backends = torch.backends
print(json.dumps({
    "effective": runtime.effective(),
    "gpu": runtime._read_switches(False),
    "read_by_inductor": {
        "cuda.matmul.allow_tf32": backends.cuda.matmul.allow_tf32,
        "cuda.matmul.fp32_precision": backends.cuda.matmul.fp32_precision,
        "cudnn.allow_tf32": backends.cudnn.allow_tf32,
        "cudnn.fp32_precision": backends.cudnn.fp32_precision,
        "mkldnn.fp32_precision": backends.mkldnn.fp32_precision,
        "get_float32_matmul_precision": torch.get_float32_matmul_precision(),
    },
}))
"""


def _read(environment: EnvironmentRecord, precision: str) -> dict[str, Any]:
    done = subprocess.run(
        [environment.python, "-P", "-s", "-c", _READ, precision],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.provisions
@pytest.mark.parametrize(
    ("precision", "allowed", "legacy"), [("tf32", True, "high"), ("ieee", False, "highest")]
)
def test_precision_switches_never_contradict_each_other(
    precision: str,
    allowed: bool,
    legacy: str,
    framework_environment: Callable[[str], EnvironmentRecord],
) -> None:
    """Torch raises when a switch is read that another one contradicts, and Inductor reads both
    kinds: only where every switch was set can a step in TF32 be compiled, and its end be read."""
    found = _read(framework_environment("torch"), precision)

    assert found["gpu"] == [precision, precision]
    assert found["effective"]["fp32_precision"] == {"matmul": precision, "conv": precision}
    assert found["read_by_inductor"] == {
        "cuda.matmul.allow_tf32": allowed,
        "cuda.matmul.fp32_precision": precision,
        "cudnn.allow_tf32": allowed,
        "cudnn.fp32_precision": precision,
        "mkldnn.fp32_precision": precision,
        "get_float32_matmul_precision": legacy,
    }


@pytest.mark.provisions
def test_the_libraries_of_a_cuda_build_report_their_versions(
    framework_environment: Callable[[str], EnvironmentRecord],
) -> None:
    """A CUDA build loads them without a GPU, too."""
    environment = framework_environment("torch")
    versions = _read(environment, "ieee")["effective"]["versions"]
    shipped = {
        name: next(
            (
                version
                for package, version in environment.packages.items()
                if package.startswith(f"nvidia-{name}")
            ),
            None,
        )
        for name in ("cudnn", "cublas", "nccl")
    }
    if not versions["cuda"]:
        assert set(shipped.values()) == {None}
    for name, version in shipped.items():
        if versions[name] != "not loaded":
            assert str(version).startswith(versions[name])
