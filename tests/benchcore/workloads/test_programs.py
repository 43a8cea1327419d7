"""Runs every workload's tiny cases in every framework, and compares what came out in a third
process: this one, which has neither framework."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchcore.cell.inspection import FAIR
from benchcore.cell.loader.epochs import seen_tolerances
from benchcore.cell.proof.float64_rule import ProofRule, SideEvidence, judge
from benchcore.cell.proof.steps.given import ALL
from benchcore.environments.uv_command import run_uv
from benchcore.planning.catalog import is_faulty, list_workloads
from benchcore.verdict.duel.parity import MOST_UNLIKE_SIZES, PLAIN

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = [name for name in list_workloads() if not is_faulty(name)]
SEED = 7
TIMEOUT_S = 1200
"""Of one framework's process: it takes three minutes on two idle cores, and they are not always."""
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)
ARMS: dict[str, tuple[str, str]] = {
    "stdlib": ("stdlib", "none"),
    "jax": ("jax", "jit"),
    "torch": ("torch", "none"),
    "torch_compiled": ("torch", "default"),
}
TRACED = {("resnet50", "tiny_infer"), ("vit_b_16", "tiny_train")}
"""Cases whose parts are compared too, to find the one with a mistake."""
GUILTY = {
    "transposed_kernel": "layer1.0.conv2",
    "swapped_query_and_key": "encoder.layers.encoder_layer_0.self_attention",
}
"""Of these mistakes, the layer that makes it."""
COMPILED = ("mlp",)
"""Workloads small enough to go through torch's compiler on every run of the tests."""


def _spec(workload: str) -> Any:
    return importlib.import_module(f"benchcore.workloads.{workload}.spec").SPEC


def _tiny_cases(workload: str) -> list[str]:
    cases = _spec(workload).cases.items()
    names = [name for name, case in cases if getattr(case, "devices", 1) == 1]
    return [name for name in names if name.startswith("tiny")] or names


def _arms(workload: str) -> list[str]:
    folder = ROOT / "benchcore/workloads" / workload
    here = [arm for arm, (framework, _) in ARMS.items() if (folder / f"in_{framework}.py").exists()]
    return [arm for arm in here if arm != "torch_compiled" or workload in COMPILED]


@dataclass(frozen=True, kw_only=True)
class Job:
    workload: str
    case: str
    arm: str
    mutation: str | None = None
    wrong_mode: str | None = None
    exact: bool = False
    """In float64, whatever the case's precision."""
    option: tuple[str, str] | None = None
    """A setting that is not the default."""
    handed: bool = False
    """Given a batch of a data set too, as `deadheat train` gives it."""

    @property
    def key(self) -> str:
        end = [each for each in ("exact", "handed") if getattr(self, each)]
        mode = f"mode={self.wrong_mode}" if self.wrong_mode else ""
        what = self.mutation or mode or "=".join(self.option or ()) or "right"
        return "-".join([self.workload, self.case, self.arm, what, *end])

    def document(self, folder: Path) -> dict[str, Any]:
        framework, mode = ARMS[self.arm]
        return {
            "workload": self.workload,
            "case": self.case,
            "seed": SEED,
            "framework": framework,
            "settings": {
                "device": "cpu",
                "compile": self.wrong_mode or mode,
                **dict([self.option] if self.option else []),
            },
            "steps": 0 if self.mutation or self.exact or self.handed else 3,
            "mutation": self.mutation,
            "parts": (self.workload, self.case) in TRACED
            and not self.exact
            and (self.mutation is None or self.mutation in GUILTY),
            "watched": self in WATCHED,
            "exact": self.exact,
            "handed": self.handed,
            "out": str(folder / self.key),
        }


