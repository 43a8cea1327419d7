"""`deadheat train`: what it refuses, and what it prints of a campaign that was measured."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import run_here
from image_folders import write_digits
from result_documents import make_document, spool_document
from safetensors.numpy import save_file
from typer.testing import CliRunner

from benchcore.errors import UserError
from benchcore.planning.catalog import load_spec
from benchcore.planning.matrix import load_plan
from benchcore.running import plans
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import judge_and_list
from benchcore.verdict.duel.physics import SENTINELS
from flows.cli.main import app

_SIDES = ("--a", "jax==0.10.2", "--b", "torch==2.15.0")


def _train(folder: Path, *options: str, workload: str = "resnet50") -> Any:
    arguments = ["train", workload, "--dataset", str(folder / "[red]pets"), *_SIDES, *options]
    given = [*arguments, "--state", str(folder / "state")]
    return CliRunner().invoke(app, given, catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--batch-size", "9"), "wanted at least one batch of 9 examples to train on, got 8"),
        (("--data-mode", "psychic"), "no data mode 'psychic'"),
        (("--epochs", "0"), "wanted --epochs from 1 to 1000, got 0"),
        (("--pixels", "65"), "wanted --pixels from 32"),
        (("--dataset", "/nowhere"), "has no folder 'train'"),
        (("--dataset", "mnist-5k-graphs"), "has no folder 'train'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    write_digits(tmp_path / "[red]pets", train=4, val=1, classes=2)
    with pytest.raises(UserError, match=words):
        _train(tmp_path, *options)


@pytest.mark.parametrize(
    ("workload", "options", "words"),
    [
        ("matmul", (), "wanted a workload that can train on a data set, got 'matmul'"),
        ("small_lm", (), "wanted texts in train/CLASS"),
        (
            "small_lm",
            ("--pixels", "32"),
            "wanted no --pixels for 'small_lm', which takes no images",
        ),
        ("graph_gcn", (), "wanted an .npz with features"),
        (
            "mnist_cnn",
            ("--pixels", "32"),
            "wanted --pixels 28, all that 'mnist_cnn' takes",
        ),
    ],
)
def test_data_that_a_workload_does_not_take_is_refused(
    tmp_path: Path, workload: str, options: tuple[str, ...], words: str
) -> None:
    write_digits(tmp_path / "[red]pets", train=4, val=1, classes=2)
    with pytest.raises(UserError, match=re.escape(words)):
        _train(tmp_path, *options, workload=workload)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder)


def _rename_class(folder: Path) -> None:
    (folder / "val" / "0").rename(folder / "val" / "elsewhere")


def _break_image(folder: Path) -> None:
    path = folder / "train" / "1" / "000.jpg"
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_remove, "has no folder 'train'"),
        (_rename_class, "wanted classes of val/ that are in train/, got 'elsewhere'"),
        (_break_image, "got 1 broken in"),
    ],
)
def test_a_broken_image_folder_ends_with_code_2_and_no_traceback(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    folder = write_digits(tmp_path / "pets", train=4, val=1, classes=2)
    spoil(folder)
    given = ("--dataset", str(folder), "--batch-size", "4", "--state", str(tmp_path))
    done = run_here("train", "resnet50", *_SIDES, *given)
    printed = " ".join(done.stderr.split())
    assert done.returncode == 2, printed
    assert words in printed
    assert "Traceback" not in printed
    assert not done.stdout


def test_epochs_are_printed_with_the_faster_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_digits(tmp_path / "[red]pets", train=4, val=1, classes=2)

    def measured(run: object, state: State, name: str) -> dict[str, Any]:
        duel, product, copied = plans.load_campaign(state, name).duels
        assert (product.dataset, copied.dataset) == (None, None)
        assert (product.workload, copied.workload) == SENTINELS
        assert (duel.limits.starts, duel.limits.compilations) == (5, 5)
        document = make_document(duel_run=duel.duel_run, campaign=name, rounds=2, starts=5)
        dataset = duel.dataset
        assert dataset is not None
        kept = ("name", "sha256", "num_classes", "num_train", "num_val", "mode", "workers")
        kept += ("target_accuracy",)
        document["duel"]["dataset"] = {key: getattr(dataset, key) for key in kept}
        document["duel"]["stopped_by"] = "max_starts"
        for start in (start for each in document["contenders"] for start in each["starts"]):
            start["epochs"] = [
                {"epoch": epoch, "wait_ns": 1, "loss": 1.5, "correct": 1, "validation_ns": 1}
                | {"gross_mj": None}
                for epoch in range(2)
            ]
            start["seed"] = duel.seed + start["index"]
            start["inputs_sha256"] = f"{start['seed']:064x}"
        spool_document(state.spool, document)
        engine = open_database(state.database_url)
        assert not ingest_spool(engine, state).rejected
        ratios = judge_and_list(engine, name)
        kept: dict[str, Any] = {"campaign": name, "dashboard": "page", "failures": [], "notes": []}
        return {**kept, "ratios": ratios}

    monkeypatch.setattr("flows.cli.in_process.run_flow", measured)
    done = _train(tmp_path, "--batch-size", "4", "--target-accuracy", "0.5")
    assert done.exit_code == 0, done.output
    printed = " ".join(done.output.split())
    assert "Training to an accuracy of 50 %, by seed" in printed
    assert "Until 50 %: a " in printed
    assert "Final accuracies are not shown to be equal within 1 percentage point" in printed
    assert "20260105" in printed
    assert "resnet50 on '[red]pets', 8 images of 2 classes" in done.output
    assert "50.0 % of 2" in done.output
    assert "Verdict:" in done.output


@pytest.mark.parametrize(
    ("options", "starts", "compilations"),
    [
        ((), 3, 3),
        (("--target-accuracy", "0.9"), 5, 5),
        (("--target-accuracy", "0.9", "--seeds", "7"), 7, 7),
        (("--starts", "2"), 2, 3),
    ],
)
def test_a_target_has_five_seeds_that_compile_on_their_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    starts: int,
    compilations: int,
) -> None:
    monkeypatch.setattr("flows.cli.in_process.run_flow", _stop)
    write_digits(tmp_path / "[red]pets", train=4, val=1, classes=2)
    given = ("--batch-size", "4", "--no-ceilings", *options)
    assert _train(tmp_path, *given).exit_code == 0
    (plan,) = (tmp_path / "state" / "campaigns").glob("*/plan.json")
    (duel,) = load_plan(plan).duels
    assert (duel.limits.starts, duel.limits.compilations) == (starts, compilations)
    assert duel.dataset is not None
    assert duel.dataset.target_accuracy == (0.9 if "--target-accuracy" in options else None)


def _stop(run: object, state: object, name: str) -> None:
    """Where measuring would begin."""
    raise typer.Exit


def test_training_begins_with_the_weights_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the point where measuring would begin."""
    monkeypatch.setattr("flows.cli.in_process.run_flow", _stop)
    write_digits(tmp_path / "[red]pets", train=4, val=1, classes=2)
    spec = load_spec("mobilenet_v3_small")
    path = tmp_path / "mobilenet.safetensors"
    save_file(dict(spec.make_arrays(spec.cases["tiny_infer"], 3).params), path)
    options = ("--batch-size", "4", "--checkpoint", str(path), "--no-ceilings")
    assert _train(tmp_path, *options, workload="mobilenet_v3_small").exit_code == 0
    (plan,) = (tmp_path / "state" / "campaigns").glob("*/plan.json")
    (duel,) = load_plan(plan).duels
    assert duel.checkpoint == hashlib.sha256(path.read_bytes()).hexdigest()
    assert duel.dataset is not None
    assert duel.title == f"mobilenet_v3_small train_b32+{duel.checkpoint[:12]} on '[red]pets'"
