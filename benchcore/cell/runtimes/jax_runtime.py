"""JAX as the harness uses it: waiting, precision, compilation counters, effective settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.explain.communication import count_in_hlo
from benchcore.cell.explain.jax_products import count_asked, inspect_compiled
from benchcore.cell.explain.jax_profile import count_calls, profile_jax, size_first_copy
from benchcore.cell.explain.jaxpr import walk_equations
from benchcore.cell.explain.products import MOST_COUNTED, describe
from benchcore.cell.measure.gpu_libraries import read_pci_address, read_versions
from benchcore.cell.measure.host import usable_cpus
from benchcore.cell.measure.nested_clock import NestedClock
from benchcore.cell.measure.timing import run_window
from benchcore.cell.proof.attention import describe_in_jax
from benchcore.cell.proof.canary import STRIDE, Operands, Products
from benchcore.cell.proof.following import jax_drawing, jax_needless
from benchcore.cell.proof.following.drawing import Followed, Read
from benchcore.cell.proof.following.needless import describe_needless
from benchcore.cell.proof.manifest import join_readings, read_xla, xla_flag
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.proof.steps.same_work import list_calls
from benchcore.cell.proof.watching import jax_watch
from benchcore.cell.proof.watching.own_code import identify
from benchcore.cell.proof.watching.switches import AS_SET, CONFIG, describe_changes
from benchcore.cell.runtimes.jax_group import join_group
from benchcore.cell.runtimes.runtime import ALONE, Place, name_devices
from benchcore.device_names import parse_device
from benchcore.program import REFERENCE, UnsupportedError

# Duration events that JAX reports for each compilation, and our stages (jax.monitoring; names as
# of 0.4.36 to 0.12).
_STAGE_OF_EVENT = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
_STAGES = ("trace", "lower", "compile")
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
# "highest" is IEEE float32 on every device. In the bf16 cases it leaves bfloat16 operands as they
# are, and protects any float32 operation from TF32, as torch's "ieee" does.
_MATMUL_PRECISION = {
    REFERENCE: "highest",
    "fp32_ieee": "highest",
    "tf32": "tensorfloat32",
    "bf16": "highest",
    "bf16_autocast": "highest",
}


class JaxRuntime:
    """JAX on one device, or on several, which one process uses, or one for each."""

    def __init__(self) -> None:
        self._clock = NestedClock(_STAGES)
        self._num_compilations = 0
        self._num_cache_hits = 0
        self._compiled: Any = None
        self._own_settings: dict[str, object] | None = None
        """The compiler's, as `initialise` left them."""
        self._while_compiling = {AS_SET}
        """How they differed while something was compiled."""

    def import_framework(self) -> None:
        """Import jax and listen to its compilations from the start."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        self._jax = jax

    def _on_duration(self, event: str, duration: float, **_: object) -> None:
        stage = _STAGE_OF_EVENT.get(event)
        if stage:
            self._clock.record(stage, duration, time.perf_counter())
            self._num_compilations += stage == "compile"
        if stage and self._own_settings is not None:
            now = jax_watch.list_compiler_settings(self._jax)
            self._while_compiling.add(describe_changes(self._own_settings, now))

    def _on_event(self, event: str, **_: object) -> None:
        self._num_cache_hits += event == _CACHE_HIT

    def count_processes(self, devices: int, settings: Mapping[str, Any]) -> int:
        """One per device if the setting `processes` chooses so, else one."""
        return devices if settings.get("processes") == "per-device" else 1

    def initialise(
        self,
        *,
        device: str,
        precision: str,
        threads: int,
        settings: Mapping[str, Any],
        devices: int = 1,
        place: Place = ALONE,
    ) -> None:
        """Set the matmul precision and wait for one array on the device.

        XLA's CPU client takes its threads from the process's CPU affinity, which the conductor
        sets equally for all contenders; `threads` can't change them.
        """
        if precision not in _MATMUL_PRECISION:
            raise ValueError(
                f"wanted precision {precision!r}, but JAX here has {sorted(_MATMUL_PRECISION)}"
            )
        if device == "cpu" and precision == "tf32":
            raise UnsupportedError(
                "wanted precision 'tf32' on 'cpu', where JAX always computes float32 as IEEE; "
                "plan 'fp32_ieee' there, or use a GPU"
            )
        self._computed = {
            REFERENCE: "float64",
            "bf16": "bfloat16",
            "bf16_autocast": "bfloat16",
        }.get(precision, "float32")
        self._jax.config.update("jax_enable_x64", precision == REFERENCE)
        self._jax.config.update("jax_default_matmul_precision", _MATMUL_PRECISION[precision])
        self._is_eager = settings.get("compile") == "none"
        self._num_devices, self._place = max(devices, place.size), place
        if place.size > 1:
            join_group(self._jax, place, device, threads)
        elif device == "cpu" and devices > 1:  # parts of the CPU, with one pool of threads
            self._jax.config.update("jax_num_cpu_devices", devices)
        self._device = self._find_device(device, devices)
        self._jax.block_until_ready(self._jax.device_put(0.0, self._device))
        self._own_settings = jax_watch.list_compiler_settings(self._jax)

    def _find_device(self, name: str, devices: int) -> Any:
        """The first of as many devices, or the only one of a process of a group."""
        wanted = parse_device(name)
        if wanted.kind == "cpu":
            return self._jax.local_devices(backend="cpu")[0]
        try:
            found = self._jax.devices("gpu")
        except (RuntimeError, AssertionError) as error:  # the latter without hardware
            if "OUT_OF_MEMORY" in str(error) or "RESOURCE_EXHAUSTED" in str(error):
                raise
            why = str(error) or "no NVIDIA GPU is visible to it"
            raise UnsupportedError(
                f"wanted device {name!r}, but JAX {self._jax.__version__} finds none ({why}); "
                "choose 'cpu', or a build for CUDA"
            ) from error
        if self._place.size > 1:  # its process sees no other
            return self._jax.local_devices(backend="gpu")[0]
        if wanted.ordinal + devices > len(found):
            raise UnsupportedError(
                f"wanted {name_devices(name, devices)}, but JAX finds {len(found)} GPUs; "
                "choose a case with fewer devices, or a machine with more"
            )
        return found[wanted.ordinal]

    def try_compiler(self) -> None:
        """XLA contains its compiler."""

    def canary(self, make_operands: Callable[[], Operands]) -> Products | None:
        """`jnp.matmul` and an NHWC `lax` convolution. Their compilations are not counted."""
        jax, numpy, given = self._jax, self._jax.numpy, make_operands()
        kept, self._clock = self._clock, NestedClock(_STAGES)
        counted = self._num_compilations, self._num_cache_hits
        images, kernel = given.images.transpose(0, 2, 3, 1), given.kernel.transpose(2, 3, 1, 0)
        left, right, images, kernel = (
            jax.device_put(array, self._device).astype(self._computed)
            for array in (given.left, given.right, images, kernel)
        )
        product = numpy.matmul(left, right)
        convolved = jax.lax.conv_general_dilated(
            images, kernel, (STRIDE, STRIDE), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        product, convolved = (
            jax.device_get(array.astype(numpy.promote_types(array.dtype, "float32")))
            for array in (product, convolved)
        )
        self._clock, (self._num_compilations, self._num_cache_hits) = kept, counted
        return Products(product=product, convolved=convolved.transpose(0, 3, 1, 2))

    def synchronise(self, outputs: object) -> None:
        """Wait for every array. A deleted one was donated to a later step, which is waited for."""
        leaves = self._jax.tree_util.tree_leaves(outputs)
        self._jax.block_until_ready(
            [leaf for leaf in leaves if isinstance(leaf, self._jax.Array) and not leaf.is_deleted()]
        )

    def release(self, outputs: object) -> None:
        """Wait: on a CPU a small computation overtakes a large one."""
        self.synchronise(outputs)

    def compile_seconds(self) -> dict[str, float | None]:
        """Sums of JAX's own duration events, which may be nested."""
        return dict(self._clock.seconds)

    def num_compilations(self) -> int:
        """Backend compilations, cached ones included: each one stalls a step."""
        return self._num_compilations

    def num_cache_hits(self) -> int | None:
        """Compilations found in the persistent cache."""
        return self._num_cache_hits

    def planned_bytes(self, program: BoundProgram) -> int | None:
        """XLA's plan of the step: arguments, results that are not arguments, and scratch space."""
        plan = (compiled := self._compile(program)) and compiled.memory_analysis()
        if plan is None:
            return None
        results = plan.output_size_in_bytes - plan.alias_size_in_bytes
        return plan.argument_size_in_bytes + results + plan.temp_size_in_bytes

    def measure_sharing(self, program: BoundProgram) -> dict[str, float | None]:
        """Read the collectives in XLA's optimised program, and the arrays' shards."""
        compiled = self._compile(program)
        exchanged = compiled and count_in_hlo(compiled.as_text() or "", self._num_devices)
        state = self._jax.tree_util.tree_leaves(program.held().get("state"))
        parts = (each for array in state for each in array.addressable_shards)
        here = [each.data.nbytes for each in parts if each.device == self._device]
        return {"communicated_bytes": exchanged, "state_bytes_per_device": sum(here) or None}

    def _compile(self, program: BoundProgram) -> Any:
        """The step as `jax.stages.Compiled`, compiled once; None where the workload has none."""
        if self._compiled is None and (lowered := program.lower()) is not None:
            self._compiled = lowered.compile()
        return self._compiled

    def profile(self, program: BoundProgram, steps: int, folder: Path) -> dict[str, Any] | None:
        """Use `jax.profiler`. The transfer guard measures the size of a copy, last of all."""
        seen = profile_jax(
            self._jax,
            self._compile(program),
            lambda annotate: run_window(program.step, self.synchronise, steps, annotate),
            folder,
        )
        seen |= count_calls(program.step)
        if seen["host_copies"]:
            seen["copied_bytes"] = size_first_copy(self._jax, program.step)
            seen["missing"]["copied_bytes"] = "of the first copy only: the trace has no sizes"
        return seen

    def switches(self) -> dict[str, object]:
        """The whole configuration, and what the harness calls."""
        called = identify(self._jax, ("block_until_ready", "live_arrays", "make_jaxpr"))
        config = self._jax.config.values.items()
        beside = {
            **jax_watch.is_profiling(),
            "settings while compiling": sorted(self._while_compiling - {AS_SET}),
        }
        return {**{f"{CONFIG}{name}": value for name, value in config}, **called, **beside}

    def watch_step(self, program: BoundProgram, *, to_end: bool = True) -> dict[str, str]:
        """What a step does on the host, what it owes, and whether an eager side is one."""
        found = jax_watch.watch_step(self._jax, program, to_end=to_end)
        if self._is_eager and to_end:
            found["compiled"] = jax_watch.describe_compiled(self._jax, program.plain_step)
            program.settle(self.synchronise)
        return found

    def list_work(self, step: Callable[[], object], *, timed: bool = False) -> list[str]:
        """Names of the step's calls, those of compiled functions included."""
        return list_calls(step)

    def inspect_step(self, step: Callable[[], object]) -> Readings:
        """Read the step's jaxpr."""
        return jax_watch.inspect_step(self._jax, step, self._is_eager)

    def list_floats(self, program: BoundProgram) -> dict[int, int]:
        """Read the step's jaxpr."""
        return jax_watch.list_floats(self._jax, program.own_step)

    def draw_given(self, step: Callable[[], object], first: object, read: Read) -> Followed:
        """Run the step's jaxpr with given bits."""
        return jax_drawing.draw_given(self._jax, step, first, read)

    def count_products(self, program: BoundProgram) -> dict[str, Any] | None:
        """Count in XLA's program of the step, the jaxpr of several steps, and the values of one."""

        def find_needless() -> dict[str, Any]:
            jax, settled = self._jax, program.settle(self.synchronise)
            inputs = program.rotation.buffers
            return describe_needless(
                lambda: jax_needless.record(jax, settled, self._is_eager, inputs)
            )

        return describe(
            lambda: inspect_compiled(
                program.lower(), self._compile(program), devices=self._num_devices
            ),
            lambda: count_asked(self._jax, program.own_step, MOST_COUNTED),
            find_needless if self._num_devices == 1 else None,
        )

    def allocator_peak_bytes(self) -> int | None:
        """Peak of the device's allocator; the CPU client has no counter."""
        statistics = self._device.memory_stats()
        return None if statistics is None else statistics.get("peak_bytes_in_use")

    def effective(self) -> dict[str, Any]:
        """Precision, platform, flags and versions as JAX reports them."""
        import jaxlib

        config, cpu = self._jax.config, self._device.platform == "cpu"
        return {
            "versions": {
                "jax": self._jax.__version__,
                "jaxlib": jaxlib.__version__,
                **read_versions(),
            },
            "platform": self._device.platform,
            "device_kind": self._device.device_kind,
            "pci_address": None if cpu else read_pci_address(self._device.local_hardware_id),
            "matmul_precision": config.jax_default_matmul_precision,
            "x64": bool(config.jax_enable_x64),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "platform_version": self._device.client.platform_version.splitlines()[0],
        }

    def address(self, array: Any) -> int:
        """Address of an array on the first of its devices."""
        return array.addressable_shards[0].data.unsafe_buffer_pointer()

    def manifest(self, held: Mapping[str, Any]) -> dict[str, str]:
        """Read from the arrays, and from the program itself, traced again."""
        leaves = self._jax.tree_util.tree_leaves
        params, inputs = leaves(held.get("params")), leaves(held.get("inputs"))
        cpu = self._device.platform == "cpu"
        here = all(isinstance(a, self._jax.Array) and self._device in a.devices() for a in inputs)
        return {
            "device": "cpu" if cpu else "gpu",
            "threads": self._threads(),
            "data_path": "device" if here else "host",
            "param_dtype": join_readings(array.dtype for array in params),
            "output_dtype": str(held.get("output_dtype", "none")),
            "state_update": held.get("state_update", "no state"),
            "graphs": "off" if cpu or xla_flag("xla_gpu_enable_command_buffer") == "" else "on",
            "autotune": _autotune(cpu),
            "xla": read_xla(),
            **({} if cpu else read_versions()),
            **self._read_program(held),
        }

    def _read_program(self, held: Mapping[str, Any]) -> dict[str, str]:
        """Precision, layout and random numbers of the measured function, read from its jaxpr."""
        equations: list[Any] = []
        if "function" in held:
            shaped = self._jax.tree_util.tree_map(
                lambda a: self._jax.ShapeDtypeStruct(a.shape, a.dtype), held["arguments"]
            )
            equations = list(walk_equations(held["function"].trace(*shaped).jaxpr))
        named = {
            name: [each for each in equations if each.primitive.name == name]
            for name in ("dot_general", "conv_general_dilated")
        }
        matmuls, convolutions = named.values()
        config = self._jax.config
        names = [each.primitive.name for each in equations]
        random = any(each.startswith(("random_", "rng_")) for each in names)
        layouts = {
            "NHWC" if each.params["dimension_numbers"].lhs_spec[1] == 3 else "NCHW"
            for each in convolutions
        }
        return {
            "compiled": "no" if config.jax_disable_jit else "yes",
            "compile_mode": "jit",
            "matmul_precision": join_readings(self._precision_of(each) for each in matmuls),
            "conv_precision": join_readings(self._precision_of(each) for each in convolutions),
            "layout": join_readings(layouts),
            "dropout": "random" if random else "none",
            **({"attention": describe_in_jax(names)} if "function" in held else {}),
        }

    def _precision_of(self, equation: Any) -> str:
        """The precision of float32 operands in an equation; the default depends on the device."""
        operand = str(equation.invars[0].aval.dtype)
        if operand != "float32":
            return operand
        precision = str(equation.params["precision"])
        if "HIGHEST" in precision:
            return "ieee"
        return "ieee" if self._device.platform == "cpu" else "tf32"

    def _threads(self) -> str:
        """XLA's CPU pool: by default one thread per CPU of the affinity."""
        if xla_flag("xla_cpu_multi_thread_eigen") == "false":
            return "1"
        cpus = usable_cpus()
        return str(self._place.count_threads(int(os.environ.get("NPROC") or cpus), cpus))


def _autotune(cpu: bool) -> str:
    if cpu:
        return "none"
    return "off" if xla_flag("xla_gpu_autotune_level") == "0" else "on"


def make_runtime() -> JaxRuntime:
    """The runtime of JAX."""
    return JaxRuntime()