RIGHT = [
    Job(workload=workload, case=case, arm=arm)
    for workload in WORKLOADS
    for case in _tiny_cases(workload)
    for arm in _arms(workload)
]
MUTATED = [
    *(
        Job(workload=workload, case=f"tiny_{use_case}", arm="torch", mutation=mutation)
        for workload, use_case, mutations in (
            (
                "resnet50",
                "infer",
                "same_padding v1_stride wrong_epsilon transposed_kernel longer_branch",
            ),
            (
                "resnet50",
                "train",
                "wrong_epsilon norm_momentum biased_variance fast_variance no_decay "
                "decay_after_momentum undecayed_biases",
            ),
            ("mobilenet_v3_small", "infer", "longer_branch no_squeeze untransposed_in_mobilenet"),
            ("mobilenet_v3_small", "train", "usual_epsilon usual_momentum undecayed_biases"),
            (
                "efficientnet_b0",
                "infer",
                "no_squeeze untransposed_in_efficientnet biased_convolutions longer_branch",
            ),
            ("efficientnet_b0", "train", "biased_variance fast_variance undecayed_biases"),
            ("vit_b_16", "infer", "tanh_gelu usual_layer_norm longer_branch"),
            (
                "vit_b_16",
                "train",
                "swapped_query_and_key adam adamw_without_decay undecayed_biases",
            ),
        )
        for mutation in mutations.split()
    ),
    *(
        Job(workload="mnist_cnn", case="tiny_per_sample_grad", arm="torch", mutation=mutation)
        for mutation in ("clipped_mean", "unclipped", "norms_without_biases")
    ),
    *(
        Job(workload=workload, case=f"tiny_{use_case}", arm="torch", mutation=mutation)
        for workload, use_case, mutations in (
            ("cifar_resnet", "infer", "other_epsilon transposed_in_cifar"),
            ("cifar_resnet", "train", "other_momentum biased_statistics longer_block larger_rate"),
            ("cifar_resnet", "per_sample_grad", "two_groups unclipped"),
            ("text_classifier", "infer", "in_tanh_gelu small_epsilon"),
            ("text_classifier", "train", "query_for_key"),
            ("text_classifier", "per_sample_grad", "unclipped"),
            ("small_lm", "infer", "looks_ahead"),
            ("small_lm", "train", "loss_of_last_token"),
            ("small_lm", "per_sample_grad", "unclipped"),
            ("graph_gcn", "infer", "reversed_edges"),
            ("graph_gcn", "train", "unweighted_edges larger_rate"),
            ("graph_gcn", "per_sample_grad", "unclipped"),
        )
        for mutation in mutations.split()
    ),
    Job(workload="mnist_cnn", case="tiny_train", arm="torch", mutation="larger_rate"),
    Job(workload="mnist_cnn", case="tiny_train", arm="torch", mutation="in_gelu"),
    Job(workload="mlp", case="tiny_infer", arm="jax", mutation="transposed_matrix"),
    Job(workload="mlp", case="tiny_train", arm="torch", mutation="transposed_matrix"),
    Job(workload="mlp", case="tiny_train", arm="torch", mutation="no_momentum"),
    Job(workload="mlp", case="tiny_infer_bf16", arm="jax", mutation="transposed_matrix"),
    Job(workload="mlp", case="tiny_train_bf16", arm="torch", mutation="no_momentum"),
    Job(workload="mlp", case="tiny_train_bf16_autocast", arm="torch", mutation="no_momentum"),
]
PROVEN = {
    ("resnet50", "tiny_infer"),
    ("resnet50", "tiny_train"),
    ("mobilenet_v3_small", "tiny_infer"),
    ("mnist_cnn", "tiny_train"),
    ("mnist_cnn", "tiny_per_sample_grad"),
    ("cifar_resnet", "tiny_train"),
    ("small_lm", "tiny_infer"),
    ("graph_gcn", "tiny_train"),
    ("mlp", "tiny_train_bf16_autocast"),
}
"""Cases that are held against float64 too, right and with every mistake: one for each mistake, and
one of the precision that no other test of the reference computes in."""
PROVEN_SMALLER = {"wrong_epsilon", "norm_momentum", "biased_variance"}
"""Mistakes in training ResNet-50, 6 s each in float64, that its inference and `cifar_resnet` make
too."""
EXACT_RIGHT, EXACT_WRONG = (
    [
        dataclasses.replace(job, exact=True)
        for job in jobs
        if (job.workload, job.case) in PROVEN
        and not (job.case == "tiny_train" and job.mutation in PROVEN_SMALLER)
    ]
    for jobs in (RIGHT, MUTATED)
)
HANDED = [
    Job(workload=workload, case="tiny_train", arm=arm, handed=True)
    for workload in (
        *("mobilenet_v3_small", "mnist_cnn", "cifar_resnet"),
        *("text_classifier", "small_lm", "graph_gcn"),
    )
    for arm in ("jax", "torch")
]
HANDED_WRONG = [
    Job(workload=workload, case="tiny_train", arm="torch", handed=True, mutation=mutation)
    for workload, mutation in (
        ("mobilenet_v3_small", "halves_for_pixels"),
        ("mobilenet_v3_small", "pixels_to_255"),
        ("mobilenet_v3_small", "blue_first"),
        ("graph_gcn", "inputs_in_half"),
        ("small_lm", "next_token"),
    )
]
OPTIONAL = [
    Job(workload=workload, case=case, arm=arm, option=option)
    for workload, case, arm, option in (
        ("mnist_cnn", "tiny_per_sample_grad", "jax", ("chunk", "2")),
        ("mnist_cnn", "tiny_per_sample_grad_norms", "jax", ("chunk", "1")),
        ("mnist_cnn", "tiny_per_sample_grad", "torch", ("chunk", "2")),
        ("mnist_cnn", "tiny_per_sample_grad", "torch", ("per_sample", "loop")),
        ("small_lm", "tiny_per_sample_grad", "torch", ("per_sample", "loop")),
        ("ops", "tiny_op_linspace_chain", "jax", ("compile", "none")),
        ("ops", "tiny_op_random_normal", "jax", ("compile", "none")),
        *(
            ("ensemble", f"tiny_{use}{end}", "jax", ("compile", "none"))
            for use in ("infer", "gradient")
            for end in ("", "_convnet", "_linear", "_convolution")
        ),
        ("graph_gcn", "tiny_train", "jax", ("aggregate", "sparse")),
        ("graph_gcn", "tiny_train", "torch", ("aggregate", "sparse")),
        ("graph_gcn", "tiny_per_sample_grad", "jax", ("aggregate", "sparse")),
    )
]
"""Other ways to compute the same: among them a backward pass for every sample."""
WATCHED = [*(job for job in RIGHT if "bf16" not in job.case), *OPTIONAL]
"""Other precisions take the same steps."""
DRAWS = {
    ("mlp", "tiny_infer"): False,
    ("mlp", "tiny_train"): False,
    ("graph_gcn", "tiny_infer"): False,
    ("text_classifier", "tiny_infer"): False,
    ("small_lm", "tiny_train"): False,
    ("mnist_cnn", "tiny_per_sample_grad"): False,
    ("mobilenet_v3_small", "tiny_train"): True,
}
"""Whether a step of some cases draws random numbers."""
SPREAD = [
    *(
        Job(workload=workload, case="tiny_train_x4", arm="jax", option=("strategy", strategy))
        for workload in ("small_lm", "text_classifier")
        for strategy in ("data", "fully_sharded", "tensor")
    ),
    *(
        Job(workload=workload, case=f"tiny_{use_case}_x2", arm="jax")
        for workload, use_case in (
            ("mnist_cnn", "train"),
            ("mnist_cnn", "per_sample_grad"),
            ("cifar_resnet", "per_sample_grad"),
            ("text_classifier", "per_sample_grad"),
            ("small_lm", "train"),
            ("graph_gcn", "train"),
        )
    ),
]
"""On parts of the CPU. Real duels hold them against as many processes of torch."""
UNBATCHED = Job(
    workload="graph_gcn",
    case="tiny_per_sample_grad",
    arm="torch",
    option=("aggregate", "sparse"),
)
UNTRACED = dataclasses.replace(UNBATCHED, case="tiny_infer", arm="torch_compiled")
WITHOUT_OPACUS = Job(
    workload="mnist_cnn", case="tiny_per_sample_grad", arm="torch", option=("per_sample", "opacus")
)
BIASED = Job(workload="resnet50", case="tiny_infer", arm="jax", mutation="bias_before_norm")
TRUNCATED = Job(
    workload="mobilenet_v3_small", case="tiny_infer", arm="jax", mutation="truncated_channels"
)
WIDE = Job(workload="efficientnet_b0", case="tiny_infer", arm="jax", mutation="wide_squeeze")
OWN_NORMS = Job(workload="resnet50", case="tiny_train", arm="torch", mutation="norms_as_torch")
MISNAMED = Job(workload="resnet50", case="tiny_infer", arm="jax", mutation="missing_array")
WRONG_SETTINGS = [
    Job(workload=job.workload, case=job.case, arm=job.arm, wrong_mode="faster") for job in RIGHT
]
MISTAKES = {
    "same_padding": "padding 'SAME' at stride 2",
    "v1_stride": "stride in the first 1x1 (v1)",
    "wrong_epsilon": "epsilon 1e-3, not 1e-5",
    "usual_epsilon": "epsilon 1e-5, not 1e-3",
    "norm_momentum": "momentum 0.01, not 0.1",
    "usual_momentum": "momentum 0.1, not 0.01",
    "biased_variance": "running variance biased",
    "fast_variance": "variance in one pass",
    "transposed_kernel": "one 3x3 kernel transposed",
    "untransposed_in_mobilenet": "one depthwise kernel untransposed",
    "untransposed_in_efficientnet": "one depthwise kernel untransposed",
    "no_squeeze": "no squeeze-and-excitation",
    "no_decay": "no weight decay",
    "undecayed_biases": "no decay of biases and norms",
    "longer_branch": "branches of blocks 1 % larger",
    "decay_after_momentum": "weight decay after the momentum",
    "bias_before_norm": "bias before a batch norm",
    "truncated_channels": "channels cut by int()",
    "wide_squeeze": "squeeze of the expanded channels",
    "biased_convolutions": "biases before batch norms",
    "tanh_gelu": "GELU by tanh",
    "usual_layer_norm": "epsilon 1e-5, not 1e-6",
    "swapped_query_and_key": "queries and keys swapped",
    "adam": "Adam, whose moments are decayed",
    "adamw_without_decay": "no weight decay",
}
"""Mutations of vision models, as the table in benchcore/workloads/README.md has them."""
TABLED = [job for job in [*MUTATED, BIASED, TRUNCATED, WIDE] if job.mutation in MISTAKES]
NO_OPERATORS = Job(workload="resnet50", case="tiny_infer", arm="torch", mutation="no_operators")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    facts: dict[str, Any]
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    parts: dict[str, np.ndarray]
    handed: dict[str, np.ndarray]


