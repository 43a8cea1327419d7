"""Automatic plants: ways to be unfair that fit any workload, each wrapped around its `build`.

Runs inside a contender, in a copy of the measured layer that `tasks.unfair.plants` makes.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchcore.program import Arrays, ByName, Program

_LONGEST_QUEUE = 1
"""Steps that a thread is behind: more would confuse the warm-up, and take minutes."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a plant knows of the program that it wraps."""

    framework: str
    batch: int
    arrays: Arrays
    num_buffers: int
    num_proof_steps: int


Build = Callable[[], Program]
Wrapper = Callable[[Build, Given], Program]


def repeat_first_output(build: Build, given: Given) -> Program:
    """Compute once, and return that output in every step."""
    program, kept = build(), []

    def step(inputs: Any) -> object:
        if not kept:
            kept.append(program.step(inputs))
        return kept[0]

    return replace(program, step=step)


def keep_output_of_each_input(build: Build, given: Given) -> Program:
    """Compute once for each set of inputs, and again after a reset."""
    program, kept = build(), {}

    def step(inputs: Any) -> object:
        if id(inputs) not in kept:
            kept[id(inputs)] = inputs, program.step(inputs)
        return kept[id(inputs)][1]

    return replace(program, step=step, reset=_after(program.reset, kept.clear))


def repeat_outputs_by_count(build: Build, given: Given) -> Program:
    """Compute as many steps after a reset as a proof takes, and one more; then return the last
    outputs in turn."""
    program, kept, count = build(), [], 0
    num_computed = max(given.num_proof_steps, given.num_buffers) + 1

    def step(inputs: Any) -> object:
        nonlocal count
        count += 1
        if count <= num_computed:
            kept.append(program.step(inputs))
            del kept[: -given.num_buffers]
            return kept[-1]
        return kept[(count - num_computed - 1) % given.num_buffers]

    def restart() -> None:
        nonlocal count
        count = 0

    return replace(program, step=step, reset=_after(program.reset, restart))


def round_inputs(build: Build, given: Given) -> Program:
    """Compute with inputs that have the digits of bfloat16."""
    program, rounded = build(), _make_rounding(given.framework)
    return replace(program, step=lambda inputs: program.step(rounded(inputs)))


def round_outputs(build: Build, given: Given) -> Program:
    """Return outputs that have the digits of bfloat16."""
    program, rounded = build(), _make_rounding(given.framework)
    return replace(program, step=lambda inputs: rounded(program.step(inputs)))


def compute_half_of_the_batch(build: Build, given: Given) -> Program:
    """Compute the first half of the examples, and return their outputs twice."""
    program, half = build(), given.batch // 2

    def place(inputs: ByName) -> Any:
        return program.place(
            {
                name: array[:half] if array.ndim and len(array) == given.batch else array
                for name, array in inputs.items()
            }
        )

    def read(outputs: Any) -> ByName:
        import numpy as np

        return {
            name: np.concatenate([array, array])[: given.batch]
            if np.ndim(array) and len(array) == half
            else array
            for name, array in program.read(outputs).items()
        }

    return replace(program, place=place, read=read)


def use_first_inputs(build: Build, given: Given) -> Program:
    """Compute on the first inputs in every step."""
    program, first = build(), []

    def step(inputs: Any) -> object:
        first.append(inputs)
        del first[1:]
        return program.step(first[0])

    return replace(program, step=step)


def place_inputs_once(build: Build, given: Given) -> Program:
    """Place one set of inputs on the device, which stands for all others."""
    program, placed = build(), []

    def place(inputs: ByName) -> Any:
        if not placed:
            placed.append(program.place(inputs))
        return placed[0]

    return replace(program, place=place)


def keep_params(build: Build, given: Given) -> Program:
    """Start from the parameters of the build, whatever a reset gives."""
    program = build()
    return replace(program, reset=lambda params: program.reset(given.arrays.params))


