"""Profiles: what a campaign measures, each a function that returns a frozen dataclass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from benchcore.errors import UserError
from benchcore.planning.breadth import expect_s, list_arms, list_breadth, list_controls
from benchcore.planning.seed0 import CELLS, Cell
from benchcore.planning.tracks import (
    CONTROL_ARMS,
    DEFAULT_TRACK,
    GRAPH_ARMS,
    JAX_NEWEST,
    JAX_NO_DONATION,
    JAX_PREVIOUS,
    STDLIB,
    STRATEGY_ARMS,
    TORCH_CHANNELS_LAST,
    TORCH_COMPILE,
    TORCH_EAGER,
    TORCH_EAGER_PREVIOUS,
    TRACKS,
    Arm,
)
from benchcore.protocol import DuelLimits
from benchcore.verdict.duel.physics import SENTINELS


@dataclass(frozen=True, kw_only=True)
class Match:
    """One case and the arms that it compares. `expected_s` is the first estimate of a duel's time:
    for progress, shards and `--hours`."""

    workload: str
    case: str
    arms: tuple[Arm, ...]
    expected_s: float
    limits: DuelLimits | None = None
    """None = the profile's."""
    track: str = DEFAULT_TRACK
    checkpoint: str | None = None
    """SHA-256 of the file whose weights both sides have; None = seeded ones."""
    sentinel: bool = False
    """Whether it is only measured as a ceiling of the device."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Everything that a campaign's plan is made from, except the versions of the day."""

    name: str
    matches: tuple[Match, ...]
    device: str = "cpu"
    seed: int = 20260101
    limits: DuelLimits = field(default_factory=DuelLimits)
    """Limits of every match without its own."""
    calibration_matches: tuple[Match, ...] = ()
    """Cases that calibration runs use (`benchcore.planning.calibration_runs`): two arms each, whose
    steps take at most a fiftieth of a block."""
    calibration_starts: int = 1
    """Starts of a calibration run in one night."""
    needs: frozenset[str] = frozenset()
    """Which of gpu, slurm, prefect_api and compiler `deadheat verify` requires."""

    def limits_of(self, match: Match) -> DuelLimits:
        """The limits of a match's duel."""
        return match.limits or self.limits


_COMPILED = (JAX_NEWEST, TORCH_COMPILE, *CONTROL_ARMS)
_WITH_EAGER = (*_COMPILED, TORCH_EAGER)


def _sentinel(
    workload: str,
    case: str,
    limits: DuelLimits,
    arms: tuple[Arm, ...] = (JAX_NEWEST, TORCH_EAGER),
) -> Match:
    """A ceiling for the physics check. The best block counts, so one start is enough, and only its
    time is measured."""
    limits = replace(limits.exactly(starts=1, rounds=10), budget_s=20, passes=False)
    return Match(
        workload=workload, case=case, arms=arms, expected_s=12, limits=limits, sentinel=True
    )


_CEILINGS = {
    ("cpu", "fp32_ieee"): "cpu_1024",
    ("cpu", "bf16"): "cpu_1024_bf16",
    ("gpu", "fp32_ieee"): "gpu_8192",
    ("gpu", "tf32"): "gpu_8192_tf32",
    ("gpu", "bf16"): "gpu_8192_bf16",
}
"""Cases of `matmul` by kind of device and precision; autocast runs products in bf16."""


def list_sentinels(
    device: str,
    precision: str,
    arms: tuple[Arm, ...],
    limits: DuelLimits,
    *,
    besides: tuple[str, str] | None = None,
) -> tuple[Match, ...]:
    """The matches that measure one case's ceilings with these arms, in a profile with these limits.

    Empty without arms. `besides` is a workload and case that is measured anyway. There is
    no compute ceiling where the device has none in that precision.
    """
    kind = "cpu" if device == "cpu" else "gpu"
    product_case = _CEILINGS.get((kind, precision.removesuffix("_autocast")))
    copied = "cpu_256m" if kind == "cpu" else "gpu_2g"
    named = zip(SENTINELS, (product_case, copied), strict=True)
    return tuple(
        _sentinel(name, case, limits, arms)
        for name, case in named
        if case and arms and (name, case) != besides
    )


def _calibration_match(
    workload: str, case: str, arm: Arm = TORCH_EAGER, *, expected_s: float
) -> Match:
    return Match(workload=workload, case=case, arms=(JAX_NEWEST, arm), expected_s=expected_s)


