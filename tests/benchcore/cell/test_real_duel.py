"""Duels of the real frameworks: they agree, and a broken side can't get a ratio."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import make_order, run_order
from proof_documents import make_proof, store_proof
from result_documents import spool_ceiling

from benchcore.protocol import ContenderOrder, DuelOrder, EnvironmentRecord
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from benchcore.verdict.duel.parity import ParitySide, compare_sides
from benchcore.workloads.settings import STRATEGY
from benchcore.workloads.small_lm.spec import NETWORK as SMALL_LM_NETWORK
from benchcore.workloads.small_lm.spec import SPEC as SMALL_LM
from data_checks.check import check_campaign

pytestmark = [pytest.mark.provisions, pytest.mark.usefixtures("forking_snapshot")]
Environments = Callable[[str], EnvironmentRecord]


def _order(environments: Environments, use_case: str, **changes: Any) -> DuelOrder:
    def contender(framework: str, mode: str) -> ContenderOrder:
        record = environments(f"{framework}@newest")
        return ContenderOrder(
            name=f"{framework}-side",
            arm=f"{framework}-{mode}",
            role="newest",
            framework=framework,  # type: ignore[arg-type]
            version=record.packages[framework],
            settings={"compile": mode},
            environment=record,
            environment_failure=None,
        )

    return make_order(
        contender("jax", "jit"),
        contender("torch", "none"),
        workload="mlp",
        case=f"tiny_{use_case}",
        prepare_timeout_s=120.0,
        block_timeout_s=30.0,
        **changes,
    )


SHORT = {"starts": 1, "passes": False}
"""Enough to show what voids a ratio."""


def _judge(order: DuelOrder, state: State, snapshot: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of a duel, and the one ratio that came of it."""
    document = run_order(order, state, snapshot)
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    store_proof(state, engine, make_proof(document))
    check_campaign(engine, order.campaign)
    (ratio,) = judge_and_list(engine, order.campaign)
    engine.dispose()
    return document, ratio


@pytest.mark.parametrize("use_case", ["infer", "train"])
def test_both_frameworks_agree_and_their_ratio_counts(
    framework_environment: Environments, state: State, snapshot: Path, use_case: str
) -> None:
    spool_ceiling(state)
    order = _order(framework_environment, use_case, passes=use_case == "train")
    document, ratio = _judge(order, state, snapshot)
    assert [contender["status"] for contender in document["contenders"]] == ["ok", "ok"]
    assert document["equivalence"]
    assert all(row["agrees"] for row in document["equivalence"])
    digests = {s["inputs_sha256"] for c in document["contenders"] for s in c["starts"]}
    assert len(digests) == 1
    assert ratio["counts"], ratio["reason"]
    jax, torch = document["contenders"]
    buffers = [side["effective"]["manifest"]["input_buffers"] for side in (jax, torch)]
    assert buffers == ["4", "4"]
    assert jax["effective"]["versions"]["jax"] == jax["version"]
    assert jax["starts"][0]["stages"]["compile"] > 0
    assert torch["effective"]["versions"]["torch"].startswith(torch["version"])


def _agree(order: DuelOrder, state: State, snapshot: Path, *, devices: int) -> dict[str, Any]:
    document = run_order(order, state, snapshot)
    failures = [contender["failure"] for contender in document["contenders"]]
    assert {contender["status"] for contender in document["contenders"]} == {"ok"}, failures
    assert document["duel"]["sizes"].get("devices", 1) == devices
    assert document["equivalence"]
    assert all(row["agrees"] for row in document["equivalence"])
    return document


def _set(contender: ContenderOrder, name: str, **settings: str) -> ContenderOrder:
    return dataclasses.replace(
        contender, name=name, settings={**contender.settings, **settings}, arm=name
    )


