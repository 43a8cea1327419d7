"""What is read out of the traces that profilers write, by traces made up in their layouts."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchcore.cell.explain import jax_profile, torch_profile
from benchcore.cell.explain.hlo import HloText
from benchcore.cell.explain.trace import WINDOW, busy_ns, in_window, read_trace, summarise_kernels
from benchcore.cell.measure import timing


def _x(name: str, ts: float, dur: float, tid: int = 1, pid: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def _named(kind: str, pid: int, name: str, tid: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _write(folder: Path, *events: dict[str, Any], name: str = "trace.json") -> Path:
    path = folder / name
    content = json.dumps({"traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


WINDOWED = _x(WINDOW, 10, 100)


def test_time_in_which_two_threads_ran_at_once_counts_once(tmp_path: Path) -> None:
    path = _write(
        tmp_path, WINDOWED, _x("a", 20, 10), _x("b", 25, 10, tid=2), _x("c", 50, 5, tid=2)
    )
    kernels = [each for each in read_trace(path) if each.name in "abc"]
    assert busy_ns(kernels) == 20_000


def test_what_an_operator_calls_is_not_its_own_time(tmp_path: Path) -> None:
    path = _write(
        tmp_path, WINDOWED, _x("outer", 20, 10), _x("inner", 22, 3), _x("inner", 26, 3),
        _x("outer", 40, 1),
    )  # fmt: skip
    seen = summarise_kernels([each for each in read_trace(path) if each.name != WINDOW])
    assert seen["kernel_ns"] == 11_000
    assert seen["kernels"] == [
        {"name": "inner", "ns": 6000, "calls": 2},
        {"name": "outer", "ns": 5000, "calls": 2},
    ]


def test_events_before_the_window_or_on_another_thread_are_not_counted(tmp_path: Path) -> None:
    path = _write(tmp_path, _x("early", 0, 5), WINDOWED, _x("here", 20, 1), _x("there", 20, 1, 2),
                  _x("late", 120, 1), name="trace.json.gz")  # fmt: skip
    events = read_trace(path)
    assert [each.name for each in in_window(events)] == ["here"]
    assert {each.name for each in events} == {WINDOW, "here", "there", "late"}


def test_a_trace_without_its_window_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"wanted the annotation 'deadheat\.steps'"):
        read_trace(_write(tmp_path, _x("early", 0, 5)))


class _FakeTorch:
    """A profiler that writes the trace it was given, as CUPTI would have it."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = events
        self.profiler = self

    def profile(self, **_: Any) -> _FakeTorch:
        return self

    def __enter__(self) -> _FakeTorch:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def export_chrome_trace(self, path: str) -> None:
        _write(Path(path).parent, *self._events)


class _FakeJax:
    """A profiler that writes the trace it was given, as XLA would have it."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self._events = events
        self.profiler = self
        self.ProfileOptions = SimpleNamespace
        self.numpy = SimpleNamespace(zeros=lambda shape: _FakeArray())
        self.block_until_ready = self.device_get = lambda given: given

    def start_trace(self, path: str, **_: Any) -> None:
        self._folder = Path(path)

    def stop_trace(self) -> None:
        _write(self._folder, *self._events, name="host.trace.json.gz")


class _FakeArray:
    """The methods by which Python reads an array's value."""

    item = tolist = block_until_ready = __array__ = lambda self: 0
    __float__ = __int__ = __bool__ = __index__ = lambda self: 0


def test_kernels_copies_and_waits_of_a_gpu_are_distinguished(tmp_path: Path) -> None:
    """After the layout of kineto's traces; not run on a GPU."""
    torch = _FakeTorch(
        WINDOWED,
        _x("aten::linear", 20, 30, cat="cpu_op"),
        _x("cudaMemcpyAsync", 22, 1, cat="cuda_runtime"),
        _x("cudaStreamSynchronize", 60, 5, cat="cuda_runtime"),
        _x("cudaDeviceSynchronize", 115, 5, cat="cuda_runtime"),  # the harness's own, after it
        _x("cudaGraphLaunch", 62, 5, cat="cuda_runtime"),
        _x("cudaGraphLaunch", 70, 5, 2, cat="cuda_runtime"),  # autograd's own thread
        _x("Memcpy HtoD (Pageable -> Device)", 30, 4, 7, 0, cat="gpu_memcpy", args={"bytes": 4096}),
        _x("flash_fwd_kernel", 34, 20, 7, 0, cat="kernel"),
    )
    seen = torch_profile.profile_torch(
        torch, lambda _: 9, tmp_path / "trace.json", steps=1, on_gpu=True
    )
    assert (seen["host_syncs"], seen["host_copies"], seen["copied_bytes"]) == (1, 1, 4096)
    assert (seen["kernel_ns"], seen["num_kernels"]) == (24_000, 2)
    assert seen["kernels"][0]["name"] == "flash_fwd_kernel"
    assert seen["graph_launches"] == 2


def test_graphs_are_unknown_where_no_kernel_was_recorded(tmp_path: Path) -> None:
    """CUPTI may be refused; a CPU has no graphs."""
    events = WINDOWED, _x("cudaGraphLaunch", 62, 5, cat="cuda_runtime")
    for on_gpu in (True, False):
        seen = torch_profile.profile_torch(
            _FakeTorch(*events), lambda _: 9, tmp_path / "trace.json", steps=1, on_gpu=on_gpu
        )
        assert seen["graph_launches"] is None


