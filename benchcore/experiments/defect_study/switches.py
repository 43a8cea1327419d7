"""The errors of public comparisons as switches of a duel.

A switch makes one side, or the clock that measures it, wrong in one way. The study compares the
result with the fair pair of the same duel. Sources are the rows of the table of pitfalls in
`benchcore/cell/pitfalls.md`, and the public projects that have the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchcore.device_names import parse_device
from benchcore.errors import UserError
from benchcore.planning.catalog import check_settings
from benchcore.planning.requests import name_arm
from benchcore.protocol import COMPARED, ComparedFramework
from benchcore.workloads.settings import DEFECTS

H100 = "LucasTakanori/jax-pytorch-h100-benchmark"
PARALLEL = "mlguild/PytorchVsJax"
EPOCH_IMAGES = 126_689
"""Size of ImageNet-100, on which the H100 comparison trained."""
CLOCKED_STEPS = 50
"""The H100 comparison reports the mean of this many steps."""

Settings = Mapping[ComparedFramework, Mapping[str, str]]
"""Per framework the settings of its side."""
Reading = Literal[
    "enqueued", "first call", "waited for each step", "with compilation", "epoch", "in tf32"
]
"""How the time of a correct side is misread. `enqueued`: until the call returned. `first call`:
only that. `waited for each step`: single synchronised steps against queued ones. `with
compilation`: the mean of CLOCKED_STEPS with the first call and its compilation. `epoch`: an epoch
of EPOCH_IMAGES that compiles its step again. `in tf32`: the same case in TF32."""


@dataclass(frozen=True)
class Switch:
    """One error: the settings of each side that differ from the fair ones, or a misread time.

    `row` is its row in the table of pitfalls, if it has one. `guard` is what prevents a misread
    time here; no guard can be seen to catch one, because the study computes it afterwards.
    """

    name: str
    title: str
    source: str
    row: int | None = None
    settings: Settings = field(default_factory=dict)
    readings: Mapping[ComparedFramework, Reading] = field(default_factory=dict)
    use_cases: tuple[str, ...] = ("infer", "train")
    needs_gpu: bool = False
    guard: str = ""

    @property
    def sides(self) -> tuple[ComparedFramework, ...]:
        """The sides that the error slows down or speeds up."""
        return tuple(side for side in COMPARED if side in {**self.settings, **self.readings})


def _set(side: ComparedFramework, **settings: str) -> dict[str, Any]:
    return {"settings": {side: settings}}


def _break(side: ComparedFramework, name: str) -> dict[str, Any]:
    """A side with one of the workload's own defects."""
    return {"settings": {side: {DEFECTS: name}}}


def _misread(how: Reading, *sides: ComparedFramework) -> dict[str, Any]:
    return {"readings": dict.fromkeys(sides, how)}


_TRAIN: dict[str, Any] = {"use_cases": ("train",)}
_GPU: dict[str, Any] = {"needs_gpu": True}
_STOPS = "a block's clock stops when every output is ready"
_STAGES = "compilation and the first run are separate stages; a compilation in a block voids it"
_LATENCY = "latency is a separate quantity with its own columns"
_TF32 = "the canary measures the precision that an FP32 case really uses"
_MEAN = f"JAX's mean of {CLOCKED_STEPS} steps includes its compilation"
_ANEW = f"JAX recompiles in each epoch ({EPOCH_IMAGES:,} images)"
# fmt: off
SWITCHES = (
    Switch("torch-eager", "PyTorch eager, NCHW, against jit", H100, 8,
           **_set("torch", compile="none")),
    Switch("torch-eager-channels-last", "PyTorch eager, channels_last, against jit", H100, 7,
           **_set("torch", compile="none", layout="channels_last")),
    Switch("no-cudnn-benchmark", "cuDNN's autotuning off, XLA's on", H100, 10,
           **_set("torch", cudnn_benchmark="off"), **_GPU),
    Switch("tf32-against-fp32", "JAX in TF32, PyTorch's products in FP32", H100, 5,
           **_misread("in tf32", "jax"), **_GPU, guard=_TF32),
    Switch("v1-stride", "JAX's ResNet-50 is v1: the stride is in the first 1x1", H100,
           **_break("jax", "v1-stride")),
    Switch("plain-sigmoid", "JAX's gates use sigmoid instead of hard sigmoid", H100,
           **_break("jax", "plain-sigmoid")),
    Switch("tanh-gelu", "JAX's GELU is the tanh approximation", H100, 25,
           **_break("jax", "tanh-gelu")),
    Switch("same-padding", "JAX's convolutions use SAME padding", PARALLEL, 24,
           **_break("jax", "same-padding")),
    Switch("frozen-batch-norm", "JAX trains with batch norms in inference mode", H100,
           **_break("jax", "frozen-batch-norm"), **_TRAIN),
    Switch("frozen-weights", "PyTorch's weights get no gradient", PARALLEL,
           **_break("torch", "frozen-weights"), **_TRAIN),
    Switch("image-from-host", "JAX gets a transposed batch from the host at each step", H100, 31,
           **_break("jax", "image-from-host"), **_TRAIN),
    Switch("jax-loss-fetched", "JAX's loss is read on the host at each step", H100, 29,
           **_break("jax", "loss-fetched"), **_TRAIN),
    Switch("torch-loss-fetched", "PyTorch's loss is read on the host at each step", H100, 29,
           **_break("torch", "loss-fetched"), **_TRAIN),
    Switch("no-donation", "JAX copies its state instead of donating it", H100, 16,
           **_set("jax", donate="no"), **_TRAIN),
    Switch("jax-not-waited-for", "JAX's clock stops when the call returns", PARALLEL, 1,
           **_misread("enqueued", "jax"), guard=_STOPS),
    Switch("torch-not-waited-for", "PyTorch's clock stops when the call returns", PARALLEL, 1,
           **_misread("enqueued", "torch"), guard=_STOPS),
    Switch("jax-waited-for-each-step", "JAX waits for each step, PyTorch's steps are queued", H100,
           2, **_misread("waited for each step", "jax"), guard=_LATENCY),
    Switch("torch-waited-for-each-step", "PyTorch waits for each step, JAX's steps are queued",
           H100, 2, **_misread("waited for each step", "torch"), guard=_LATENCY),
    Switch("no-warm-up", "Both sides' first call, with compilation", PARALLEL, 3,
           **_misread("first call", "jax", "torch"), guard=_STAGES),
    Switch("compilation-timed", _MEAN, H100, 3,
           **_misread("with compilation", "jax"), guard=_STAGES),
    Switch("recompile-each-epoch", _ANEW, H100, 4,
           **_misread("epoch", "jax"), **_TRAIN, guard=_STAGES),
)
# fmt: on

