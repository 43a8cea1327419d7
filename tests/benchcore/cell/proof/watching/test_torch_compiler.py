"""torch's compiler is watched while it compiles, and parts of a step outside of it are named. On a
stand-in for torch; unfair sides with torch itself are in tests/plants."""

from __future__ import annotations

import _thread
import builtins
import functools
import operator
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from benchcore.cell.proof.watching.torch_compiler import CompilerSettings, describe_whole


def _make_module(monkeypatch: pytest.MonkeyPatch, name: str, **contents: object) -> Any:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Inductor's, beside a list of callbacks and the options of a mode."""
    handler = SimpleNamespace(start_callbacks=[], end_callbacks=[])
    _make_module(
        monkeypatch,
        "torch._dynamo.callback",
        callback_handler=handler,
        on_compile_start=handler.start_callbacks.append,
        on_compile_end=handler.end_callbacks.append,
    )
    options = {"max-autotune": {"max_autotune": True}, "default": {}}
    _make_module(monkeypatch, "torch._inductor", list_mode_options=options.__getitem__)
    entries = dict.fromkeys(("epilogue_fusion", "max_autotune", "passes"))
    return _make_module(
        monkeypatch, "torch._inductor.config",
        _config=entries, epilogue_fusion=True, max_autotune=False, passes=[],
    )  # fmt: skip


def _compile() -> None:
    handler = sys.modules["torch._dynamo.callback"].callback_handler
    for callback in (*handler.start_callbacks, *handler.end_callbacks):
        callback("a compilation")


