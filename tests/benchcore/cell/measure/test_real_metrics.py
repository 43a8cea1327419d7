"""Stages, recompilations, caches and planned memory, of the real frameworks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from duel_orders import make_order, run_order
from forked_contenders import run_script

from benchcore.protocol import ContenderOrder, DuelOrder, EnvironmentRecord
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from data_checks.check import check_campaign
from tasks.unfair.framework_servers import FrameworkServers

pytestmark = pytest.mark.provisions
ROOT = Path(__file__).parents[4]
Environments = Callable[[str], EnvironmentRecord]


def _break(snapshot: Path, file: str, line: str, instead: str) -> None:
    path = snapshot / "benchcore" / file
    source = path.read_text()
    assert source.count(line) == 1
    path.write_text(source.replace(line, instead))


def _order(
    record: EnvironmentRecord, framework: str, mode: str, *names: str, **changes: Any
) -> DuelOrder:
    contenders = [
        ContenderOrder(
            name=name,
            arm=f"{framework}-{mode}",
            role="newest",
            framework=framework,  # type: ignore[arg-type]
            version=record.packages[framework],
            settings={"compile": mode},
            environment=record,
            environment_failure=None,
        )
        for name in names
    ]
    return make_order(
        *contenders,
        workload="mlp",
        case="tiny_train",
        prepare_timeout_s=300.0,
        block_timeout_s=30.0,
        **changes,
    )


@pytest.mark.usefixtures("uncached_compiler")
@pytest.mark.parametrize(("framework", "mode"), [("jax", "jit"), ("torch", "default")])
def test_the_first_starts_compile_with_empty_caches_and_the_others_reuse_them(
    framework_environment: Environments, state: State, snapshot: Path, framework: str, mode: str
) -> None:
    record = framework_environment(f"{framework}@newest")
    limits = {"starts": 3, "compilations": 2}
    document = run_order(_order(record, framework, mode, "a", **limits), state, snapshot)
    assert document["duel"]["compilations"] == 2
    (contender,) = document["contenders"]
    assert contender["status"] == "ok", contender["failure"]
    starts = contender["starts"]
    assert [start["compilation"] for start in starts] == [0, 1, 0]
    assert [start["caches"] for start in starts] == ["cold", "cold", "warm"]
    assert [start["cache_hits"] for start in starts[:2]] == [0, 0]
    for each in (starts[2], contender["warm"]):
        assert each["cache_hits"] > 0
        for cold in starts[:2]:
            assert each["stages"]["compile"] < cold["stages"]["compile"] / 2
    assert contender["warm"]["stages"]["warm_up"] is None
    for each in (contender["warm"], *starts):
        assert all(seconds is None or seconds >= 0 for seconds in each["stages"].values())
    assert {start["compilations_in_blocks"] for start in starts} == {0}
    memory = contender["starts"][-1]["memory"]
    assert memory["process_peak_bytes"] > memory["process_baseline_bytes"] > 50_000_000
    assert memory["allocator_peak_bytes"] is None  # of a CPU
    if framework == "torch":
        assert memory["planned_bytes"] is None
    else:  # weights, momentum, and the inputs at least; donated results take no room again
        assert 10_000 < memory["planned_bytes"] < 10_000_000


def test_a_step_that_jits_a_fresh_closure_is_void(
    framework_environment: Environments, state: State, forking_snapshot: Path
) -> None:
    """The seed's error (#3, row 4): `jax.jit` of a new closure each time compiles each time."""
    _break(
        forking_snapshot,
        "workloads/mlp/in_jax.py",
        "        params, state, loss = compiled(params, state, *inputs)\n",
        "        params, state, loss = compiled(params, state, *inputs)\n"
        "        loss = jax.jit(lambda each: each)(loss)\n",
    )
    for file, text in (("start", "_FEWEST_LATENCIES = "), ("stopping", "MIN_STEPS = ")):
        _break(forking_snapshot, f"cell/{file}.py", f"{text}50", f"{text}2")
    short = {"starts": 1, "passes": False}
    order = _order(framework_environment("jax@newest"), "jax", "jit", "a", "b", **short)
    document = run_order(order, state, forking_snapshot)
    for contender in document["contenders"]:
        assert contender["status"] == "ok", contender["failure"]
        for start in contender["starts"]:
            steps = sum(block["steps"] for block in start["blocks"])
            assert start["compilations_in_blocks"] >= steps + len(start["latency_ns"])
            assert start["warm_up"]["compilations"] > 0
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    check_campaign(engine, order.campaign)
    (ratio,) = judge_and_list(engine, order.campaign)
    engine.dispose()
    assert not ratio["counts"]
    assert "in timed blocks" in ratio["reason"]