_FAIR: Settings = {
    "jax": {"compile": "jit"},
    "torch": {"compile": "default"},
}
"""Compiled on both sides, and on a GPU autotuned on both, as XLA always is."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """One correction on the way from all errors to the fair pair: `title` names the error
    removed."""

    title: str
    settings: Settings


def list_switches(workload: str, use_case: str, names: Sequence[str] = ()) -> list[Switch]:
    """The switches for a workload's use case. Raises UserError for another name."""
    usable = [each for each in SWITCHES if use_case in each.use_cases and _takes(workload, each)]
    known = [each.name for each in usable]
    for name in names:
        if name not in known:
            raise UserError(
                f"wanted a defect of {workload!r} in use case {use_case!r}, got {name[:100]!r}; "
                f"there are {', '.join(known)}; choose from these with --switch"
            )
    return [each for each in usable if not names or each.name in names]


def _takes(workload: str, switch: Switch) -> bool:
    try:
        for side in COMPARED:
            check_settings(workload, side, fill_in_settings(switch.settings, side, "cpu"))
    except UserError:
        return False
    return True


def fill_in_settings(settings: Settings, side: ComparedFramework, device: str) -> dict[str, str]:
    """All settings of a side: the fair ones with these changes."""
    tuned = side == "torch" and parse_device(device).kind == "cuda"
    fair = {**_FAIR[side], **({"cudnn_benchmark": "on"} if tuned else {})}
    return {**fair, **settings.get(side, {})}


def can_run(switch: Switch, device: str) -> bool:
    """Whether a device can show it: a CPU has no cuDNN and no TF32."""
    return not switch.needs_gpu or parse_device(device).kind == "cuda"


def list_corrections(switches: Iterable[Switch]) -> list[Correction]:
    """From all model and step errors of the H100 comparison together to none, one removed at a
    time.

    Errors of the clock are left out, because they only misread these measurements.
    """
    stacked = [
        each
        for each in switches
        if each.source == H100 and each.settings and each.name not in _NOT_STACKED
    ]
    corrections = []
    for number in range(len(stacked) + 1):
        done = f"without: {stacked[number - 1].title}" if number else "all of them together"
        corrections.append(Correction(title=done, settings=_join(stacked[number:])))
    return corrections if len(stacked) > 1 else []


_NOT_STACKED = ("torch-eager-channels-last",)
"""It replaces another switch, so it can't be combined."""


def _join(switches: Sequence[Switch]) -> dict[ComparedFramework, dict[str, str]]:
    joined: dict[ComparedFramework, dict[str, str]] = {}
    for switch in switches:
        for side, settings in switch.settings.items():
            of_side = joined.setdefault(side, {})
            for key, value in settings.items():
                both = key == DEFECTS and key in of_side
                of_side[key] = f"{of_side[key]}+{value}" if both else value
    return joined


def name_side(side: ComparedFramework, settings: Mapping[str, str]) -> str:
    """The arm's name, including its defect."""
    wrong = settings.get(DEFECTS)
    return name_arm(side, settings) + (f"-{wrong}" if wrong else "")