def test_two_processes_of_each_framework_agree_with_two_devices_of_one_process(
    framework_environment: Environments, state: State, snapshot: Path
) -> None:
    order = _order(framework_environment, "per_sample_grad", **SHORT)
    jax, torch = order.contenders
    order = dataclasses.replace(
        order,
        workload="mnist_cnn",
        case="tiny_per_sample_grad_x2",
        contenders=(jax, torch, _set(jax, "jax-processes", processes="per-device")),
    )
    document = _agree(order, state, snapshot, devices=2)
    one, _, several = (each["effective"]["products"] for each in document["contenders"])
    assert several["flops"] == one["flops"] not in (None, {})
    manifests = [each["effective"]["manifest"] for each in document["contenders"]]
    assert len({each["threads"] for each in manifests}) == 1, "a group divides the threads"
    alone = ["host_calls" in each for each in manifests]  # steps of a group are not watched
    assert alone == [True, False, False]


def test_a_process_of_jax_that_dies_is_the_status_of_its_contender(
    framework_environment: Environments, state: State, snapshot: Path
) -> None:
    """Within a step, so that the first process is waiting for it in a collective."""
    file = snapshot / "benchcore" / "cell" / "processes" / "group.py"
    source, follow = file.read_text(), '    if message["do"] == "step":\n'
    assert source.count(follow) == 1
    dies = f"{follow}        _STEPS.append(len(_STEPS))\n        _STEPS[6:] and os._exit(3)\n"
    file.write_text(source.replace(follow, dies) + "\n\n_STEPS = []\n")
    order = _order(framework_environment, "train", **SHORT)
    other = _set(order.contenders[0], "jax-processes", processes="per-device")
    case = {"workload": "mnist_cnn", "case": "tiny_train_x2"}
    order = dataclasses.replace(order, **case, contenders=(order.contenders[0], other))
    one, several = run_order(order, state, snapshot)["contenders"]
    assert (one["status"], one["failure"]) == ("ok", None)
    assert several["status"] == "crash", several["failure"]
    assert "Gloo" in several["failure"]["reason"] or "ended" in several["failure"]["reason"]


def _save_evidence(snapshot: Path, folder: Path) -> None:
    """Let every contender leave a copy of the evidence before its blocks in the folder."""
    folder.mkdir()
    file = snapshot / "benchcore" / "cell" / "contender.py"
    source = file.read_text()
    line = "        return sorted(evidence)\n"
    assert source.count(line) == 1
    save = f"""\
        if when == "before":
            strategy = self._order["settings"].get("strategy", "alone")
            named = f"{{self._order['framework']}}-{{strategy}}.npz"
            agreement.save(Path({str(folder)!r}, named), evidence)
"""
    file.write_text(source.replace(line, save + line))


def test_every_strategy_of_four_devices_trains_as_one_device_does(
    framework_environment: Environments, state: State, snapshot: Path
) -> None:
    """DDP, `fully_shard` and DTensor in torch, named shardings in JAX."""
    evidence = snapshot.parent / "evidence"
    _save_evidence(snapshot, evidence)
    usual = _order(framework_environment, "train", starts=1, rounds=2)
    alone = dataclasses.replace(usual, workload="small_lm", case="tiny_train")
    _agree(alone, state, snapshot, devices=1)
    contenders = tuple(
        dataclasses.replace(
            each,
            name=f"{each.framework}-{strategy}",
            settings={**each.settings, "strategy": strategy},
        )
        for strategy in STRATEGY["strategy"]
        for each in usual.contenders
    )
    order = dataclasses.replace(
        alone, case="tiny_train_x4", contenders=contenders, duel_run="1" * 16
    )
    document = _agree(order, state, snapshot, devices=4)
    tolerances = SMALL_LM.tolerances(SMALL_LM.cases["tiny_train_x4"])
    assert {"loss", "loss_trace", "gradient"} <= set(tolerances)
    for contender in contenders:
        with (
            np.load(evidence / f"{contender.framework}-alone.npz") as one,
            np.load(evidence / f"{contender.name}.npz") as four,
        ):
            for name, tolerance in tolerances.items():
                scale = np.abs(one[name]).max()
                assert np.abs(four[name] - one[name]).max() <= tolerance * scale, contender.name
    _check_sharing(
        {each["name"]: each["starts"][-1]["measured"] for each in document["contenders"]}
    )
    manifests = [each["effective"]["manifest"] for each in document["contenders"]]
    assert len({each["threads"] for each in manifests}) == 1, "also of four processes on two CPUs"
    _check_parity(document["contenders"])
    flops = [each["effective"]["products"]["flops"] for each in document["contenders"]]
    assert flops == [{"float32": document["duel"]["flops_per_step"]}] * len(flops)


