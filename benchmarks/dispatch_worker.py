"""Times calls of a small model as people call it; runs in a framework's Python, prints JSON.

    python dispatch_worker.py FRAMEWORK TURNS

Ways take turns, so that a busy machine is busy for all of them. Of each turn the time of as many
calls as fill 20 ms, waited for together, per call, in nanoseconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

LAYERS = 16
WIDTH = 8
"""The work itself takes little, and calls of modules are as many as in a small network."""
_TURN_NS = 20_000_000
_WARM_UP = 50

Ways = Mapping[str, Callable[[], Any]]


def jax_ways() -> tuple[Ways, Callable[[Any], object]]:
    """`jax.jit` of a function on plain arrays and on Flax's state, and `nnx.jit` of the module."""
    import jax
    from flax import nnx

    class Stack(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.layers = nnx.List([nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(LAYERS)])

        def __call__(self, value: jax.Array) -> jax.Array:
            for layer in self.layers:
                value = nnx.relu(layer(value))
            return value

    model, given = Stack(), jax.numpy.ones((1, WIDTH))
    graph, state = nnx.split(model)
    leaves, form = jax.tree.flatten(state)
    of_arrays = jax.jit(lambda leaves, x: nnx.merge(graph, jax.tree.unflatten(form, leaves))(x))
    of_state = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    of_module = nnx.jit(lambda model, x: model(x))
    cached = nnx.cached_partial(of_module, model)
    ways = {
        "jax.jit, arrays": lambda: of_arrays(leaves, given),
        "jax.jit, nnx.State": lambda: of_state(state, given),
        "nnx.cached_partial": lambda: cached(given),
        "nnx.jit, module": lambda: of_module(model, given),
    }
    return ways, jax.block_until_ready


def torch_ways() -> tuple[Ways, Callable[[Any], object]]:
    """Eager under each of torch's modes, and compiled."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model, given = nn.Sequential(*layers).eval(), torch.ones(1, WIDTH)
    compiled = torch.compile(model, fullgraph=True)

    def under(context: Callable[[], Any], function: Callable[[Any], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with context():
                return function(given)

        return call

    ways = {
        "compiled, inference_mode": under(torch.inference_mode, compiled),
        "eager, inference_mode": under(torch.inference_mode, model),
        "eager, no_grad": under(torch.no_grad, model),
        "eager, gradient kept": lambda: model(given),
    }
    return ways, lambda output: output


def _time(way: Callable[[], Any], wait: Callable[[Any], object], calls: int) -> int:
    began = time.perf_counter_ns()
    for _ in range(calls - 1):
        way()
    wait(way())
    return time.perf_counter_ns() - began


def main() -> None:
    """Warm every way up, then let them take turns."""
    framework, turns = sys.argv[1], int(sys.argv[2])
    ways, wait = {"jax": jax_ways, "torch": torch_ways}[framework]()
    calls = {}
    for name, way in ways.items():
        _time(way, wait, _WARM_UP)
        calls[name] = max(1, _TURN_NS * _WARM_UP // _time(way, wait, _WARM_UP))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(_time(way, wait, calls[name]) / calls[name])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
