"""Duels that train on data sets: one loader, the same bytes for both, and what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from duel_orders import (
    LEARNER,
    LEARNER_SPEC,
    add_workload,
    make_contender,
    make_dataset,
    make_order,
    run_order,
)
from image_folders import write_digits

from benchcore.cell.loader.epochs import list_tolerances, seen_tolerances
from benchcore.planning.datasets.dataset import Dataset
from benchcore.planning.datasets.image_folder import read_image_folder
from benchcore.protocol import DATA_MODES, DuelOrder
from benchcore.running.duel_process import ConductorFailedError
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.duels import manifest_frame
from benchcore.store.frames.epochs import list_epochs
from benchcore.store.frames.ratios import read_sides
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.verdict.duel.parity import compare_sides
from benchcore.workloads.mobilenet_v3_small.spec import SPEC as MOBILENET
from benchcore.workloads.resnet50.spec import SPEC as RESNET50
from data_checks.check import read_frames
from data_checks.suites import run_checks

_NUM_VAL = 6


def test_only_gradients_may_differ_more_on_user_images() -> None:
    own = {"loss": 1e-5, "loss_trace": 1e-3, "gradient": 1e-3, "travel": 1e-3, "running_mean": 1e-5}
    wider = seen_tolerances("fp32_ieee", own)
    assert wider == {"pixels": 1e-6, "labels": 1e-9, "gradient": 1e-2, "travel": 1e-1}
    assert seen_tolerances("fp32_ieee", {"gradient": 3e-2})["gradient"] == 3e-2  # as it was
    assert set(seen_tolerances("bf16", {"loss": 1e-2})) == {"pixels", "labels"}


def test_an_untrained_network_with_units_near_zero_has_tolerances_of_its_own() -> None:
    case = RESNET50.cases["tiny_train"]
    assert RESNET50.tolerances(case)["update"] == 1e-3
    of_images = list_tolerances(RESNET50, case)
    assert of_images["update"] == of_images["gradient"] == 5e-2
    assert of_images["loss"] == RESNET50.tolerances(case)["loss"]
    assert of_images["pixels"] == 1e-6
    assert list_tolerances(MOBILENET, case)["travel"] == 2e-1


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """4 batches of 2 and one image that remains; 6 images to validate on."""
    root = tmp_path_factory.mktemp("images")
    folder = write_digits(root / "digits", train=3, val=2, classes=3)
    return read_image_folder(folder, root / "kept")


@pytest.fixture
def snapshot(snapshot: Path) -> Path:
    add_workload(snapshot, "learner", LEARNER_SPEC, LEARNER)
    return snapshot


def _order(images: Dataset, *modes: str, **changes: Any) -> DuelOrder:
    contenders = [
        make_contender(f"c{number}", settings={"compile": mode})
        for number, mode in enumerate(modes or ("nhwc", "nchw"))
    ]
    of_duel = {key: changes.pop(key) for key in ("starts", "duel_run") if key in changes}
    return make_order(
        *contenders,
        workload="learner",
        case="train",
        rounds=3,
        dataset=make_dataset(images, **changes),
        **{"starts": 1, **of_duel},
    )


def _break(snapshot: Path, file: str, old: str, new: str) -> None:
    path = snapshot / "benchcore" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _marks(state: State) -> list[tuple[str, str]]:
    engine = open_database(state.database_url)
    report = ingest_spool(engine, state)
    assert not report.rejected
    found = run_checks(read_frames(engine, "test"))
    return [(mark.expectation, mark.reason) for mark in found.failed_checks]


def test_both_sides_get_the_same_bytes_in_every_start_layout_and_mode(
    images: Dataset, state: State, snapshot: Path
) -> None:
    digests, losses = set[str](), set[tuple[float, ...]]()
    for number, mode in enumerate(DATA_MODES):
        order = _order(images, mode=mode, starts=2, duel_run=f"{number:016}")
        document = run_order(order, state, snapshot)
        assert document["duel"]["case"] == "epochs_b2_32px"
        assert document["duel"]["dataset"]["mode"] == mode
        for contender in document["contenders"]:
            assert contender["status"] == "ok"
            assert contender["effective"]["manifest"]["data_path"] == mode
            for start in contender["starts"]:
                assert [each["steps"] for each in start["blocks"]] == [4, 4, 4]
                assert [each["epoch"] for each in start["epochs"]] == [0, 1, 2]
                assert {each["correct"] for each in start["epochs"]} == {_NUM_VAL}
                assert {each["gross_mj"] for each in start["epochs"]} == {None}
                digests.add(start["inputs_sha256"])
                losses.add(tuple(each["loss"] for each in start["epochs"]))
    assert len(digests) == 1
    ((first, second, third),) = losses
    assert len({first, second, third}) == 3, "every epoch has crops of its own"
    assert [name for name, _ in _marks(state)] == []


def test_waiting_is_counted_only_if_images_are_decoded_while_the_clock_runs(
    images: Dataset, state: State, snapshot: Path
) -> None:
    _break(
        snapshot,
        "cell/loader/server.py",
        '            arrays["images"][place] = ',
        '            threading.Event().wait(0.02)\n            arrays["images"][place] = ',
    )
    for number, mode in enumerate(DATA_MODES):
        document = run_order(_order(images, mode=mode, duel_run=f"{number:016}"), state, snapshot)
        for contender in document["contenders"]:
            (start,) = contender["starts"]
            for block, epoch in zip(start["blocks"], start["epochs"], strict=True):
                if mode == "end-to-end":
                    assert 0.02e9 < epoch["wait_ns"] < block["elapsed_ns"]
                else:
                    assert epoch["wait_ns"] == 0


def test_other_bytes_on_one_side_void_the_duel(
    images: Dataset, state: State, snapshot: Path
) -> None:
    _break(
        snapshot,
        "cell/loader/server.py",
        '            arrays["labels"][place] = label',
        '            arrays["labels"][place] = label\n'
        "            if layout == 'NCHW' and split == 'train' and of_epoch[1] == 2:\n"
        '                arrays["images"][place] ^= 1',
    )
    run_order(_order(images), state, snapshot)
    assert ("same inputs", "contenders worked on 2 different inputs, not 1") in _marks(state)


def test_each_start_of_training_to_a_target_has_a_seed_that_both_sides_share(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, target_accuracy=0.5, starts=3), state, snapshot)
    sides = [each["starts"] for each in document["contenders"]]
    assert [[start["seed"] for start in side] for side in sides] == [[7, 8, 9]] * 2
    digests, others = ([start["inputs_sha256"] for start in side] for side in sides)
    assert digests == others
    assert len(set(digests)) == 3
    orders = {tuple(epoch["loss"] for epoch in start["epochs"]) for start in sides[0]}
    assert len(orders) == 3, "every seed has an order and crops of its own"
    assert document["duel"]["dataset"]["target_accuracy"] == 0.5
    assert [name for name, _ in _marks(state)] == []


def test_a_side_with_another_seed_is_void(images: Dataset, state: State, snapshot: Path) -> None:
    _break(
        snapshot,
        "cell/contender.py",
        'Path(order["loader_folder"]), order["seed"])',
        'Path(order["loader_folder"]), 7 if order["settings"]["compile"] == "nchw" '
        'else order["seed"])',
    )
    document = run_order(_order(images, target_accuracy=0.5, starts=2), state, snapshot)
    agree = {row["quantity"]: row["agrees"] for row in document["equivalence"]}
    assert not agree["pixels"]
    assert ("same inputs", "contenders worked on 2 different inputs, not 1") in _marks(state)


def test_seeds_that_change_nothing_void_the_duel(
    images: Dataset, state: State, snapshot: Path
) -> None:
    _break(snapshot, "cell/processes/launch.py", '"seed": self.seed,', '"seed": self._order.seed,')
    run_order(_order(images, target_accuracy=0.5, starts=2), state, snapshot)
    assert ("inputs of each seed", "2 seeds gave 1 different inputs") in _marks(state)


def test_a_side_that_misreads_batches_is_void(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, "nhwc", "dark"), state, snapshot)
    assert [each["status"] for each in document["contenders"]] == ["ok", "ok"]
    agree = {row["quantity"]: row["agrees"] for row in document["equivalence"]}
    assert agree == {"loss": True, "pixels": False, "labels": True}
    assert any("'pixels' differs" in reason for _, reason in _marks(state))


def test_training_that_is_not_the_proven_step_is_refused(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, "nhwc", "half"), state, snapshot)
    assert [each["status"] for each in document["contenders"]] == ["ok", "numerics"]
    reason = document["contenders"][1]["failure"]["reason"]
    assert "the training that is timed is not the one that is proven" in reason


def test_batches_that_are_prepared_before_the_clock_runs_are_refused(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, "nhwc", "early"), state, snapshot)
    assert [each["status"] for each in document["contenders"]] == ["ok", "numerics"]
    reason = document["contenders"][1]["failure"]["reason"]
    assert "a batch is not sent to the device as the loader gave it" in reason


def test_another_data_mode_on_one_side_voids_the_pair(
    images: Dataset, state: State, snapshot: Path
) -> None:
    _break(
        snapshot,
        "cell/contender.py",
        'dataset["mode"]\n',
        'dataset["mode"] if order["settings"]["compile"] == "nhwc" else "device-resident"\n',
    )
    run_order(_order(images), state, snapshot)
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    sides = read_sides(manifest_frame(engine, "test"))
    parity = compare_sides(*sides.values(), "default")
    assert "data path 'end-to-end' on c0, 'device-resident' on c1" in parity.violations


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '        channel.send({"end": True})',
            "        os._exit(1)",
            "the loader closed the connection",
        ),
        (
            '        channel.send({"end": True})',
            "        threading.Event().wait()",
            "no batch came from the loader for 1 s",
        ),
        (
            '            arrays["labels"][place] = label',
            "            raise OSError('disk gone')",
            "the loader failed: OSError: disk gone",
        ),
        ("        self._socket.listen()", "        raise OSError('no room')", "no room"),
    ],
    ids=["dies", "hangs", "cannot read", "never listens"],
)
def test_a_loader_that_fails_leaves_no_result(
    images: Dataset, state: State, snapshot: Path, old: str, new: str, words: str
) -> None:
    _break(snapshot, "cell/loader/server.py", "import json\n", "import json\nimport os\n")
    _break(snapshot, "cell/loader/server.py", old, new)
    with pytest.raises(ConductorFailedError, match=words):
        run_order(_order(images, batch_timeout_s=1.0), state, snapshot)
    assert not list(state.spool.glob("*/*.json"))


def test_a_loader_that_does_not_start_leaves_no_result(
    images: Dataset, state: State, snapshot: Path
) -> None:
    with pytest.raises(ConductorFailedError, match="does not start"):
        run_order(_order(images, loader_python="/nowhere/python"), state, snapshot)


def test_the_loader_serves_the_others_after_a_contender_dies_in_an_epoch(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, "killed", "nhwc"), state, snapshot)
    broken, healthy = document["contenders"]
    assert (broken["status"], broken["failure"]["stage"]) == ("killed", "epoch")
    assert healthy["status"] == "ok"
    assert len(healthy["starts"][0]["epochs"]) == 3


def test_epochs_are_rows_with_time_wait_loss_and_accuracy(
    images: Dataset, state: State, snapshot: Path
) -> None:
    document = run_order(_order(images, starts=2), state, snapshot)
    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    rows = list_epochs(engine, "test")
    assert [(row["name"], row["epoch"]) for row in rows] == [
        (name, epoch) for name in ("c0", "c1") for epoch in range(3)
    ]
    for row in rows:
        assert (row["dataset"], row["mode"], row["num_val"]) == ("digits", "end-to-end", _NUM_VAL)
        assert (row["num_starts"], row["accuracy"], row["gross_mj"]) == (2, 1.0, None)
        assert 0 < row["wait_share"] < 1
    starts = document["contenders"][0]["starts"]
    assert rows[0]["loss"] == starts[0]["epochs"][0]["loss"]
    if rows[0]["num_degraded"] in (0, 2):
        times = [start["blocks"][0]["elapsed_ns"] for start in starts]
        assert rows[0]["epoch_ns"] == sum(times) / 2
        assert rows[0]["examples_per_s"] == pytest.approx(8 / (sum(times) / 2) * 1e9, rel=0.5)