def test_a_setting_that_differs_while_torch_compiles_is_named(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "ours")
    settings = CompilerSettings()
    before = settings.list_switches()
    settings.watch("max-autotune", "automatic")
    config.max_autotune = True
    _compile()
    assert settings.list_switches() | before == settings.list_switches()
    config.epilogue_fusion = False
    _compile()
    config.epilogue_fusion = True
    config.passes.append("own")
    _compile()
    monkeypatch.setenv("OWN_CACHE_DIR", "new")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "own")
    config.passes.clear()
    _compile()
    assert settings.list_switches()["settings while compiling"] == [
        "folder TORCHINDUCTOR_CACHE_DIR 'own'",
        "inductor.epilogue_fusion 'False'",
        "inductor.passes \"['own']\"",
    ]


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        ("automatic", ["dynamo.assume_static_by_default 'False'"]),
        ("static", ["dynamo.assume_static_by_default 'False'"]),
        ("dynamic", []),
    ],
)
@pytest.mark.usefixtures("config")
def test_only_the_shapes_that_the_arm_chose_may_change_settings_of_dynamo(
    shapes: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.compile(dynamic=True)` changes this one while it compiles."""
    entries = {"assume_static_by_default": None}
    dynamo = _make_module(
        monkeypatch, "torch._dynamo.config", _config=entries, assume_static_by_default=True
    )
    settings = CompilerSettings()
    settings.watch("default", shapes)
    dynamo.assume_static_by_default = False
    _compile()
    assert settings.list_switches()["settings while compiling"] == found


def test_compilations_that_are_no_longer_seen_are_a_switch(config: Any) -> None:
    settings = CompilerSettings()
    settings.watch("max-autotune", "automatic")
    before = settings.list_switches()
    sys.modules["torch._dynamo.callback"].callback_handler.start_callbacks.clear()
    assert settings.list_switches() != before


class _Tensor:
    def __init__(self, size: int) -> None:
        self.size = size

    def numel(self) -> int:
        return self.size

    def untyped_storage(self) -> SimpleNamespace:
        return SimpleNamespace(_cdata=id(self))


class _Mode:
    """The newest one sees each operator, as in torch."""

    entered: ClassVar[list[Any]] = []

    def __enter__(self) -> None:
        self.entered.append(self)

    def __exit__(self, *_: object) -> None:
        self.entered.pop()


def _run_operator(name: str) -> Any:
    """A function that makes a tensor."""
    operator: Any = lambda: _Tensor(1 if name == "ones_like" else 8)  # noqa: E731
    operator._schema = SimpleNamespace(name=f"aten::{name}", is_mutable=False)
    return operator


_TORCH = SimpleNamespace(
    Tensor=_Tensor,
    utils=SimpleNamespace(
        _python_dispatch=SimpleNamespace(TorchDispatchMode=_Mode),
        _pytree=SimpleNamespace(tree_leaves=lambda nested: [nested]),
    ),
)
_CODE = {
    "torch._dynamo.eval_frame": """
def dispatch(name):
    operator = make(name)
    return modes[-1].__torch_dispatch__(operator, ()) if modes else operator()
""",
    "torch._inductor.output_code": """
class CompiledFxGraph:
    def __init__(self, kind):
        self.fx_kwargs = {"is_backward": kind == "backward"}
    def __call__(self, inputs):
        dispatch("addmm")
Graph = CompiledFxGraph
""",
    "torch.optim.sgd": """
def update(closure=None):
    closure and closure()
    dispatch("add_")
    Graph("forward")([])
""",
    "torch.autograd.graph": """
def run_engine(*names):
    for name in names:
        dispatch(name)
""",
}
"""Parts of torch, by module, as a step's callers are known by that."""


def _describe(monkeypatch: pytest.MonkeyPatch, step: str, num_shapes: int = 1) -> str:
    names: dict[str, Any] = {"make": _run_operator, "modes": _Mode.entered}
    for module, code in _CODE.items():
        names = {**names, "__name__": module}
        exec(code, names)
    graph_class = names["CompiledFxGraph"]
    _make_module(monkeypatch, "torch._inductor.output_code", CompiledFxGraph=graph_class)
    own = {**names, "__name__": "own"}
    return describe_whole(_TORCH, lambda: exec(step, own), num_shapes)


_WHOLE = "Graph('forward')([]); run_engine('ones_like', 'copy_'); Graph('backward')([]); update()"


def test_a_step_of_one_graph_its_gradients_and_its_optimiser_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _describe(monkeypatch, _WHOLE) == "yes"


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (f"{_WHOLE}; dispatch('relu')", "outside of compiled graphs relu"),
        (f"{_WHOLE}; run_engine('threshold')", "outside of compiled graphs threshold"),
        (f"update(lambda: dispatch('sin')); {_WHOLE}", "outside of compiled graphs sin"),
        (f"{_WHOLE}; Graph('forward')([])", "2 forward graphs"),
        (f"{_WHOLE}; Graph('backward')([])", "2 backward graphs"),
        ("Graph('forward')([7])", "a graph for any shape, although there is one"),
        ("dispatch('relu')", "no compiled graph; outside of compiled graphs relu"),
    ],
)
def test_what_is_not_in_the_steps_one_graph_is_named(
    step: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _describe(monkeypatch, step) == found


def _run_without_callers(function: Callable[[], object]) -> None:
    """In a thread that no Python function started, as autograd's is on a GPU."""
    running = _thread.allocate_lock()
    running.acquire()
    _thread.start_new_thread(list, (map(operator.call, [function, running.release]),))
    assert running.acquire(timeout=20), "it failed"


@pytest.mark.parametrize(
    ("name", "found"), [("copy_", "yes"), ("threshold", "outside of compiled graphs threshold")]
)
def test_the_backward_pass_of_a_gpu_runs_in_a_thread_without_callers(
    name: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtins, "run_without_callers", _run_without_callers, raising=False)
    monkeypatch.setattr(builtins, "partial", functools.partial, raising=False)
    call = f"partial(modes[-1].__torch_dispatch__, make({name!r}), ())"
    step = f"{_WHOLE}; run_without_callers({call}) if modes else None"
    assert _describe(monkeypatch, step) == found


def test_a_step_of_several_shapes_has_a_graph_for_each_or_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _describe(monkeypatch, "Graph('forward')([]); Graph('forward')([7])", 2) == "yes"


def test_nothing_is_known_of_a_torch_without_the_class_of_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor.output_code", raising=False)
    assert describe_whole(_TORCH, list, 1) == ""