def laptop() -> Profile:
    """A CPU with two cores or more: within 10 minutes once packages are cached."""
    limits = DuelLimits(max_starts=10, rounds=8, max_rounds=20, warm_up_limit_s=2.0)
    return Profile(
        name="laptop",
        matches=(
            Match(
                workload="noop",
                case="bare",
                arms=(STDLIB,),
                expected_s=3,
                limits=replace(limits, budget_s=10),
            ),
            _sentinel("matmul", "cpu_1024", limits),
            _sentinel("copy", "cpu_256m", limits),
            Match(
                workload="mlp",
                case="train_b128",
                arms=_WITH_EAGER,
                expected_s=170,
                limits=replace(limits, budget_s=60),
            ),
            # Not a larger batch: 50 steps of a third of a second, five times over, take too long.
            # One compilation: torch's takes 28 s (3 s with filled caches), and a CPU has no
            # autotuner that may choose otherwise the next time.
            Match(
                workload="resnet50",
                case="infer_b1",
                arms=_COMPILED,
                expected_s=225,
                limits=replace(limits, budget_s=80, compilations=1),
            ),
        ),
        calibration_matches=(_calibration_match("mlp", "infer_b32", expected_s=15),),
        limits=limits,
        needs=frozenset({"compiler"}),
    )


def ci() -> Profile:
    """Checks that every stage works, on the smallest cases. Do not use its numbers.

    It measures no ceilings, so its pairs count only where the last 30 days have some."""
    return Profile(
        name="ci",
        matches=(
            Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3),
            Match(
                workload="mlp",
                case="tiny_infer",
                arms=(JAX_NEWEST, JAX_PREVIOUS, TORCH_EAGER, TORCH_EAGER_PREVIOUS),
                expected_s=20,
            ),
        ),
        limits=DuelLimits(starts=2, rounds=4, block_ms=10.0, warm_up_limit_s=0.5),
    )


def smoke() -> Profile:
    """No framework and no work: shows within a minute that a site works from its schedule to the
    page. It measures no frameworks and reports no ratio."""
    return Profile(
        name="smoke",
        matches=(Match(workload="noop", case="bare", arms=(STDLIB,), expected_s=3),),
        limits=DuelLimits(starts=1, rounds=4, block_ms=10.0, warm_up_limit_s=0.5),
    )


_VISION = ("resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0")
"""The models of `h100`: workloads with all of the cases below, in every precision below them."""
_H100_CASES = ("infer_b1", "infer_b8", "infer_b32", "infer_b128", "train_b32")
_H100_PRECISIONS = ("", "_tf32", "_bf16")
"""As they end a case's name; nothing is fp32_ieee. Each has a sentinel of its own."""


def _more_arms(case: str) -> tuple[Arm, ...]:
    """The older versions, and arms that show what one setting gains, in the cases where it can.

    CUDA graphs where launches cost most; donation where there is a state; the layout everywhere.
    """
    graphs = GRAPH_ARMS if case in ("infer_b1", "train_b32") else ()
    donation = (JAX_NO_DONATION,) if case.startswith("train") else ()
    return (*CONTROL_ARMS, *graphs, *donation, TORCH_CHANNELS_LAST)


def h100() -> Profile:
    """An H100: vision models at four batch sizes, and in training, in three precisions, in both
    tracks, the default one with more arms.

    Planned here, and not run on a GPU: its expected seconds are guesses. Each duel compiles three
    times, as a GPU's autotuners may choose otherwise each time.
    """
    limits = DuelLimits(
        max_starts=10,
        max_rounds=30,
        prepare_timeout_s=1200.0,  # max-autotune tries many kernels when it compiles
    )
    sentinels = [_sentinel("matmul", f"gpu_8192{end}", limits) for end in _H100_PRECISIONS]
    matches = [
        Match(
            workload=model,
            case=f"{case}{precision}",
            track=track,
            arms=(*arms, *more),
            expected_s=50 * len((*arms, *more)),
            limits=replace(limits, budget_s=40 * len((*arms, *more))),
        )
        for model, case, precision, (track, arms) in product(
            _VISION, _H100_CASES, _H100_PRECISIONS, TRACKS.items()
        )
        for more in [_more_arms(case) if track == DEFAULT_TRACK else ()]
    ]
    return Profile(
        name="h100",
        matches=(*sentinels, _sentinel("copy", "gpu_2g", limits), *matches),
        device="cuda:0",
        calibration_matches=(
            _calibration_match("mobilenet_v3_small", "infer_b1", TORCH_COMPILE, expected_s=60),
        ),
        calibration_starts=5,
        limits=limits,
        needs=frozenset({"compiler"}),
    )


