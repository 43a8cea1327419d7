"""The types of one start of a contender in a result document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from benchcore.json_types import ABSENT, Amount, Count, FieldRule, Positive, Sha256, Text, Time
from benchcore.protocol import Status

STAGES = ("import", "init", "build", "trace", "lower", "compile", "first_run", "warm_up")
"""The stages of a contender's process, in order."""

Stages = Annotated[dict[str, Amount | None], FieldRule(keys=STAGES)]
"""Seconds by stage; null = not reached, or not separable."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The machine during one block. A counter that it lacks is null."""

    load_1m: Amount | None
    steal_share: Amount | None
    foreign_cpu_share: Amount | None = None
    """Share of the CPUs in use; absent before it was recorded."""
    cpu_mhz: Amount | None
    sm_clock_mhz: Amount | None
    memory_clock_mhz: Amount | None
    throttle_reasons: Count | None
    temperature_c: Amount | None
    power_mw: Amount | None
    foreign_processes: Count | None
    thawed_contenders: Count = ABSENT
    """Waiting contenders that another process continued; absent where none is frozen."""
    missing: dict[str, Text] = ABSENT
    """Why a GPU's counter is null, by name; absent on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The steps of one contender in its turn of a round."""

    round: Count
    position: Count
    steps: Positive
    elapsed_ns: Positive
    telemetry: Telemetry


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """The blocks before the first one that counts."""

    num_blocks: Count
    steady: bool
    compilations: Count = ABSENT


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Measured after the last start, in a separate process."""

    planned_bytes: Count | None
    allocator_peak_bytes: Count | None
    process_peak_bytes: Count | None
    process_baseline_bytes: Count | None = None
    """Absent before it was recorded."""


@dataclass(frozen=True, kw_only=True)
class EnergyWindow:
    """Energy of the device over seconds of steps."""

    gross_mj: Amount
    window_ns: Count
    steps: Count


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Energy of the device over all windows of steps."""

    gross_mj: Amount
    idle_mw: Amount
    window_ns: Count
    steps: Count
    windows: list[EnergyWindow] = ABSENT
    """One after another; absent before there were several."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of a profile, all its calls together."""

    name: Annotated[str, FieldRule(max_length=200)]
    ns: Count
    calls: Positive


@dataclass(frozen=True, kw_only=True)
class CompiledProgram:
    """What the framework compiled a step to."""

    hash: str | None
    counts: dict[str, Count]
    bytes: Count | None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The result of the framework's profiler for `steps` steps, after the last start."""

    steps: Positive
    plain_ns: Positive
    """Time of as many steps without the profiler."""
    wall_ns: Positive
    kernel_ns: Count | None
    num_kernels: Count | None
    host_syncs: Count | None
    host_copies: Count | None
    copied_bytes: Count | None
    kernels: Annotated[list[Kernel], FieldRule(max_items=20)]
    program: CompiledProgram | None
    python_calls: Count | None = None
    """Python functions that one step called; absent before they were counted."""
    module_calls: Count | None = None
    """Calls among them into Flax or an nn.Module."""
    graph_launches: Count | None = None
    """CUDA graphs that all steps launched; null on a CPU, absent before they were counted."""
    grad_mode: Literal["inference_mode", "no_grad", "tracked"] | None = None
    """What torch saved of a step's outputs for a backward pass."""
    missing: dict[str, Text]
    """Why a counter is null, or what it leaves out."""


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Errors of small products against float64, relative to the norm."""

    matmul_error: Amount
    conv_error: Amount
    matmul_seen: Text
    conv_seen: Text
    seen: Text


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch of training on a dataset; it is one block."""

    epoch: Count
    wait_ns: Count
    """Time within the block that the host waited for batches."""
    loss: float
    """Mean over the steps."""
    correct: Count
    """Images of val whose largest logit is at their label."""
    validation_ns: Positive
    gross_mj: Amount | None
    """Energy of the device over the block's time."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a contender: a fresh process."""

    index: Count
    status: Status
    started_at: Time
    seed: Count | None = None
    """Decides its weights, inputs and order of data; absent before it was recorded."""
    caches: Literal["cold", "warm"]
    """`cold`: it compiled with empty caches."""
    compilation: Count | None = 0
    """Whose caches it used: the index of the start that filled them. Null = nothing was compiled;
    absent in older documents, whose starts share one compilation."""
    cache_hits: Count | None = None
    stages: Stages
    """Seconds; null = not reached or not separable."""
    warm_up: WarmUp | None
    steps_per_block: Count | None
    clock_resolution_ns: Positive | None = None
    """The smallest step of the block's clock; absent before it was recorded."""
    compilations_in_blocks: Count | None
    """During timing: in the blocks' steps and in those waited for one by one."""
    blocks: list[Block]
    latency_ns: list[Count] | None
    enqueued_ns: list[Count] | None = None
    """The same steps, until the call returned: the reading of a clock that doesn't wait for the
    device. Only in the track `defects`."""
    memory: Memory
    energy: Energy | None
    profile: Profile | None = None
    """Null = no profiler, or its pass failed; absent in older documents."""
    inputs_sha256: Sha256 | None
    canary: Canary | None = None
    """Null = no framework computes."""
    epochs: list[Epoch] | None = None
    measured: dict[str, float | None] = ABSENT
    """Metrics without a field of their own, by key; absent where there are no probes of any."""


@dataclass(frozen=True, kw_only=True)
class CompilationPass:
    """A compilation in a process that was not timed."""

    stages: Stages
    """Seconds; null = not reached or not separable."""
    cache_hits: Count | None
