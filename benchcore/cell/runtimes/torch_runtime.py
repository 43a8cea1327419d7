"""torch as the harness uses it: waiting, precision, compilation counters, effective settings."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from benchcore.cell.bound_program import BoundProgram
from benchcore.cell.explain.communication import count_in_torch
from benchcore.cell.explain.products import MOST_COUNTED, Asked, Flops, describe
from benchcore.cell.explain.torch_products import count_asked, inspect_compiled
from benchcore.cell.explain.torch_profile import count_calls, profile_torch
from benchcore.cell.measure import torch_compilation
from benchcore.cell.measure.gpu_libraries import read_pci_address, read_versions
from benchcore.cell.measure.host import usable_cpus
from benchcore.cell.measure.timing import run_window
from benchcore.cell.nested import find_part
from benchcore.cell.proof import attention
from benchcore.cell.proof.canary import STRIDE, Operands, Products
from benchcore.cell.proof.following import torch_drawing, torch_needless
from benchcore.cell.proof.following.drawing import Followed, Read
from benchcore.cell.proof.following.needless import describe_needless
from benchcore.cell.proof.manifest import join_readings
from benchcore.cell.proof.steps.given import Readings
from benchcore.cell.proof.steps.same_work import list_calls
from benchcore.cell.proof.watching import torch_compiler, torch_watch
from benchcore.cell.proof.watching.own_code import identify
from benchcore.cell.proof.watching.torch_floats import list_floats
from benchcore.cell.runtimes.runtime import ALONE, FROZEN_S, Place, name_devices
from benchcore.device_names import parse_device
from benchcore.program import REFERENCE, UnsupportedError

# The rounding of float32 operands; in the bf16 cases no matmul has float32 operands.
_FP32_PRECISION = {
    REFERENCE: "ieee",
    "fp32_ieee": "ieee",
    "tf32": "tf32",
    "bf16": "ieee",
    "bf16_autocast": "ieee",
}
_AMPERE = (8, 0)
"""First compute capability with TF32 and bfloat16 units."""


class TorchRuntime:
    """torch on one device; for several, each has a process."""

    def __init__(self) -> None:
        self._compiler = torch_compiler.CompilerSettings()

    def import_framework(self) -> None:
        """Import torch."""
        import torch

        self._torch = torch
        self._usual_attention = attention.list_in_torch(torch)

    def count_processes(self, devices: int, settings: Mapping[str, Any]) -> int:
        """One per device."""
        return devices

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
        """Set threads and the precision switches; bring up the device with one tensor."""
        torch = self._torch
        if precision not in _FP32_PRECISION:
            raise ValueError(
                f"wanted precision {precision!r}, but torch here has {sorted(_FP32_PRECISION)}"
            )
        if device != "cpu":
            last = parse_device(device).ordinal + place.size - 1
            if last >= torch.cuda.device_count():
                raise UnsupportedError(
                    f"wanted {name_devices(device, place.size)}, but torch {torch.__version__} "
                    f"finds {torch.cuda.device_count()} GPUs; "
                    "choose 'cpu', a build for CUDA, or a case with fewer devices"
                )
            device = f"cuda:{parse_device(device).ordinal + place.rank}"
        self._place, self._precision = place, precision
        self._refuse_missing(device, precision)
        self._mode = settings.get("compile", "none")
        self._shapes = settings.get("shapes", "automatic")
        self._compiles = self._mode != "none" or settings.get("optimizer") == "compiled"
        torch.backends.cudnn.benchmark = settings.get("cudnn_benchmark", "off") == "on"
        attention.choose_in_torch(torch, settings.get("attention", attention.USUAL))
        torch.set_num_threads(max(1, threads // place.size))
        self._set_precision(_FP32_PRECISION[precision])
        self._device = torch.device(device)
        torch.zeros(1, device=self._device)
        self._wait()
        if place.size > 1:
            self._join(place)

    def _join(self, place: Place) -> None:
        """Meet the other processes of the group. NCCL has not been run on a GPU."""
        cpu = self._device.type == "cpu"
        if cpu:  # gloo looks the machine's own name up otherwise
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        else:
            self._torch.cuda.set_device(self._device)
        self._torch.distributed.init_process_group(
            "gloo" if cpu else "nccl",
            init_method=f"file://{place.rendezvous}",
            rank=place.rank,
            world_size=place.size,
            timeout=datetime.timedelta(seconds=FROZEN_S),
        )

    def _refuse_missing(self, device: str, precision: str) -> None:
        """The GPU branch has not been run on a GPU."""
        if device == "cpu":
            missing = precision == "tf32"
        else:
            capability = self._torch.cuda.get_device_capability(device)
            missing = precision not in ("fp32_ieee", REFERENCE) and capability < _AMPERE
        if missing:
            raise UnsupportedError(
                f"wanted precision {precision!r} on {device!r}, which has no unit for it, so torch "
                "would use another one; plan 'fp32_ieee' there, or use another device"
            )

    def _fp32_switches(self) -> tuple[Any, ...]:
        """Every backend's switches since 2.9: matmul before convolution, then their parents."""
        backends = self._torch.backends
        cuda = (backends.cuda.matmul, backends.cudnn.conv)
        parents = (backends.cudnn.rnn, backends.cudnn, backends.mkldnn, backends)
        return (*cuda, backends.mkldnn.matmul, backends.mkldnn.conv, *parents)

    def _has_switches(self) -> bool:
        return tuple(int(part) for part in self._torch.__version__.split(".")[:2]) >= (2, 9)

    def _set_precision(self, fp32: str) -> None:
        """Every switch there is, the ones before 2.9 first, as the later ones must agree with them.

        Inductor reads both kinds (`cuda.matmul.allow_tf32` in its bmm, `cudnn.allow_tf32` and
        `cudnn.fp32_precision` in its convolution templates), and torch raises when a switch of the
        old kind is read that the new kind contradicts.
        """
        torch = self._torch
        torch.set_float32_matmul_precision("high" if fp32 == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = fp32 == "tf32"
        if self._has_switches():
            for switch in self._fp32_switches():
                switch.fp32_precision = fp32

    def _wait(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)

    def try_compiler(self) -> None:
        """Try what Inductor tries (torch 2.5 and newer), and watch its settings from now on."""
        if self._device.type == "cpu" and self._mode != "none":
            with suppress(ImportError), torch_compilation.inductors_own_folder():
                from torch._inductor import cpu_vec_isa

                cpu_vec_isa.valid_vec_isa_list()
        if self._compiles:
            self._compiler.watch(self._mode, self._shapes)

    def canary(self, make_operands: Callable[[], Operands]) -> Products | None:
        """`torch.matmul` and `conv2d`, cast or under autocast as in the case."""
        torch, given = self._torch, make_operands()
        dtypes = {"bf16": torch.bfloat16, REFERENCE: torch.float64}
        dtype = dtypes.get(self._precision, torch.float32)
        left, right, images, kernel = (
            torch.tensor(array, device=self._device, dtype=dtype)
            for array in (given.left, given.right, given.images, given.kernel)
        )
        autocast = self._precision == "bf16_autocast"
        context = torch.autocast(self._device.type, torch.bfloat16) if autocast else nullcontext()
        with torch.no_grad(), context:
            product = left @ right
            convolved = torch.nn.functional.conv2d(images, kernel, stride=STRIDE)
        product, convolved = (
            each.to(torch.promote_types(each.dtype, torch.float32)).cpu().numpy()
            for each in (product, convolved)
        )
        return Products(product=product, convolved=convolved)

    def synchronise(self, outputs: object) -> None:
        """Wait for the device; on a CPU torch has already finished."""
        self._wait()

    def release(self, outputs: object) -> None:
        """A CUDA stream runs in order, so waiting for these would drain it."""

    def compile_seconds(self) -> dict[str, float | None]:
        """Read Dynamo's own clock."""
        return torch_compilation.read_seconds(self._dynamo() if self.num_compilations() else None)

    def num_compilations(self) -> int:
        """Graphs that dynamo compiled."""
        dynamo = self._dynamo()
        return 0 if dynamo is None else int(dynamo.utils.counters["stats"]["unique_graphs"])

    def num_cache_hits(self) -> int | None:
        """Graphs whose compiled form was in either of the two disk caches."""
        dynamo = self._dynamo() if self.num_compilations() else None
        return torch_compilation.count_cache_hits(dynamo)

    def planned_bytes(self, program: BoundProgram) -> int | None:
        """torch does not plan a step's memory."""
        return None

    def measure_sharing(self, program: BoundProgram) -> dict[str, float | None]:
        """Read the collectives that this process took part in, and its parts of the tensors."""
        exchanged = count_in_torch(self._torch, program.step, self._place.size)
        parts = [find_part(each) for each in program.held().get("state", ())]
        here = sum(each.numel() * each.element_size() for each in parts)
        return {"communicated_bytes": exchanged, "state_bytes_per_device": here or None}

    def profile(self, program: BoundProgram, steps: int, folder: Path) -> dict[str, Any] | None:
        """Use `torch.profiler`. One more step counts Python's calls."""
        seen = profile_torch(
            self._torch,
            lambda annotate: run_window(program.step, self.synchronise, steps, annotate),
            folder / "trace.json",
            steps=steps,
            on_gpu=self._device.type == "cuda",
        )
        return seen | count_calls(self._torch, program.step)

    def switches(self) -> dict[str, object]:
        """Every switch that torch has a getter for, and what the harness calls."""
        called = identify(self._torch.cuda, ("synchronize",))
        own = self._compiler.list_switches()
        return {**torch_watch.list_switches(self._torch), **own, **called}

    def watch_step(self, program: BoundProgram, *, to_end: bool = True) -> dict[str, str]:
        """The step as it was written: a compiled function runs eagerly. It is never interrupted."""
        step, followed = program.plain_step, program.is_followed
        found = torch_watch.watch_step(self._torch, step, followed=followed)
        if followed:
            return found
        found["autograd_graph"] = torch_watch.describe_graph(self._torch, program)
        if self._mode != "none":
            num_shapes = program.num_shapes
            whole = torch_compiler.describe_whole(self._torch, step, num_shapes)
            found |= {"compiled_whole": whole} if whole else {}
        return found

    def list_work(self, step: Callable[[], object], *, timed: bool = False) -> list[str]:
        """Names of the step's calls, and of the operators that torch's dispatcher runs."""
        if timed and self._compiles:
            return list_calls(step)
        return torch_watch.list_work(self._torch, step)

    def inspect_step(self, step: Callable[[], object]) -> Readings:
        """Watch what torch's dispatcher runs."""
        return torch_watch.inspect_step(self._torch, step)

    def list_floats(self, program: BoundProgram) -> dict[int, int]:
        """Watch what torch's dispatcher runs. The other processes follow."""
        return list_floats(self._torch, program.plain_step)

    def draw_given(self, step: Callable[[], object], first: object, read: Read) -> Followed:
        """Replace the results of the operators that draw."""
        return torch_drawing.draw_given(self._torch, step, read)

    def count_products(self, program: BoundProgram) -> dict[str, Any] | None:
        """Count what its compiled graphs call, what the step requests, and its values."""
        step = program.plain_step

        def find_needless() -> dict[str, Any]:
            settled, buffers = program.settle(self.synchronise), program.rotation.buffers
            return describe_needless(lambda: torch_needless.record(self._torch, settled, buffers))

        mode = program.held().get("compile_mode") or (
            "default" if self.num_compilations() else "none"
        )
        return describe(
            lambda: inspect_compiled(self._torch, step, mode, on_gpu=self._device.type == "cuda"),
            lambda: self._of_group(*count_asked(self._torch, step, MOST_COUNTED)),
            find_needless if self._place.size == 1 else None,
        )

    def _of_group(self, flops: Flops, size: float | None) -> Asked:
        """All processes of a group do as much as this one."""
        return Asked({key: each * self._place.size for key, each in flops.items()}, size)

    def _dynamo(self) -> Any:
        """The compiler, if the workload imported it: eager work never imports it."""
        return sys.modules.get("torch._dynamo")

    def allocator_peak_bytes(self) -> int | None:
        """Peak of the caching allocator; there is none on a CPU."""
        if self._device.type == "cpu":
            return None
        return self._torch.cuda.max_memory_allocated(self._device)

    def effective(self) -> dict[str, Any]:
        """Precision, threads and versions as torch reports them."""
        torch, cpu = self._torch, self._device.type == "cpu"
        return {
            "versions": {
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                **read_versions(),
            },
            "threads": torch.get_num_threads(),
            "fp32_precision": dict(zip(("matmul", "conv"), self._read_switches(cpu), strict=True)),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "attention": attention.list_in_torch(torch),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "pci_address": None if cpu else read_pci_address(self._device.index or 0),
        }

    def address(self, array: Any) -> int:
        """Address of a tensor's first number."""
        return array.data_ptr()

    def manifest(self, held: Mapping[str, Any]) -> dict[str, str]:
        """Read from the tensors, the module, and the switches in force."""
        torch = self._torch
        params, inputs = held.get("params", ()), held.get("inputs", ())
        cpu = self._device.type == "cpu"
        here = all(tensor.device.type == self._device.type for tensor in inputs)
        dtype = join_readings(_word(tensor.dtype) for tensor in params)
        output_dtype = _word(held.get("output_dtype", "none"))
        matmul, conv = self._read_switches(cpu)
        if {dtype, output_dtype} != {"float32"}:  # float32's switches have no effect
            matmul = conv = output_dtype
        return {
            "device": "cpu" if cpu else "gpu",
            "threads": str(self._place.count_threads(torch.get_num_threads(), usable_cpus())),
            "data_path": "device" if here else "host",
            "param_dtype": dtype,
            "output_dtype": output_dtype,
            "state_update": held.get("state_update", "no state"),
            "graphs": "on" if self._has_graphs() else "off",
            "autotune": "none" if cpu else ("on" if torch.backends.cudnn.benchmark else "off"),
            "compiled": "yes" if self.num_compilations() else "no",
            "compile_mode": held.get("compile_mode", "none"),
            "matmul_precision": matmul if any(t.dim() == 2 for t in params) else "none",
            "conv_precision": conv if any(t.dim() == 4 for t in params) else "none",
            "layout": join_readings(self._layouts((*params, *inputs))),
            "dropout": "random" if torch_drawing.drops(held.get("module")) else "none",
            "optimizer": torch_watch.describe_optimizers(torch),
            "compile_options": torch_watch.describe_compilers(torch, self._mode),
            "shapes": torch_watch.describe_shapes(),
            "hooks": torch_watch.describe_hooks(torch),
            "attention": attention.describe_in_torch(torch, self._usual_attention),
            **({} if cpu else read_versions()),
        }

    def _read_switches(self, cpu: bool) -> tuple[str, str]:
        """The rounding of float32 matmuls and convolutions; `none` is torch's old default."""
        backends = self._torch.backends
        if not self._has_switches():
            names = {False: "ieee", True: "tf32"}
            switches = (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32)
            return ("ieee", "ieee") if cpu else (names[switches[0]], names[switches[1]])
        matmul, conv = (s.fp32_precision for s in self._fp32_switches()[2 if cpu else 0 :][:2])
        return matmul.replace("none", "ieee"), conv.replace("none", "ieee" if cpu else "tf32")

    def _layouts(self, tensors: tuple[Any, ...]) -> set[str]:
        """Layouts of tensors with four axes; a 1x1 kernel fits both."""
        formats = self._torch.contiguous_format, self._torch.channels_last
        found = set()
        for tensor in tensors:
            if tensor.dim() == 4:
                first, last = (tensor.is_contiguous(memory_format=each) for each in formats)
                if first != last:
                    found.add("NCHW" if first else "NHWC")
        return found

    def _has_graphs(self) -> bool:
        """Whether inductor recorded CUDA graphs on this device. Not run on a GPU."""
        trees = sys.modules.get("torch._inductor.cudagraph_trees")
        if trees is None or self._device.type == "cpu":
            return False
        index = self._device.index or 0
        return trees.get_manager(index, create_if_none_exists=False) is not None


def _word(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def make_runtime() -> TorchRuntime:
    """The runtime of torch."""
    return TorchRuntime()