def seed0(
    cells: Sequence[Cell] = CELLS, device: str = "cpu", controls: tuple[Arm, ...] = CONTROL_ARMS
) -> Profile:
    """Sixteen combinations: four networks, training and per-sample gradients, on one device and on
    two. On a CPU, two devices share its cores. Training on one device is measured in the previous
    versions, too. About 35 minutes on two CPU cores."""
    limits = DuelLimits(
        max_starts=5,
        compilations=1,
        rounds=8,
        max_rounds=20,
        warm_up_limit_s=2.0,
        budget_s=40,
    )
    matches = [
        Match(
            workload=cell.workload,
            case=cell.case,
            arms=(JAX_NEWEST, TORCH_COMPILE, *more),
            expected_s=90 + 20 * len(more),
        )
        for cell in cells
        for more in [controls if cell.use_case == 1 else ()]
    ]
    return _with_ceilings("seed0", matches, limits, device)


def breadth() -> Profile:
    """Every kind of work once: networks, many models at once, operations, kernels, new shapes, and
    the strategies of two devices. Two cases are measured in the previous versions, too. Each duel
    makes few starts: less than an hour on two CPU cores."""
    limits = DuelLimits(
        starts=3,
        compilations=1,
        rounds=6,
        max_rounds=12,
        warm_up_limit_s=1.5,
        budget_s=25,
    )
    matches = [
        Match(
            workload=workload,
            case=case,
            arms=(*list_arms(workload, case), *list_controls(workload, case)),
            expected_s=expect_s(workload, case),
        )
        for workload, case in list_breadth()
    ]
    strategies = [
        Match(workload="small_lm", case="tiny_train_x2", arms=arms, expected_s=91)
        for arms in ((JAX_NEWEST, TORCH_COMPILE), *STRATEGY_ARMS)
    ]
    return _with_ceilings("breadth", [*matches, *strategies], limits)


_HISTORY_CASES = (
    *(("resnet50", "infer_b1"), ("convolution", "dense_3x3"), ("mlp", "train_b128")),
    *(("convolution", "depthwise_3x3"), ("mobilenet_v3_small", "infer_b1")),
    *(("convolution", "dense_3x3_gradient"), ("mnist_cnn", "train_b32")),
    ("text_classifier", "infer_b8"),
)
"""Networks, and operations within them: a change of both shows where it comes from."""


def history() -> Profile:
    """Past versions of a framework, for `deadheat backfill`: eight cases and the sentinels.

    Duels are short, a single start, as each has a contender per version; what seems to have changed
    is measured again."""
    limits = DuelLimits(block_ms=40.0, warm_up_limit_s=0.5, budget_s=300.0)
    limits = replace(limits.exactly(starts=1, rounds=5), passes=False)
    arms = (JAX_NEWEST, TORCH_EAGER)
    matches = [
        Match(workload=workload, case=case, arms=arms, expected_s=15)
        for workload, case in _HISTORY_CASES
    ]
    return _with_ceilings("history", matches, limits)


def _with_ceilings(
    name: str, matches: Sequence[Match], limits: DuelLimits, device: str = "cpu"
) -> Profile:
    """A profile of compiled sides in fp32, with the sentinels that they need."""
    sentinels = list_sentinels(device, "fp32_ieee", (JAX_NEWEST, TORCH_EAGER), limits)
    return Profile(
        name=name,
        matches=(*sentinels, *matches),
        device=device,
        limits=limits,
        needs=frozenset({"compiler"}),
    )


PROFILES: Mapping[str, Callable[[], Profile]] = {
    each.__name__: each for each in (laptop, ci, smoke, h100, seed0, breadth, history)
}


def load_profile(name: str) -> Profile:
    """The profile of that name. Raises UserError for an unknown one."""
    if name not in PROFILES:
        raise UserError(
            f"no profile {name!r}; profiles are {', '.join(PROFILES)}; "
            "choose one, or add a function to benchcore/planning/profiles.py"
        )
    return PROFILES[name]()
