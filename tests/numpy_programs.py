"""Programs of numpy that tests prove: an inference and a training, which may be made to cheat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchcore.cell.bound_program import BoundProgram
from benchcore.program import Arrays, Program, Steps
from benchcore.workloads.contract import Spec

BATCH, NUM_STEPS = 4, 6
CASE = SimpleNamespace(precision="fp32_ieee")


def make_arrays(case: Any, seed: int) -> Arrays:
    """A weight of 100 numbers and a batch of images."""
    rng = np.random.default_rng(seed)
    return Arrays(
        params={"weight": rng.standard_normal(100)},
        inputs={"images": rng.standard_normal((BATCH, 100))},
    )


def _summarise(case: Any, steps: Steps) -> dict[str, np.ndarray]:
    travel = steps.after_last["params"]["weight"] - steps.before["weight"]
    return {"loss_trace": np.array([each["loss"] for each in steps.outputs]), "travel": travel}


INFERENCE = Spec(
    cases={},
    make_arrays=make_arrays,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {"sums": 1e-9},
    num_buffers=lambda case: 3,
)
TRAINING = Spec(
    cases={},
    make_arrays=make_arrays,
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {},
    num_buffers=lambda case: 3,
    num_proof_steps=lambda case: NUM_STEPS,
    summarise=_summarise,
    advance=lambda case, before, after, fresh: {"params": fresh["params"]},
)


def make_inference(step: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Program:
    """A program whose `step` gets the weight and the images."""
    weight = make_arrays(None, 1).params["weight"]

    def reset(params: Mapping[str, np.ndarray]) -> None:
        nonlocal weight
        weight = params["weight"]

    return Program(
        place=lambda inputs: (inputs["images"],),
        step=lambda inputs: step(weight, inputs[0]),
        reset=reset,
        read=lambda sums: {"sums": sums},
    )


class Learner:
    """Gradient descent on the squares of weight times images; `learn` may be replaced."""

    def __init__(self, learn: Callable[[Learner, np.ndarray], float]) -> None:
        self.weight, self.num_steps = make_arrays(None, 1).params["weight"], 0
        self.vanishes = False
        self._learn = learn

    def make(self) -> Program:
        """The program, whose state is here."""
        return Program(
            place=lambda inputs: (inputs["images"],),
            step=lambda inputs: (np.array(self._learn(self, inputs[0])), self.weight),
            reset=self._reset,
            read=lambda outputs: {"loss": outputs[0]},
            state=lambda: {"params": {"weight": self.weight.copy()}},
        )

    def _reset(self, params: Mapping[str, np.ndarray]) -> None:
        self.weight, self.num_steps = params["weight"].copy(), 0


def descend(learner: Learner, images: np.ndarray) -> float:
    """An honest step of the training; returns the loss."""
    sums = images @ learner.weight
    learner.weight = learner.weight - 1e-4 * images.T @ sums
    return float(np.square(sums).mean())


def skip_waiting(outputs: object) -> None:
    """Nothing here runs ahead, so nothing is waited for."""


def bind(program: Program, spec: Spec) -> BoundProgram:
    """The program with the arrays of seed 1."""
    return BoundProgram(program, spec, CASE, make_arrays(CASE, 1))


def prove(program: Program, spec: Spec, seed: int = 2) -> dict[str, Any]:
    """Evidence from the known proof inputs and from others."""
    bound = bind(program, spec)
    known = bound.prove(skip_waiting, skip_waiting)
    return {
        "known": known,
        "other": bound.prove(skip_waiting, skip_waiting, make_arrays(None, seed)),
    }


def compare_evidence(one: dict[str, Any], other: dict[str, Any]) -> dict[str, bool]:
    """Whether two answers of `prove` differ, by start."""
    return {
        start: any(
            not np.allclose(one[start][name], other[start][name], rtol=1e-9) for name in one[start]
        )
        for start in one
    }


def multiply(weight: np.ndarray, images: np.ndarray) -> np.ndarray:
    """An honest step of the inference."""
    return images @ weight
