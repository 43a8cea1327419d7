"""An epoch reads its losses at its end, when CUDA graphs have long overwritten their outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_contenders import run_script

from tasks.unfair.framework_servers import FrameworkServers

pytestmark = pytest.mark.provisions
ROOT = Path(__file__).parents[4]
_LEARN = """
import json, sys
from unittest import mock
import numpy as np
import torch
from benchcore.workloads.contract import import_spec

class Replayed(torch.autograd.Function):
    '''A result in the memory that the next call writes to, as of a CUDA graph.'''

    @staticmethod
    def forward(ctx, result, memory):
        return memory[0].copy_(result).detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None

def compile(function, **options):
    memory = []
    def replay(*given):
        result = function(*given)
        memory.extend([] if memory else [torch.empty_like(result)])
        return Replayed.apply(result, memory)
    return replay

found = {}
for workload, module in json.loads(sys.argv[1]).items():
    __import__(module)
    spec = import_spec(workload)
    case = spec.cases["tiny_train"]
    arrays = spec.make_arrays(case, 7)
    count, channels, *sides = arrays.inputs["images"].shape
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (count, 3, *sides), dtype=np.uint8)
    batch = {"images": images, "labels": arrays.inputs["labels"]}
    with mock.patch.object(torch, "compile", compile):
        settings = {"device": "cpu", "compile": "reduce-overhead"}
        program = sys.modules[module].build(case, arrays, settings)
        training = program.training()
        def learn(read):
            torch.manual_seed(0)
            training.reset()
            return [read(training.learn(training.send(training.stage(batch)))) for _ in range(3)]
        found[workload] = learn(float), [float(each) for each in learn(lambda loss: loss)]
print(json.dumps(found))
"""


def test_an_epochs_losses_survive_the_next_replay(
    framework_python: Callable[[str], Path], framework_servers: FrameworkServers
) -> None:
    """Of networks of ours and of torchvision's."""
    workloads = {
        name: f"benchcore.workloads.{name}.in_torch" for name in ("mnist_cnn", "mobilenet_v3_small")
    }
    done = run_script(
        framework_servers,
        framework_python("torch"),
        ["torch", "torch._dynamo"],
        _LEARN,
        json.dumps(workloads),
        PYTHONPATH=str(ROOT),
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr
    for workload, (at_once, kept) in json.loads(done.stdout.splitlines()[-1]).items():
        assert len(set(at_once)) == 3, workload
        assert kept == pytest.approx(at_once, rel=1e-3), workload