@pytest.fixture
def run_code(
    framework_python: Callable[[str], Path], framework_servers: FrameworkServers
) -> Callable[[str, str], Any]:
    """What code prints in a process of its own that has imported a framework."""

    def run(framework: str, code: str) -> Any:
        python, paths = framework_python(framework), {"PYTHONPATH": str(ROOT)}
        done = run_script(framework_servers, python, [framework], code, **paths)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


_JAX = """
import json, time
from benchcore.cell.runtimes.jax_runtime import make_runtime
runtime = make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={})
import jax, jax.numpy as jnp
"""


def test_jax_waits_for_every_array_that_was_not_donated(
    run_code: Callable[[str, str], Any],
) -> None:
    code = """
step = jax.jit(lambda x: x + 1, donate_argnums=0)
given = jnp.ones(3)
pending = step(given)
runtime.synchronise([given, pending, "no array"])
class Slow:
    def __init__(self, deleted): self.deleted, self.waited = deleted, False
    def is_deleted(self): return self.deleted
    def block_until_ready(self): self.waited = True; return self
runtime._jax = type("Fake", (), {"Array": Slow, "tree_util": jax.tree_util,
    "block_until_ready": staticmethod(lambda each: [one.block_until_ready() for one in each])})
gone, left, other = Slow(True), Slow(False), Slow(False)
runtime.synchronise([(gone, {"a": left}), [other]])
print(json.dumps([given.is_deleted(), gone.waited, left.waited, other.waited]))
"""
    assert run_code("jax", _JAX + code) == [True, False, True, True]


def test_jax_frees_no_result_before_it_is_ready(
    run_code: Callable[[str, str], Any],
) -> None:
    """A small computation overtakes a large one: to wait for the last one is not enough."""
    code = """
slow = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda i, y: jnp.tanh(y @ x), x))
fast = jax.jit(lambda x: x + 1)
large, small = jnp.full((256, 256), 1e-3), jnp.ones(1)
jax.block_until_ready([slow(large), fast(small)])
overtaken = done = rounds = 0
deadline = time.monotonic() + 60  # on quiet CPUs they mostly keep their order
while rounds < 40 or (not overtaken and time.monotonic() < deadline):
    rounds += 1
    first = slow(large)
    first.is_ready()  # with no question between the two they were seen to keep their order
    time.sleep(rounds % 2 / 1e4)
    runtime.synchronise(fast(small))
    overtaken += not first.is_ready()
    runtime.release(first)
    done += first.is_ready()
print(json.dumps([overtaken, done, rounds]))
"""
    overtaken, done, rounds = run_code("jax", _JAX + code)
    assert overtaken > 0, "nothing ran behind the host's back: this shows nothing"
    assert done == rounds


def test_jaxs_stages_fit_in_the_time_they_took(run_code: Callable[[str, str], Any]) -> None:
    """Functions traced and compiled within others: without the clock they count twice."""
    code = """
@jax.jit
def inner(x):
    for _ in range(60): x = jnp.sin(x) @ x
    return x
@jax.jit
def outer(x):
    with jax.ensure_compile_time_eval():
        constant = inner(jnp.ones((4, 4)))
    return jax.jit(lambda y: inner(y) + constant)(x)
runtime.synchronise(jnp.ones((4, 4)))
before = sum(runtime.compile_seconds().values())
began = time.perf_counter()
outer(jnp.ones((4, 4))).block_until_ready()
took = time.perf_counter() - began
print(json.dumps([sum(runtime.compile_seconds().values()) - before, took]))
"""
    counted, took = run_code("jax", _JAX + code)
    assert 0.3 * took < counted <= took


def test_torchs_recompilations_are_counted(run_code: Callable[[str, str], Any]) -> None:
    """Another number of dimensions each time is another graph."""
    code = """
import json, torch
from benchcore.cell.runtimes.torch_runtime import make_runtime
runtime = make_runtime()
runtime.import_framework()
runtime.initialise(device="cpu", precision="fp32_ieee", threads=1, settings={})
assert runtime.num_compilations() == 0
assert runtime.compile_seconds() == {"trace": None, "lower": None, "compile": None}
double = torch.compile(lambda x: x * 2, backend="eager")
counts = []
for dimensions in (1, 2, 2, 3):
    double(torch.ones((2,) * dimensions))
    counts.append(runtime.num_compilations())
print(json.dumps(counts))
"""
    assert run_code("torch", code) == [1, 2, 2, 3]
