"""A duel of the real frameworks on a folder of images: from files to losses and accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import copy_inside_ring, ignore_host_load, make_dataset, make_order, run_order
from image_folders import write_digits

from benchcore.planning.catalog import load_spec
from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.datasets.graphs import read_graph
from benchcore.planning.datasets.image_arrays import read_image_arrays
from benchcore.planning.datasets.image_folder import read_image_folder
from benchcore.planning.datasets.texts import read_texts
from benchcore.protocol import ContenderOrder, DatasetOrder, DuelOrder, EnvironmentRecord
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.frames.epochs import list_epochs
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.seeds import list_trainings
from benchcore.workloads.contract import TrainedGraphs, TrainedTexts
from tasks.unfair.framework_servers import FrameworkServers, compile_briefly, fork_contenders

pytestmark = pytest.mark.provisions
Environments = Callable[[str], EnvironmentRecord]

_NUM_VAL = 8


def _make_contender(record: EnvironmentRecord, framework: str, mode: str) -> ContenderOrder:
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


def _order_both(
    environment: Environments,
    workload: str,
    dataset: DatasetOrder,
    *,
    case: str = "train_b32",
    starts: int = 1,
) -> DuelOrder:
    """Two epochs of JAX, and of torch without its compiler."""
    return make_order(
        _make_contender(environment("jax@newest"), "jax", "jit"),
        _make_contender(environment("torch@newest"), "torch", "none"),
        workload=workload,
        case=case,
        starts=starts,
        rounds=2,
        passes=False,
        prepare_timeout_s=300.0,
        block_timeout_s=60.0,
        dataset=dataset,
    )


def _edit(snapshot: Path, name: str, old: str, new: str) -> None:
    file = snapshot / "benchcore" / "workloads" / "vision" / name
    source = file.read_text()
    assert source.count(old) == 1
    file.write_text(source.replace(old, new))


@pytest.fixture(scope="module")
def trained(
    framework_environment: Environments,
    framework_servers: FrameworkServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The document of a duel without dropout, whose draws differ between frameworks, and its rows:
    2 epochs of 2 batches of 16 at 64 pixels. (At 32 the last maps are of one pixel, and gradients
    through norms over a few values have few digits.)"""
    root = tmp_path_factory.mktemp("epochs")
    images = read_image_folder(write_digits(root / "digits", val=2, classes=4), root)
    snapshot, state = root / "snapshot", open_state(root / "state")
    copy_inside_ring(snapshot)
    fork_contenders(snapshot, framework_servers)
    compile_briefly(snapshot)
    _edit(snapshot, "in_jax.py", "compiled(state, given, strength)", "compiled(state, given, off)")
    _edit(snapshot, "in_torch.py", "constructor)(**options)", "constructor)(dropout=0, **options)")
    dataset = make_dataset(images, batch=16, side=64)
    order = _order_both(framework_environment, "mobilenet_v3_small", dataset)
    document = run_order(order, state, snapshot)
    engine = open_database(state.database_url)
    assert not ingest_spool(engine, state).rejected
    rows = list_epochs(engine, order.campaign)
    engine.dispose()
    return document, rows