Outcomes = Mapping[str, Outcome]


def _launch(
    python: str | Path, jobs: list[Job], folder: Path, packages: Path | None = None
) -> Outcomes:
    listed = folder / f"{jobs[0].key}-jobs.json"
    by_case = sorted(jobs, key=lambda job: (job.workload, job.case))
    listed.write_text(json.dumps([job.document(folder) for job in by_case]), encoding="utf-8")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, filter(None, (ROOT, packages))))
    environment["XLA_FLAGS"] = (
        "--xla_backend_optimization_level=1 "  # the least CPU time in all
        "--xla_force_host_platform_device_count=4"
    )
    script = Path(__file__).with_name("run_program.py")
    done = subprocess.run(
        [str(python), "-P", "-s", str(script), str(listed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return {job.key: _read(folder / job.key) for job in jobs}


def _read(stem: Path) -> Outcome:
    facts = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
    evidence: dict[str, np.ndarray] = {}
    if "refused" not in facts:
        with np.load(f"{stem}.npz") as stored:
            evidence = {name: stored[name] for name in stored.files}
    parts = {
        when: {
            name.removeprefix(f"{when}/"): array
            for name, array in evidence.items()
            if name.startswith(f"{when}/")
        }
        for when in ("before", "after", "parts", "handed")
    }
    return Outcome(facts=facts, **parts)


@pytest.fixture(scope="session")
def outcomes(
    framework_python: Callable[[str], str | Path],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Outcomes:
    """Every job's outcome; one process a framework, because importing one takes seconds."""
    folder = tmp_path_factory.mktemp("programs")
    jobs = _wanted(
        request.session.items,
        [
            *RIGHT,
            *MUTATED,
            *EXACT_RIGHT,
            *EXACT_WRONG,
            *HANDED,
            *HANDED_WRONG,
            *OPTIONAL,
            UNBATCHED,
            UNTRACED,
            WITHOUT_OPACUS,
            *SPREAD,
            OWN_NORMS,
            MISNAMED,
            BIASED,
            TRUNCATED,
            WIDE,
            *WRONG_SETTINGS,
        ],
    )
    found: dict[str, Outcome] = {}
    for framework in ("stdlib", "jax", "torch"):
        mine = [job for job in jobs if ARMS[job.arm][0] == framework]
        if mine:
            python = sys.executable if framework == "stdlib" else framework_python(framework)
            found |= _launch(python, mine, folder)
    return found


def _wanted(items: list[pytest.Item], jobs: list[Job]) -> list[Job]:
    """What the selected tests ask for, and every right job of the same case: `-k` stays short."""
    mine = [item for item in items if isinstance(item, pytest.Function)]
    mine = [item for item in mine if "outcomes" in item.fixturenames]
    requested = [item.callspec.params["job"] for item in mine if "job" in item.fixturenames]
    if len(requested) < len(mine):  # one that names no job may look at any
        return jobs
    requested += [_alone(job) for job in requested if job in SPREAD]
    for job in [job for job in requested if job.exact]:  # a proof rests on four outcomes
        requested += [
            dataclasses.replace(job, exact=False),
            dataclasses.replace(job, arm="jax", mutation=None),
        ]
    cases = {(job.workload, job.case, job.handed) for job in requested}
    return [
        job
        for job in jobs
        if job in requested
        or (job in [*RIGHT, *HANDED] and (job.workload, job.case, job.handed) in cases)
    ]


def _alone(job: Job) -> Job:
    """The same on a single device."""
    return dataclasses.replace(job, case=job.case[: -len("_x2")], option=None)


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    scale = max(np.abs(one).max(), np.abs(other).max())
    return float(np.abs(one.astype(np.float64) - other).max() / scale)


def _disagreements(
    job: Job, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]
) -> dict[str, tuple[float, float]]:
    """Quantity -> (difference, tolerance) where the tolerance is not kept; NaN keeps none."""
    spec = _spec(job.workload)
    tolerances = spec.tolerances(spec.cases[job.case])
    assert set(one) == set(other) == set(tolerances)
    differences = {name: _difference(one[name], other[name]) for name in tolerances}
    return {
        name: (differences[name], tolerances[name])
        for name in tolerances
        if not differences[name] <= tolerances[name]
    }


def _key(job: Job) -> str:
    return job.key


@pytest.mark.parametrize("job", RIGHT, ids=_key)
def test_tiny_case_runs_three_steps_and_changes_no_global_state(
    job: Job, outcomes: Outcomes
) -> None:
    outcome = outcomes[job.key]
    assert "refused" not in outcome.facts
    assert outcome.facts["arrays_untouched"]
    assert set(outcome.before) == set(outcome.after)
    for name, array in outcome.before.items():
        assert np.isfinite(array).all()
        np.testing.assert_array_equal(outcome.after[name], array)


@pytest.mark.parametrize("job", RIGHT, ids=_key)
def test_a_programs_precision_is_reported_equally_on_both_sides(
    job: Job, outcomes: Outcomes
) -> None:
    expected = "bfloat16" if "bf16" in job.case else "float32"
    in_place = "in place" if "train" in job.case else None
    if "output_dtype" in outcomes[job.key].facts:
        assert outcomes[job.key].facts["output_dtype"] == expected
        assert outcomes[job.key].facts["state_update"] == in_place


@pytest.mark.parametrize("job", RIGHT, ids=_key)
def test_program_uses_nothing_deprecated(job: Job, outcomes: Outcomes) -> None:
    ours = str(ROOT / "benchcore")
    seen = [text for text in outcomes[job.key].facts["warnings"] if text.startswith(ours)]
    # See known-issues.md: attention under vmap on a CPU. Slow, and not deprecated.
    assert [text for text in seen if "the batching rule for aten::_scaled" not in text] == []


def _drops(job: Job) -> bool:
    dropping = ("efficientnet_b0", "mobilenet_v3_small")
    return job.workload in dropping and job.case.startswith("tiny_train")


def _is_adamw(job: Job) -> bool:
    """Torch's AdamW keeps its number of steps on the host, and reads it there."""
    return (job.workload, job.case.startswith("tiny_train")) == ("vit_b_16", True)


@pytest.mark.parametrize(
    "job", [job for job in RIGHT if job.arm == "torch" and not _is_adamw(job)], ids=_key
)
def test_no_step_of_torch_waits_for_a_value(job: Job, outcomes: Outcomes) -> None:
    assert outcomes[job.key].facts["waits"] == 0


@pytest.mark.parametrize("job", WATCHED, ids=_key)
def test_the_checks_of_a_duel_find_nothing_in_a_fair_step(job: Job, outcomes: Outcomes) -> None:
    """In its calls after a reset, what it does on the host, reads and draws."""
    found = dict(outcomes[job.key].facts["watched"])
    other = job if job.arm == "stdlib" else dataclasses.replace(job, arm="jax", option=None)
    drawn = outcomes[other.key].facts["watched"].get("random_numbers")
    assert found.pop("random_numbers", None) == drawn
    chosen = dict([job.option] if job.option else [])
    found.pop("operation_size", None)  # of one side is compared where there are no products
    for key in ("floats_read", "integers_read"):
        _, most, more = MOST_UNLIKE_SIZES[key]
        both = [outcomes[each.key].facts["watched"].get(key) for each in (job, other)]
        sizes = [float(each.partition(" ")[0]) for each in both if each]
        if len(sizes) == 2 and not chosen.keys() & PLAIN.keys():
            assert max(sizes) <= most * min(sizes) + more, key
        found.pop(key, None)
    for setting in ("batching", "per_sample"):
        uses = "vmap" if chosen.get(setting, "vmap") == "vmap" else "no vmap"
        assert found.pop(setting, uses) == uses
    usual = {**PLAIN, "model": "modules"}
    for setting in ("aggregate", "kernel", "model"):
        wanted = chosen.get(setting, usual[setting])
        assert found.pop(setting, wanted) == wanted
    if chosen.keys() & PLAIN.keys():  # its arm chose pieces
        found.pop("compiled_whole", None)
    draws = drawn not in (None, "0")
    assert draws == DRAWS.get((job.workload, job.case), draws)
    assert {name: each for name, each in found.items() if each not in (*FAIR, ALL)} == {}


@pytest.mark.parametrize(
    "job", [job for job in WATCHED if job.arm.startswith("torch") and _drops(job)], ids=_key
)
def test_steps_that_are_given_the_same_random_numbers_agree(job: Job, outcomes: Outcomes) -> None:
    partner = dataclasses.replace(job, arm="jax", option=None)
    losses, wanted = (outcomes[each.key].facts["dropped"] for each in (job, partner))
    assert losses == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("job", [job for job in RIGHT if job.arm == "torch"], ids=_key)
def test_frameworks_agree(job: Job, outcomes: Outcomes) -> None:
    partner = Job(workload=job.workload, case=job.case, arm="jax")
    assert _disagreements(job, outcomes[partner.key].before, outcomes[job.key].before) == {}


@pytest.mark.parametrize("job", [job for job in RIGHT if job.arm == "torch_compiled"], ids=_key)
def test_compiled_torch_agrees_with_eager(job: Job, outcomes: Outcomes) -> None:
    eager = Job(workload=job.workload, case=job.case, arm="torch")
    assert _disagreements(job, outcomes[eager.key].before, outcomes[job.key].before) == {}


@pytest.mark.parametrize("job", OPTIONAL, ids=_key)
def test_another_way_to_compute_it_agrees_with_the_default(job: Job, outcomes: Outcomes) -> None:
    usual = dataclasses.replace(job, option=None)
    assert _disagreements(job, outcomes[usual.key].before, outcomes[job.key].before) == {}


@pytest.mark.parametrize(
    "job", [job for job in RIGHT if job.case.startswith("tiny_per_sample_grad")], ids=_key
)
def test_some_samples_are_clipped_and_some_are_not(job: Job, outcomes: Outcomes) -> None:
    norms = outcomes[job.key].before["norms"]
    assert norms.min() < _spec(job.workload).cases[job.case].clip < norms.max()


@pytest.mark.parametrize("job", [job for job in RIGHT if _spec(job.workload).reference], ids=_key)
def test_program_agrees_with_the_float64_reference(job: Job, outcomes: Outcomes) -> None:
    spec = _spec(job.workload)
    case = spec.cases[job.case]
    arrays = spec.make_arrays(case, SEED)
    smooth = spec.smooth(case, arrays) if case.use_case == "train" else arrays
    reference = spec.reference(case, smooth)
    assert _disagreements(job, reference, outcomes[job.key].before) == {}


@pytest.mark.parametrize("job", [OWN_NORMS], ids=_key)
def test_the_batch_norm_of_a_mistake_agrees_without_the_mistake(
    job: Job, outcomes: Outcomes
) -> None:
    partner = Job(workload=job.workload, case=job.case, arm="jax")
    assert _disagreements(job, outcomes[partner.key].before, outcomes[job.key].before) == {}


@pytest.mark.parametrize("job", SPREAD, ids=_key)
def test_several_devices_compute_what_one_does(job: Job, outcomes: Outcomes) -> None:
    assert _disagreements(job, outcomes[_alone(job).key].before, outcomes[job.key].before) == {}


@pytest.mark.parametrize("job", [WITHOUT_OPACUS], ids=_key)
def test_opacus_is_refused_where_it_is_not_installed(job: Job, outcomes: Outcomes) -> None:
    assert "request torch[opacus] in place of torch" in outcomes[job.key].facts["refused"]


def test_opacus_computes_what_vmap_does(
    framework_python: Callable[[str], Path], tmp_path: Path
) -> None:
    """It is put beside the environment of torch: one of its own takes a minute to build."""
    python = framework_python("torch")
    packages = tmp_path / "packages"
    command = ["pip", "install", "--no-deps", "--target", str(packages), "--python", str(python)]
    done = run_uv([*command, "opacus", "opt-einsum", "scipy"])
    assert done.failure is None, done.message
    hooked = [
        dataclasses.replace(WITHOUT_OPACUS, workload=each) for each in ("mnist_cnn", "cifar_resnet")
    ]
    usual = {job: dataclasses.replace(job, option=None) for job in hooked}
    found = _launch(python, [*hooked, *usual.values()], tmp_path, packages)
    for job, other in usual.items():
        assert _disagreements(job, found[other.key].before, found[job.key].before) == {}


@pytest.mark.parametrize(
    ("job", "advice"),
    [(UNBATCHED, "per_sample=loop"), (UNTRACED, "compile=none")],
    ids=["under vmap", "compiled"],
)
def test_a_sparse_product_that_torch_lacks_is_refused_with_advice(
    job: Job, advice: str, outcomes: Outcomes
) -> None:
    assert f"choose {advice} or aggregate=scatter" in outcomes[job.key].facts["refused"]


@pytest.mark.parametrize("job", [BIASED], ids=_key)
def test_a_convolution_with_a_bias_before_its_norm_is_refused(job: Job, outcomes: Outcomes) -> None:
    assert "lacks ['conv1.bias'" in outcomes[job.key].facts["refused"]


@pytest.mark.parametrize("job", [TRUNCATED], ids=_key)
def test_truncated_channels_are_refused_by_shape(job: Job, outcomes: Outcomes) -> None:
    refused = outcomes[job.key].facts["refused"]
    assert "wanted 'features.1.block.1.fc1.bias' as (4,), got (8,)" in refused


@pytest.mark.parametrize("job", [WIDE], ids=_key)
def test_a_squeeze_of_other_channels_is_refused_by_shape(job: Job, outcomes: Outcomes) -> None:
    refused = outcomes[job.key].facts["refused"]
    assert "wanted 'features.2.0.block.2.fc1.bias' as (24,), got (4,)" in refused


@pytest.mark.parametrize("job", MUTATED, ids=_key)
def test_gate_catches_the_mistake(job: Job, outcomes: Outcomes) -> None:
    other = "torch" if job.arm == "jax" else "jax"
    partner = Job(workload=job.workload, case=job.case, arm=other)
    caught = _disagreements(job, outcomes[partner.key].before, outcomes[job.key].before)
    margin = 10 if "bf16" not in job.case else 2
    if job.mutation in ("longer_block", "larger_rate"):  # by 1 %
        margin = 5
    assert any(difference > margin * tolerance for difference, tolerance in caught.values())


def _seen_differently(one: Outcome, other: Outcome) -> dict[str, float]:
    """Of what steps are given, how many times its tolerance each quantity is apart."""
    tolerances = seen_tolerances("fp32_ieee", images="pixels" in one.handed)
    assert set(one.handed) == set(other.handed) == set(tolerances)
    return {
        name: _difference(one.handed[name], other.handed[name]) / tolerance
        for name, tolerance in tolerances.items()
    }


@pytest.mark.parametrize("job", HANDED[1::2], ids=_key)
def test_a_batch_of_files_is_the_same_to_both_sides(job: Job, outcomes: Outcomes) -> None:
    partner = dataclasses.replace(job, arm="jax")
    apart = _seen_differently(outcomes[partner.key], outcomes[job.key])
    assert max(apart.values()) <= 1


@pytest.mark.parametrize("job", HANDED_WRONG, ids=_key)
def test_gate_catches_changed_batches_of_one_side(job: Job, outcomes: Outcomes) -> None:
    right = dataclasses.replace(job, arm="jax", mutation=None)
    apart = _seen_differently(outcomes[right.key], outcomes[job.key])
    assert max(apart.values()) > 50


def _prove(job: Job, outcomes: Outcomes) -> list[dict[str, Any]]:
    """The equivalence pass's rows of a job of torch's, against the right one of JAX's."""
    spec = _spec(job.workload)
    partner = dataclasses.replace(job, arm="jax", mutation=None)
    a, b = (
        SideEvidence(
            found=outcomes[dataclasses.replace(side, exact=False).key].before,
            exact=outcomes[side.key].before,
        )
        for side in (partner, job)
    )
    case = spec.cases[job.case]
    return judge(a, b, ProofRule(precision=case.precision, tolerances=spec.tolerances(case)))


@pytest.mark.parametrize("job", [job for job in EXACT_RIGHT if job.arm == "torch"], ids=_key)
def test_float64_proves_correct_sides_equal(job: Job, outcomes: Outcomes) -> None:
    assert [row for row in _prove(job, outcomes) if not row["passed"]] == []


@pytest.mark.parametrize("job", EXACT_WRONG, ids=_key)
def test_float64_proves_nothing_of_a_side_with_a_mistake(job: Job, outcomes: Outcomes) -> None:
    assert [row for row in _prove(job, outcomes) if not row["passed"]]


def _table_row(job: Job, outcomes: Outcomes) -> list[str]:
    """What the mistake moves most, how far, and which tolerances would have let it through."""
    spec, facts = _spec(job.workload), outcomes[job.key].facts
    case = spec.cases[job.case]
    cells = [job.workload, case.use_case, MISTAKES[job.mutation or ""]]
    if "refused" in facts:
        refused_for = "shape" if "in torch's layout" in facts["refused"] else "names"
        return [*cells, refused_for, *4 * ["-"]]
    other = "torch" if job.arm == "jax" else "jax"
    partner = Job(workload=job.workload, case=job.case, arm=other)
    one, two = outcomes[partner.key].before, outcomes[job.key].before
    differences = {name: _difference(one[name], two[name]) for name in one}
    tolerances, coarse = (
        spec.tolerances(dataclasses.replace(case, precision=each)) for each in ("fp32_ieee", "bf16")
    )
    worst = max(differences, key=lambda name: differences[name] / tolerances[name])
    found = (
        any(differences[name] > tolerance for name, tolerance in allowed.items())
        for allowed in (coarse, dict.fromkeys(differences, 5e-2))
    )
    verdicts = ["caught" if each else "missed" for each in found]
    return [*cells, worst, f"{differences[worst]:.0e}", f"{tolerances[worst]:.0e}", *verdicts]


def _stored_table() -> list[list[str]]:
    text = (ROOT / "benchcore/workloads/README.md").read_text(encoding="utf-8")
    _, _, text = text.partition("## Deliberate mistakes")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


@pytest.mark.parametrize("job", TABLED, ids=_key)
def test_the_table_of_mistakes_matches_measurements(job: Job, outcomes: Outcomes) -> None:
    """Of how far a mistake goes, the order of magnitude: roundoff differs between machines."""
    *words, difference, tolerance, coarse, public = found = _table_row(job, outcomes)
    stored = {tuple(row[:3]): row for row in _stored_table()}
    fix = f"benchcore/workloads/README.md should say | {' | '.join(found)} |"
    row = stored.get(tuple(found[:3]), [""] * len(found))
    assert [*row[:4], *row[5:]] == [*words, tolerance, coarse, public], fix
    assert row[4] == difference or 0.1 < float(row[4]) / float(difference) < 10.0, fix


def test_the_table_of_mistakes_has_no_other_rows() -> None:
    cases = {job: _spec(job.workload).cases[job.case] for job in TABLED}
    made = [
        [job.workload, case.use_case, MISTAKES[job.mutation or ""]] for job, case in cases.items()
    ]
    assert sorted(row[:3] for row in _stored_table()) == sorted(made)


@pytest.mark.parametrize(
    "job",
    [job for job in RIGHT if job.arm == "torch" and (job.workload, job.case) in TRACED],
    ids=_key,
)
def test_parts_have_the_same_names_and_agree(job: Job, outcomes: Outcomes) -> None:
    one = outcomes[Job(workload=job.workload, case=job.case, arm="jax").key].parts
    other = outcomes[job.key].parts
    assert any(name.startswith("layer/") for name in other)
    assert any(name.startswith("gradient/") for name in other) == (job.case == "tiny_train")
    assert set(other) <= set(one)
    # The projections of torch's fused attention are no module's output; JAX's are listed.
    assert all("out_proj" in name for name in set(one) - set(other))
    for name in (name for name in other if name.startswith("layer/")):
        assert _difference(one[name], other[name]) < 1e-4, name


@pytest.mark.parametrize("job", [job for job in MUTATED if job.mutation in GUILTY], ids=_key)
def test_the_first_layer_that_went_wrong_is_found(job: Job, outcomes: Outcomes) -> None:
    right = outcomes[Job(workload=job.workload, case=job.case, arm="jax").key].parts
    wrong = outcomes[job.key].parts
    layers = [name for name in right if name.startswith("layer/") and name in wrong]
    first = next(name for name in layers if _difference(right[name], wrong[name]) > 1e-4)
    assert first == f"layer/{GUILTY[str(job.mutation)]}"


@pytest.mark.parametrize("job", [job for job in RIGHT if job.arm == "jax"], ids=_key)
def test_jit_is_given_its_arrays_and_holds_no_constants(job: Job, outcomes: Outcomes) -> None:
    facts = outcomes[job.key].facts
    given = facts["params_bytes"] + facts["inputs_bytes"]
    assert bool(facts["jits"]) == bool(given)
    if "linspace" in job.case:  # of three ends each set has two
        given = facts["inputs_bytes"] * 2 / 3
    if job.workload == "recompile":  # each of its calls is given a part of the inputs
        given = facts["params_bytes"]
    for jit in facts["jits"]:
        assert jit["constant_bytes"] < 1024
        assert jit["argument_bytes"] >= given / (2 if job.case.endswith("bf16") else 1)


@pytest.mark.parametrize(
    "job", [job for job in RIGHT if job.arm == "jax" and "train" in job.case], ids=_key
)
def test_training_donates_its_parameters(job: Job, outcomes: Outcomes) -> None:
    facts = outcomes[job.key].facts
    held = facts["params_bytes"] / (2 if job.case.endswith("bf16") else 1)
    assert all(jit["donated_bytes"] >= held for jit in facts["jits"])


@pytest.mark.parametrize("job", WRONG_SETTINGS, ids=_key)
def test_wrong_settings_are_refused_by_name(job: Job, outcomes: Outcomes) -> None:
    assert "no compile mode 'faster'" in outcomes[job.key].facts["refused"]


def test_an_array_without_a_place_is_refused_by_name(outcomes: Outcomes) -> None:
    refused = outcomes[MISNAMED.key].facts["refused"]
    assert "lacks ['conv1.weight']" in refused
    assert "no variables for ['conv1.weight_']" in refused


def test_torchvision_without_its_operators_still_gives_resnet50(
    outcomes: Outcomes, framework_python: Callable[[str], str | Path], tmp_path: Path
) -> None:
    found = _launch(framework_python("torch"), [NO_OPERATORS], tmp_path)[NO_OPERATORS.key]
    partner = Job(workload="resnet50", case="tiny_infer", arm="torch")
    assert _disagreements(partner, outcomes[partner.key].before, found.before) == {}