def test_adams_own_step_counts_are_no_waits(tmp_path: Path) -> None:
    item = "aten::_local_scalar_dense"
    torch = _FakeTorch(
        WINDOWED,
        _x("Optimizer.step#Adam.step", 20, 10, cat="user_annotation"),
        _x(item, 22, 1, cat="cpu_op"),
        _x(item, 40, 1, cat="cpu_op"),
    )
    seen = torch_profile.profile_torch(
        torch, lambda _: 9, tmp_path / "trace.json", steps=1, on_gpu=False
    )
    assert seen["host_syncs"] == 1


@pytest.mark.parametrize(
    ("second", "alike"), [("aten::relu", True), ("aten::tanh", False), (None, False)]
)
def test_an_eager_program_consists_of_the_operators_of_a_step(
    tmp_path: Path, second: str | None, alike: bool
) -> None:
    """Two steps of two operators; the first operator calls another one."""
    steps = [("aten::linear", "aten::relu"), ("aten::linear", second)]
    calls = [
        _x(name, 20 + 20 * step + 9 * place, 5, cat="cpu_op", args={"Input Dims": [[8, 8]]})
        for step, names in enumerate(steps)
        for place, name in enumerate(names)
        if name
    ]
    inner = [_x("aten::addmm", 21 + 20 * step, 2, cat="cpu_op") for step in (0, 1)]
    torch = _FakeTorch(WINDOWED, *calls, *inner)
    seen = torch_profile.profile_torch(
        torch, lambda _: 9, tmp_path / "trace.json", steps=2, on_gpu=False
    )
    assert bool(seen["program"]["hash"]) is alike
    if alike:
        assert seen["program"]["counts"] == {"aten::linear": 1, "aten::relu": 1}


def test_jax_kernels_and_graphs_on_a_gpu_are_those_its_streams_ran(tmp_path: Path) -> None:
    """After the layout of XLA's traces; not run on a GPU."""
    jax = _FakeJax(
        _named("process_name", 2, "/device:GPU:0"),
        _named("thread_name", 2, "Stream #13(Compute)", 5),
        _named("thread_name", 2, "XLA Ops", 6),
        WINDOWED,
        _x("gemm_fusion_dot", 20, 5, 5, 2, args={"hlo_op": "gemm_fusion_dot"}),
        _x("gemm_fusion_dot", 20, 9, 6, 2, args={"hlo_op": "gemm_fusion_dot"}),
        _x("thunk", 20, 9, 1, 1, args={"hlo_op": "gemm_fusion_dot"}),
        _x("cuGraphLaunch", 120, 2, 3),  # after the host has enqueued its steps
    )
    seen = jax_profile.profile_jax(jax, None, lambda window: 9, tmp_path)
    assert (seen["kernel_ns"], seen["num_kernels"]) == (5000, 1)
    assert seen["graph_launches"] == 1
    on_cpu = _FakeJax(WINDOWED, _x("dot", 20, 5, 1, 1, args={"hlo_op": "dot"}))
    seen = jax_profile.profile_jax(on_cpu, None, lambda window: 9, tmp_path)
    assert seen["graph_launches"] is None


_HLO = """\
HloModule jit_f, is_scheduled=true

FileNames
1 "/somewhere/{place}.py"

%fused_computation (param_0: f32[1,16,16,24]) -> f32[1,16,16,32] {{
  %param_0 = f32[1,16,16,24]{{3,2,1,0}} parameter(0)
  ROOT %convolution.1 = f32[1,16,16,32]{{3,2,1,0}} convolution(%param_0, %param_0), \
window={{size=3x3}}, feature_group_count={groups}, metadata={{op_name="{place}"}}
}}

ENTRY %main.1 (x: f32[8]) -> (f32[8], s32[]) {{
  %x = f32[1,16,16,24]{{3,2,1,0}} parameter(0)
  %ynn_fusion = f32[1,16,16,32]{{3,2,1,0}} fusion(%x), kind=kCustom, calls=%fused_computation
  %dot.2 = f32[4,4]{{1,0}} dot(%x, %x), lhs_contracting_dims={{1}}
  ROOT %all = (f32[8], s32[]) tuple(%ynn_fusion, %dot.2)
}}
"""


def test_a_fusion_is_described_by_what_it_holds() -> None:
    hlo = HloText(_HLO.format(groups=8, place="a"))
    assert hlo.describe("ynn_fusion") == "ynn_fusion [convolution groups=8]"
    assert hlo.describe("dot.2") == "dot.2"
    assert hlo.describe("unheard_of") == "unheard_of"
    counts = hlo.statistics(12.0)["counts"]
    assert counts["grouped convolution"] == counts["convolution"] == 1
    assert (counts["dot"], counts["fusion"], counts["instruction"]) == (1, 1, 6)


def test_the_program_hash_ignores_its_origin_and_nothing_else() -> None:
    first, moved, other = (
        HloText(_HLO.format(groups=groups, place=place)).statistics(None)["hash"]
        for groups, place in ((8, "a"), (8, "b"), (4, "a"))
    )
    assert first == moved != other


def test_the_program_hash_ignores_instruction_names() -> None:
    plain = _HLO.format(groups=8, place="a")
    renamed = plain.replace("ynn_fusion", "fusion.7").replace("dot.2", "dot.9")
    rewired = plain.replace("tuple(%ynn_fusion, %dot.2)", "tuple(%dot.2, %ynn_fusion)")
    hashes = [HloText(each).statistics(None)["hash"] for each in (plain, renamed, rewired)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_metadata_with_braces_in_a_name_is_ignored_entirely() -> None:
    texts = [_HLO.format(groups=8, place=place) for place in ("a", "f/{x}/add, b={")]
    first, other = (HloText(each).statistics(None)["hash"] for each in texts)
    assert first == other


def test_the_clocks_smallest_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = itertools.count()
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(readings) // 3 * 500)
    assert timing.clock_resolution_ns() == 500