def test_real_frameworks_learn_the_same_from_the_same_files(
    trained: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    document, _ = trained
    failures = [each["failure"] for each in document["contenders"]]
    assert failures == [None, None]
    assert [each["status"] for each in document["contenders"]] == ["ok", "ok"]
    starts = [start for each in document["contenders"] for start in each["starts"]]
    assert len({start["inputs_sha256"] for start in starts}) == 1
    assert len(document["equivalence"]) == 10
    unlike = [row["quantity"] for row in document["equivalence"] if not row["agrees"]]
    assert unlike == ["dropped"]  # JAX draws what it does not use here; torch draws nothing
    (jax, torch) = ([each["loss"] for each in start["epochs"]] for start in starts)
    assert all(math.isfinite(loss) for loss in jax + torch)
    assert jax[0] == pytest.approx(torch[0], rel=2e-4)
    assert jax == pytest.approx(torch, rel=1e-3)
    assert jax[1] < jax[0]


def _write_steps(root: Path, *, side: int) -> Path:
    """Grey images, 64 to train on and 8 for validation, of three classes by their brightness."""
    draw = np.random.default_rng(0)
    labels = np.arange(72) % 3
    images = (draw.integers(0, 99, (72, side, side)) + 70 * labels[:, None, None]).astype(np.uint8)
    path = root / "steps.npz"
    named = {"x_train": images[:64], "y_train": labels[:64]}
    np.savez(path, x_test=images[64:], y_test=labels[64:], **named)  # type: ignore[arg-type]
    return path


def test_each_seed_has_weights_and_an_order_that_both_sides_share(
    framework_environment: Environments, tmp_path: Path, forking_snapshot: Path
) -> None:
    arrays = read_image_arrays(_write_steps(tmp_path, side=28), tmp_path / "kept")
    state = open_state(tmp_path / "state")
    ignore_host_load(forking_snapshot)
    compile_briefly(forking_snapshot)
    dataset = make_dataset(arrays, batch=16, side=28, target_accuracy=0.3)
    order = _order_both(framework_environment, "mnist_cnn", dataset, starts=2)
    document = run_order(order, state, forking_snapshot)
    assert [each["failure"] for each in document["contenders"]] == [None, None]
    assert [row for row in document["equivalence"] if not row["agrees"]] == []
    jax, torch = (each["starts"] for each in document["contenders"])
    assert [start["seed"] for start in jax] == [start["seed"] for start in torch] == [7, 8]
    inputs = [start["inputs_sha256"] for start in jax]
    assert inputs == [start["inputs_sha256"] for start in torch]
    assert inputs[0] != inputs[1]
    losses = [
        [[each["loss"] for each in start["epochs"]] for start in side] for side in (jax, torch)
    ]
    for one, other in zip(*losses, strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    assert losses[0][0] != pytest.approx(losses[0][1], rel=1e-2), "other weights lose otherwise"
    engine = open_database(state.database_url)
    assert not ingest_spool(engine, state).rejected
    ratio = {"duel_run": order.duel_run, "counts": True, "reason": ""}
    (found,) = list_trainings(engine, order.campaign, [ratio])
    engine.dispose()
    assert [each["seed"] for each in found["seeds"]] == [7, 8]
    assert found["accuracy"]["reason"] == "2 seeds on both sides, at least 5 are needed"
    for side, starts in (("a", jax), ("b", torch)):
        for each, start in zip(found["seeds"], starts, strict=True):
            assert each[side]["accuracy"] == start["epochs"][-1]["correct"] / _NUM_VAL
            reached = [epoch["correct"] >= 0.3 * _NUM_VAL for epoch in start["epochs"]]
            blocks = start["blocks"][: reached.index(True) + 1] if any(reached) else []
            seconds = sum(block["elapsed_ns"] for block in blocks) / 1e9
            assert (each[side]["seconds"] or 0.0) == pytest.approx(seconds)


def test_a_network_for_small_images_learns_from_arrays(
    framework_environment: Environments, tmp_path: Path, forking_snapshot: Path
) -> None:
    """Grey ones, which both sides get with three channels. Its norms differ in validation."""
    arrays = read_image_arrays(_write_steps(tmp_path, side=32), tmp_path / "kept")
    state = open_state(tmp_path / "state")
    compile_briefly(forking_snapshot)
    dataset = make_dataset(arrays, batch=16, side=32)
    order = _order_both(framework_environment, "cifar_resnet", dataset)
    document = run_order(order, state, forking_snapshot)
    assert [each["failure"] for each in document["contenders"]] == [None, None]
    assert [row for row in document["equivalence"] if not row["agrees"]] == []
    jax, torch = (each["starts"][0] for each in document["contenders"])
    assert jax["inputs_sha256"] == torch["inputs_sha256"]
    assert [each["correct"] for each in jax["epochs"]] == [
        each["correct"] for each in torch["epochs"]
    ]
    for epoch, tolerance in enumerate((1e-2, 1e-1)):  # norms and ReLUs amplify what rounding begins
        found, other = (each["epochs"][epoch]["loss"] for each in (jax, torch))
        assert found == pytest.approx(other, rel=tolerance)
    assert jax["epochs"][1]["loss"] < jax["epochs"][0]["loss"]


def _write_texts(root: Path) -> Path:
    """Each class prefers its own words."""
    draw = np.random.default_rng(0)
    for name, first in (("a", 0), ("b", 10)):
        for index in range(48):
            words = [f"w{first + number}" for number in draw.integers(0, 15, 12)]
            path = root / name / f"{index}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(words))
    return root


def _write_graph(root: Path) -> Path:
    """Nodes are near those of their class."""
    draw = np.random.default_rng(0)
    labels = np.arange(96) % 3
    features = draw.standard_normal((96, 12), dtype=np.float32) + labels[:, None]
    edges = np.array([np.arange(96), (np.arange(96) + 3) % 96])
    path = root / "classes.npz"
    root.mkdir(parents=True, exist_ok=True)
    np.savez(path, features=features, edges=edges, labels=labels)
    return path


def _read_tiny(workload: str, root: Path) -> Dataset:
    spec = load_spec(workload)
    assert spec.trains_on is not None
    wanted = spec.trains_on(spec.cases["tiny_train"])
    if isinstance(wanted, TrainedGraphs):
        return read_graph(_write_graph(root), root / "kept", wanted)
    assert isinstance(wanted, TrainedTexts)
    return read_texts(_write_texts(root / "texts"), root / "kept", wanted)


@pytest.mark.parametrize("workload", ["text_classifier", "small_lm", "graph_gcn"])
def test_networks_for_texts_and_graphs_learn_the_same_from_arrays(
    framework_environment: Environments, tmp_path: Path, forking_ring: Path, workload: str
) -> None:
    found = _read_tiny(workload, tmp_path)
    state = open_state(tmp_path / "state")
    dataset = make_dataset(found, batch=16, side=None)
    order = _order_both(framework_environment, workload, dataset, case="tiny_train")
    document = run_order(order, state, forking_ring)
    assert [each["failure"] for each in document["contenders"]] == [None, None]
    assert document["duel"]["case"] == "epochs_b16"
    rows = document["equivalence"]
    assert {"inputs", "labels", "loss", "gradient"} <= {row["quantity"] for row in rows}
    assert [row for row in rows if not row["agrees"]] == []
    jax, torch = (each["starts"][0] for each in document["contenders"])
    assert jax["inputs_sha256"] == torch["inputs_sha256"]
    for one, other in zip(jax["epochs"], torch["epochs"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert abs(one["correct"] - other["correct"]) <= 1
        assert 0 < one["correct"] <= dataset.num_val
    assert jax["epochs"][1]["loss"] < jax["epochs"][0]["loss"]
    assert [start["compilations_in_blocks"] for start in (jax, torch)] == [0, 0]


def test_real_epochs_have_time_waiting_and_accuracy(
    trained: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    document, rows = trained
    assert [(row["framework"], row["epoch"]) for row in rows] == [
        (framework, epoch) for framework in ("jax", "torch") for epoch in range(2)
    ]
    for row in rows:
        assert 0 <= row["wait_share"] < 1
        assert row["epoch_ns"] > 0
        assert row["correct"] in range(_NUM_VAL + 1)
        assert row["accuracy"] == row["correct"] / _NUM_VAL
    for contender in document["contenders"]:
        assert contender["effective"]["manifest"]["data_path"] == "end-to-end"
        (start,) = contender["starts"]
        assert [block["steps"] for block in start["blocks"]] == [2, 2]
        assert start["compilations_in_blocks"] == 0