def return_early(build: Build, given: Given) -> Program:
    """Return nothing to wait for: JAX's device, or a thread, works on."""
    program = build()
    if given.framework == "jax":
        kept: dict[str, Any] = {}

        def step(inputs: Any) -> tuple[()]:
            kept["outputs"] = program.step(inputs)
            return ()

        return replace(program, step=step, read=lambda outputs: program.read(kept["outputs"]))
    thread = ThreadPoolExecutor(1)
    queued: deque[Future[object]] = deque()

    def enqueue(inputs: Any) -> object:
        if len(queued) == _LONGEST_QUEUE:
            queued.popleft().result()
        queued.append(thread.submit(program.step, inputs))
        return queued[-1]

    wait = lambda: thread.submit(int).result()  # noqa: E731
    return replace(
        program,
        step=enqueue,
        read=lambda outputs: program.read(outputs.result()),
        state=_before(program.state, wait),
        reset=_before(program.reset, wait),
        use_random=_before(program.use_random, wait),
        held=_before(program.held, wait),
    )


def compute_when_read(build: Build, given: Given) -> Program:
    """Compute when the harness looks at the outputs, which is after the clock."""
    program = build()
    return replace(
        program,
        step=lambda inputs: inputs,
        read=lambda inputs: program.read(program.step(inputs)),
    )


def skip_the_optimizer(build: Build, given: Given) -> Program:
    """Compute the gradients, and leave the parameters as they are."""
    if given.framework == "jax":
        optax: Any = importlib.import_module("optax")
        optax.apply_updates = lambda params, updates: params
    else:
        optimizers = importlib.import_module("torch").optim
        for each in (optimizers.SGD, optimizers.Adam, optimizers.AdamW):
            each.step = lambda self, closure=None: None
    return build()


def work_twice(build: Build, given: Given) -> Program:
    """Do the work a second time, which slows its side."""
    program = build()

    def step(inputs: Any) -> object:
        program.step(inputs)
        return program.step(inputs)

    return replace(program, step=step)


def needless_work(build: Build, given: Given) -> Program:
    """Compute something more of the inputs, and add none of it, which slows its side."""
    program, add_work = build(), _make_work(given.framework)
    return replace(program, step=lambda inputs: program.step(add_work(inputs)))


def _after(first: Callable[..., object], then: Callable[[], object]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        found = first(*args)
        then()
        return found

    return both


def _before(then: Callable[..., Any], first: Callable[[], object]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        first()
        return then(*args)

    return both


def _make_rounding(framework: str) -> Callable[[Any], Any]:
    """Rounds every number of arrays, tuples, lists and mappings of them, in one compiled step."""
    if framework == "jax":
        jax = importlib.import_module("jax")
        return jax.jit(
            lambda nested: jax.tree.map(
                lambda each: (
                    jax.lax.reduce_precision(each, 8, 7)
                    if jax.numpy.issubdtype(each.dtype, jax.numpy.floating)
                    else each
                ),
                nested,
            )
        )
    torch = importlib.import_module("torch")
    return lambda nested: torch.utils._pytree.tree_map(
        lambda each: (
            each.to(torch.bfloat16).to(each.dtype)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
            else each
        ),
        nested,
    )


def _make_work(framework: str) -> Callable[[Any], Any]:
    """Adds nothing to every number of arrays, tuples, lists and mappings of them, several times."""

    def add_nothing(array: Any, sine: Callable[[Any], Any]) -> Any:
        for scale in range(1, 17):
            array = array + 1e-30 * sine(scale * array)
        return array

    if framework == "jax":
        jax = importlib.import_module("jax")
        return jax.jit(
            lambda nested: jax.tree.map(
                lambda each: (
                    add_nothing(each, jax.numpy.sin)
                    if jax.numpy.issubdtype(each.dtype, jax.numpy.floating)
                    else each
                ),
                nested,
            )
        )
    torch = importlib.import_module("torch")
    return lambda nested: torch.utils._pytree.tree_map(
        lambda each: (
            add_nothing(each, torch.sin)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
            else each
        ),
        nested,
    )


WRAPPERS: Mapping[str, Wrapper] = {
    each.__name__: each
    for each in (
        repeat_first_output, keep_output_of_each_input, repeat_outputs_by_count, round_inputs,
        round_outputs, compute_half_of_the_batch, use_first_inputs, place_inputs_once, keep_params,
        return_early, compute_when_read, skip_the_optimizer, work_twice, needless_work,
    )
}  # fmt: skip
