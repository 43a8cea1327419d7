"""Reads the settings of a contender for a workload's `build`; unknown ones are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchcore.device_names import parse_device

JAX_COMPILE = ("jit",)
TORCH_COMPILE = (
    "none",
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)
"""`none` is eager; the others are the `mode` of `torch.compile`."""

Options = Mapping[str, tuple[str, ...]]
"""Optional settings of an arm with their values; the first value is the default."""
JAX_EAGER: Options = {"compile": (*JAX_COMPILE, "none")}
"""`none` is eager, operation by operation, as NumPy is used: single operations and ensembles."""
WORKAROUND_FLAGS = ("none", "autotune-5", "no-triton-gemm", "no-fusion-autotuner", "autotune-0")
"""The workarounds of the crash ladder, to measure what each one costs where it is not needed."""
XLA_FLAGS: Mapping[str, str] = {
    "wide-vectors": "--xla_cpu_prefer_vector_width=512",
    "no-xnnpack": "--xla_cpu_use_xnnpack=false",
    "no-ynnpack": "--xla_cpu_experimental_ynn_fusion_type=",
    "onednn": "--xla_cpu_use_onednn=true",
    "triton-everywhere": "--xla_gpu_triton_gemm_any=true",
    "exhaustive-tiling": "--xla_gpu_exhaustive_tiling_search=true",
    "latency-hiding": "--xla_gpu_enable_latency_hiding_scheduler=true",
}
"""Flags that choose other kernels or another order of them, for the same mathematics. jaxlib 0.12.0
accepts all; the GPU's have not been run on one. `no-ynnpack` (jaxlib >= 0.10.1) takes away fusions
that jaxlib 0.10.2 brought: see `results/cpu-intel-xeon-2026-11-27`."""
JAX_OPTIONS: Options = {
    "donate": ("yes", "no"),
    "command_buffers": ("on", "off"),
    "workaround": WORKAROUND_FLAGS,
    "xla": ("usual", *XLA_FLAGS),
}
"""The conductor applies all but `donate`: `xla` (a flag of XLA_FLAGS) everywhere, `command_buffers`
(XLA's CUDA graphs) and `workaround` only on GPUs."""
JAX_ATTENTION: Options = {"attention": ("usual", "cudnn")}
"""The `implementation` of `jax.nn.dot_product_attention`; cuDNN needs a GPU and half precision."""
BATCHING: Options = {"batching": ("vmap", "loop", "batched")}
"""How N networks are put together: `vmap`, one after the other, or one batched operation."""
JAX_KERNEL: Options = {"kernel": ("compiler", "pallas")}
TORCH_KERNEL: Options = {"kernel": ("compiler", "triton")}
"""Who writes the kernel: the compiler, or we, in the framework's language for kernels."""
TORCH_OPTIONS: Options = {"cudnn_benchmark": ("off", "on")}
TORCH_MODEL: Options = {"model": ("modules", "functions")}
"""How torch's side is written: as a tree of `nn.Module`, or as functions of its parameters, as
JAX's sides are."""
TORCH_SHAPES: Options = {"shapes": ("automatic", "static", "dynamic")}
"""Whether `torch.compile` makes one program for all shapes: from the second one on, never, or at
once."""
TORCH_TRAINING: Options = {"optimizer": ("usual", "foreach", "fused", "compiled")}
"""How torch's optimiser updates the parameters: as torch chooses, with one kernel per operation for
all parameters, in one kernel, or in a graph that `torch.compile` made."""
TORCH_ATTENTION: Options = {"attention": ("usual", "math", "flash", "efficient", "cudnn")}
"""The only kernel that `scaled_dot_product_attention` may choose; a CPU has the first three."""
TORCH_IMAGE_OPTIONS: Options = {
    **TORCH_OPTIONS,
    **TORCH_TRAINING,
    "layout": ("contiguous", "channels_last"),
}
"""For workloads with convolutions: the others have no layout to choose.

The `SETTINGS` of a spec list which of these each framework accepts; all accept `compile`.
"""
_CHUNKS = ("whole", "1", "2", "4", "8", "16", "32", "64")
JAX_PER_SAMPLE: Options = {"chunk": _CHUNKS}
"""Samples whose gradients are in memory at a time."""
TORCH_PER_SAMPLE: Options = {"chunk": _CHUNKS, "per_sample": ("vmap", "loop")}
"""`per_sample`: `vmap(grad)` of torch.func, or a backward pass for every sample."""
TORCH_IMAGE_PER_SAMPLE: Options = {"chunk": _CHUNKS, "per_sample": ("vmap", "loop", "opacus")}
"""Opacus hooks layers that are called as modules: every layer of a convolutional network is."""
STRATEGY: Options = {"strategy": ("data", "fully_sharded", "tensor")}
"""How several devices train: each on a part of the batch with all parameters and momenta; with a
part of these, which the others get when they need it (FSDP; ZeRO, arXiv:1910.02054, stage 3); or
each on the whole batch with some heads and features of every block (arXiv:1909.08053)."""
JAX_PROCESSES: Options = {"processes": ("one", "per-device")}
"""Who computes on several devices: one process for all, or one for each, as torch does."""
AGGREGATE: Options = {"aggregate": ("scatter", "sparse")}
"""How a graph's messages are summed: added to their targets, or by a sparse matrix product."""
DEFECTS = "defects"
"""The setting that makes a side wrong on purpose, for the defect study
(`benchcore.experiments.defect_study.switches`): defects joined by `+`. No ratio of such a side
counts."""
INJECTED_SLOWDOWN = "injected_slowdown"
"""The setting of the slower replicate in a calibration run (`planning.calibration_runs`): how many
per cent more work its steps do. `cell/building.py` applies it to every workload."""
INJECTED_SLOWDOWNS = ("0", "2", "5")


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """The settings that a workload applies; precision and XLA flags belong to the runtime."""

    device: str
    """`cpu` or `cuda:N`, in torch's notation."""
    compile: str
    layout: str = "contiguous"
    donate: str = "yes"
    command_buffers: str = "on"
    workaround: str = "none"
    cudnn_benchmark: str = "off"
    xla: str = "usual"
    attention: str = "usual"
    optimizer: str = "usual"
    batching: str = "vmap"
    kernel: str = "compiler"
    shapes: str = "automatic"
    model: str = "modules"
    strategy: str = "data"
    processes: str = "one"
    chunk: str = "whole"
    per_sample: str = "vmap"
    aggregate: str = "scatter"
    defects: frozenset[str] = frozenset()

    @property
    def platform(self) -> str:
        """The kind of device, in the notation of `jax.devices`: `cpu` or `cuda`."""
        return parse_device(self.device).kind

    @property
    def optimizer_choice(self) -> dict[str, bool]:
        """The keyword by which torch's optimisers choose how to update; none = torch chooses."""
        return {self.optimizer: True} if self.optimizer in ("foreach", "fused") else {}

    @property
    def ordinal(self) -> int:
        """Index of the device on its platform."""
        return parse_device(self.device).ordinal


def read_settings(
    settings: Mapping[str, Any], compile_modes: tuple[str, ...], options: Options | None = None
) -> BuildSettings:
    """Check the settings; `options` may have other compile modes than the usual ones. Raises
    ValueError on a missing or unknown key, or an unknown value."""
    known = {key: values for key, values in (options or {}).items() if key != "compile"}
    compile_modes = (options or {}).get("compile", compile_modes)
    given = set(settings)
    if not {"device", "compile"} <= given <= {"device", "compile", *known}:
        may = f", and may have {', '.join(map(repr, known))}" if known else ""
        raise ValueError(
            f"wanted the settings 'device' and 'compile'{may}, got {sorted(settings)!r}; "
            "remove the others from the contender's settings"
        )
    device, mode = settings["device"], settings["compile"]
    parse_device(device)
    if mode not in compile_modes:
        raise ValueError(f"no compile mode {mode!r} here; modes are {', '.join(compile_modes)}")
    known = {key: values for key, values in known.items() if key != DEFECTS}
    chosen = {key: settings.get(key, values[0]) for key, values in known.items()}
    for key, value in chosen.items():
        if value not in known[key]:
            raise ValueError(f"no {key} {value!r} here; choose one of {', '.join(known[key])}")
    defects = frozenset[str]()
    if DEFECTS in settings:
        defects = split_defects(settings[DEFECTS], (options or {})[DEFECTS])
    return BuildSettings(device=device, compile=mode, defects=defects, **chosen)


def split_defects(value: object, known: tuple[str, ...]) -> frozenset[str]:
    """`a+b` as a set of known, distinct names. Raises ValueError for anything else."""
    names = value.split("+") if isinstance(value, str) else []
    if not names or not set(names) <= set(known) or len(names) != len(set(names)):
        raise ValueError(
            f"wanted defects of {', '.join(known)}, joined by '+', got {value!r:.100}; "
            "leave the setting out for a correct side"
        )
    return frozenset(names)