def _check_parity(contenders: list[dict[str, Any]]) -> None:
    """Each side reads as its arm asked, and holds as much as the other side of its strategy."""
    sides = [
        ParitySide(
            name=each["name"],
            framework=each["framework"],
            settings=each["settings"],
            manifest=each["effective"]["manifest"],
        )
        for each in contenders
    ]
    read = {side.name: side.manifest.get("strategy") for side in sides}
    assert read == {side.name: side.settings["strategy"] for side in sides}
    for jax, torch in zip(sides[::2], sides[1::2], strict=True):
        assert jax.manifest["state_held"] == torch.manifest["state_held"]
        assert compare_sides(jax, torch, "tuned").violations == ()


def _check_sharing(measured: dict[str, dict[str, float]]) -> None:
    exchanged = {name: each["communicated_bytes"] for name, each in measured.items()}
    held = {name: each["state_bytes_per_device"] for name, each in measured.items()}
    # Gradients and the loss; then parameters as well; then activations.
    assert exchanged["jax-data"] == exchanged["torch-data"] > 0
    for framework in ("jax", "torch"):
        assert exchanged[f"{framework}-fully_sharded"] > 1.5 * exchanged[f"{framework}-data"]
        assert exchanged[f"{framework}-tensor"] not in (0, exchanged[f"{framework}-data"])
    # Every parameter and its momentum, in float32; then a fourth of each; then of some.
    shapes = SMALL_LM_NETWORK.shapes(SMALL_LM.cases["tiny_train_x4"]).values()
    whole = 2 * 4 * sum(map(math.prod, shapes))
    assert held["jax-data"] == held["torch-data"] == whole
    assert held["jax-fully_sharded"] == held["torch-fully_sharded"] == whole / 4
    assert held["jax-tensor"] == held["torch-tensor"]
    assert whole / 4 < held["jax-tensor"] < whole


@pytest.mark.parametrize(
    ("wrong", "status", "words"),
    [
        ("nn.SiLU()", "ok", "logits"),
        ("nn.Softplus(beta=float('nan'))", "numerics", "not finite"),
    ],
    ids=["another activation", "NaN"],
)
def test_a_broken_side_gets_no_ratio(
    framework_environment: Environments, snapshot: Path, wrong: str, status: str, words: str
) -> None:
    file = snapshot / "benchcore" / "workloads" / "mlp" / "in_torch.py"
    source = file.read_text()
    assert "nn.ReLU()" in source
    file.write_text(source.replace("nn.ReLU()", wrong))
    state = open_state(snapshot.parent / "state")
    document, ratio = _judge(_order(framework_environment, "infer", **SHORT), state, snapshot)
    assert document["contenders"][1]["status"] == status
    assert not ratio["counts"]
    assert words in ratio["reason"]


def test_other_inputs_on_one_side_void_the_ratio(
    framework_environment: Environments, state: State, snapshot: Path
) -> None:
    """The harness hands the same bytes to both sides; here one side draws with another seed."""
    file = snapshot / "benchcore" / "cell" / "contender.py"
    source = file.read_text()
    line = 'spec.make_arrays(case, order["seed"])'
    assert line in source
    changed = 'spec.make_arrays(case, order["seed"] + (order["framework"] == "torch"))'
    file.write_text(source.replace(line, changed))
    _, ratio = _judge(_order(framework_environment, "infer", **SHORT), state, snapshot)
    assert not ratio["counts"]
    assert "different inputs" in ratio["reason"]
