"""The contract of a workload: its `spec.py` ends with a `SPEC`. Optional parts have defaults."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchcore.program import Arrays, ByName, State, Steps
from benchcore.workloads.proof_inputs.kinks import widen_near_kinks
from benchcore.workloads.proof_inputs.large_values import enlarge, shrink
from benchcore.workloads.settings import Options

if TYPE_CHECKING:  # a stdlib-only contender runs where numpy is not installed
    import numpy as np

MakeArrays = Callable[[Any, int], Arrays]
"""(case, seed) -> the initial parameters and the inputs."""


def stack_outputs(case: Any, steps: Steps) -> dict[str, np.ndarray]:
    """The outputs of all steps, by name: (steps, ...)."""
    if not any(steps.outputs):
        return {}
    import numpy as np

    return {name: np.stack([each[name] for each in steps.outputs]) for name in steps.outputs[0]}


@dataclass(frozen=True, kw_only=True)
class TrainedImages:
    """The images that a network can train on: the most classes, and their height and width; None =
    a side in multiples of 32."""

    side: int | None
    classes: int


@dataclass(frozen=True, kw_only=True)
class TrainedTexts:
    """The texts: tokens of each, different tokens, and the most classes; None = the labels are the
    next tokens."""

    tokens: int
    vocabulary: int
    classes: int | None


@dataclass(frozen=True, kw_only=True)
class TrainedGraphs:
    """The graphs: nodes of a neighbourhood, edges to each, features of a node, the most classes."""

    nodes: int
    degree: int
    features: int
    classes: int


TrainedData = TrainedImages | TrainedTexts | TrainedGraphs


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One workload without a framework. A case is a dataclass of the workload's own, with at least
    `use_case`, `batch` and `precision`."""

    cases: Mapping[str, Any]
    """By name. Each use case has a case `tiny_<use case>`, which the tests run."""
    make_arrays: MakeArrays
    flops: Callable[[Any], int]
    """Operations per step of a case, of its matrix products and convolutions alone."""
    least_bytes: Callable[[Any], int]
    """Bytes per step that any implementation must move to or from memory."""
    tolerances: Callable[[Any], Mapping[str, float]]
    """Largest allowed max|a-b| / max(|a|, |b|) between two contenders, by quantity of evidence."""
    enlarge: Callable[[Any, Arrays], Arrays] = enlarge
    """Makes the proof inputs with large values."""
    shrink: Callable[[Any, Arrays], Arrays] = shrink
    """Makes those with small variances."""
    leave_kinks: Callable[[Any, ByName], ByName] | None = None
    """Parameters of a training far from the kinks of its ReLUs; None = it has none
    that matter. See `kinks`."""
    num_buffers: Callable[[Any], int] = lambda case: 1
    """Sets of inputs that steps take in turn: see `rotation`."""
    num_proof_steps: Callable[[Any], int] | None = None
    """Steps that the evidence is made of; None = one for each set of inputs."""
    summarise: Callable[[Any, Steps], Mapping[str, np.ndarray]] = stack_outputs
    """The quantities that `tolerances` names, from the steps of a proof."""
    advance: Callable[[Any, State, State, State], State] | None = None
    """(case, before, after, fresh) -> the state that a step must lead to: see `optimizers`. None =
    steps change no state, or only running statistics."""
    list_parts: Callable[[Any, Steps], Mapping[str, np.ndarray]] | None = None
    """Quantities by array, `gradient/NAME`, to find the one where two contenders differ."""
    reference: Callable[[Any, Arrays], Mapping[str, np.ndarray]] | None = None
    """Computes the evidence in float64 numpy, for the tests."""
    in_numpy: Callable[[Any, Arrays], Callable[[], object]] | None = None
    """The step in NumPy on the host, timed beside the frameworks; None = it is not compared."""
    settings: Mapping[str, Options] = field(default_factory=dict)
    """Settings a contender accepts besides `compile`, by framework."""
    proofs: Mapping[str, Any] = field(default_factory=dict)
    """The cases that the equivalence proof computes, by use case; their ratios need a proof."""
    checkpoint_proofs: Mapping[str, Any] | None = None
    """The same for weights from a checkpoint; None = `proofs`."""
    state_dict_shapes: Callable[[Any], Mapping[str, tuple[int, ...]]] | None = None
    """Shapes of a checkpoint's arrays by name; None = no checkpoint fits this workload."""
    trains_on: Callable[[Any], TrainedData] | None = None
    """The data sets that a case can train on; None = on none."""
    make_training_arrays: Callable[[MakeArrays, Any, int, ByName], Arrays] | None = None
    """Makes arrays whose inputs are a batch of a data set. A spec has it if `trains_on` is set."""
    winograd_share: Callable[[Any], float] | None = None
    """Share of a step's FLOPs in 3x3 convolutions of stride 1, where Winograd needs fewer."""
    rounds_exponentials: Callable[[Any], bool] = lambda case: False
    """Whether a bf16 case computes exponentials and roots in bfloat16, as a single operation of a
    framework may; others compute norms, softmaxes and losses in float32 at least."""
    injects_faults: bool = False
    """Whether it fails on purpose: its numbers are never judged."""

    def smooth(self, case: Any, arrays: Arrays) -> Arrays:
        """The arrays far from the kinks of ReLUs, if small differences of its gradients count."""
        if self.leave_kinks is None or not self._has_kinks(case):
            return arrays
        return Arrays(params=self.leave_kinks(case, arrays.params), inputs=arrays.inputs)

    def tolerances_near_kinks(self, case: Any) -> Mapping[str, float]:
        """The tolerances of arrays that are not `smooth`."""
        found = self.tolerances(case)
        if self.leave_kinks is None or not self._has_kinks(case):
            return found
        return widen_near_kinks(found)

    @staticmethod
    def _has_kinks(case: Any) -> bool:
        return case.use_case != "infer" and case.precision == "fp32_ieee"


make_idle_spec = functools.partial(
    Spec,
    make_arrays=lambda case, seed: Arrays(params={}, inputs={}),
    flops=lambda case: 0,
    least_bytes=lambda case: 0,
    tolerances=lambda case: {},
)
"""The spec of a workload without arrays, arithmetic and outputs: nothing is there to compare."""


def size_case(case: Any, batch: int, side: int | None) -> Any:
    """A training case with another batch, and another side where the network takes any."""
    sized = {"side": side} if "side" in vars(case) else {}
    return dataclasses.replace(case, batch=batch, **sized)


def import_spec(workload: str) -> Spec:
    """The `SPEC` of an existing workload."""
    return importlib.import_module(f"benchcore.workloads.{workload}.spec").SPEC
