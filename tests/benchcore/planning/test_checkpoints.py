"""Checkpoints of users: taken in whole and unchanged, or refused with what was wrong."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duel_orders import make_contender
from safetensors.numpy import save, save_file

from benchcore.errors import UserError
from benchcore.planning import checkpoints
from benchcore.planning.catalog import load_spec, winograd_share
from benchcore.planning.checkpoints import find_weights, take_checkpoint
from benchcore.protocol import EnvironmentRecord
from benchcore.state import State

MODEL = "mobilenet_v3_small"
SPEC = load_spec(MODEL)
CASE = SPEC.cases["tiny_infer"]
COUNTER = "features.0.1.num_batches_tracked"
HEAD = "classifier.3.weight"
ByName = dict[str, np.ndarray]


def _weights(seed: int = 5) -> ByName:
    return dict(SPEC.make_arrays(CASE, seed).params)


def _save(folder: Path, arrays: ByName, name: str = "mine.safetensors") -> Path:
    save_file(arrays, folder / name)
    return folder / name


def _take(path: Path, state: State, workload: str = MODEL) -> str:
    return take_checkpoint(path, workload, [CASE], state)


def _nothing_kept(state: State) -> bool:
    return not state.checkpoints.exists() or list(state.checkpoints.iterdir()) == []


def test_every_array_is_stored_unchanged_and_counters_are_left_out(
    state: State, tmp_path: Path
) -> None:
    arrays = _weights()
    counted = {**arrays, COUNTER: np.array(3, np.int64)}
    sha256 = _take(_save(tmp_path, counted), state)
    with np.load(find_weights(state, sha256), allow_pickle=False) as kept:
        assert set(kept.files) == set(arrays)
        for name, array in arrays.items():
            assert kept[name].dtype == np.float32
            np.testing.assert_array_equal(kept[name], array)
    assert [each.name for each in state.checkpoints.iterdir()] == [f"{sha256}.npz"]


def test_a_file_is_converted_once_whatever_its_name(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _take(_save(tmp_path, _weights()), state)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_read_safetensors", lambda *_: pytest.fail("read again"))
        assert _take(_save(tmp_path, _weights(), "again.SafeTensors"), state) == first
    assert _take(_save(tmp_path, _weights(6)), state) != first


def _without(name: str) -> Callable[[ByName], ByName]:
    return lambda arrays: {key: each for key, each in arrays.items() if key != name}


def _with(name: str, array: np.ndarray) -> Callable[[ByName], ByName]:
    return lambda arrays: {**arrays, name: array}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without(HEAD), f"lacks '{HEAD}'"),
        (_with("extra", np.zeros(3, np.float32)), "has the unknown 'extra'"),
        (_with("extra.num_batches_tracked", np.array(1)), "unknown 'extra.num_batches_tracked'"),
        (
            _with(HEAD, np.zeros((10, 1024), np.float32)),
            rf"has '{HEAD}' as 'float32' of shape \(10, 1024\), not as float32 of \(1000, 1024\)",
        ),
        (_with(HEAD, np.zeros((1000, 1024), np.float16)), "as 'float16' of shape"),
        (_with(HEAD, np.zeros((1000, 1024), np.int64)), "as 'i64' of shape"),
        (_with(HEAD, np.full((1000, 1024), np.nan, np.float32)), f"NaN or infinity in '{HEAD}'"),
        (_with(HEAD, np.full((1000, 1024), np.inf, np.float32)), f"NaN or infinity in '{HEAD}'"),
        (lambda _: {"x" * 5000: np.zeros(2, np.float32)}, "unknown 'x{100}'; name a"),
        (lambda _: dict(load_spec("resnet50").make_arrays(CASE, 1).params), "lacks 'features.0"),
    ],
    ids=["lacking", "extra", "counter", "shape", "half", "integer", "nan", "inf", "long", "other"],
)
def test_a_state_dict_of_another_model_is_refused_and_not_stored(
    state: State, tmp_path: Path, spoil: Callable[[ByName], ByName], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        _take(_save(tmp_path, spoil(_weights())), state)
    assert _nothing_kept(state)


def _bfloat16(folder: Path) -> Path:
    """numpy can't write it: its header over the bytes of float16."""
    content = save(_with(HEAD, np.zeros((1000, 1024), np.float16))(_weights()))
    longer = (int.from_bytes(content[:8], "little") + 1).to_bytes(8, "little")
    path = folder / "half.safetensors"
    path.write_bytes(longer + content[8:].replace(b'"F16"', b'"BF16"', 1))
    return path


def _truncated(folder: Path) -> Path:
    path = _save(folder, _weights())
    path.write_bytes(path.read_bytes()[:-1000])
    return path


def _endless(folder: Path) -> Path:
    path = folder / "huge.safetensors"
    path.touch()
    os.truncate(path, 2**40)
    return path


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.safetensors")
    return folder / "pipe.safetensors"


def _written(name: str, content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def _folder(folder: Path) -> Path:
    (folder / "folder.safetensors").mkdir()
    return folder / "folder.safetensors"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "none.safetensors", "No such file or directory; name another"),
        (lambda folder: folder / f"{'x' * 300}.pth", "File name too long; name another"),
        (_folder, "which is not a file; name the file itself"),
        (_pipe, "which is not a file; name the file itself"),
        (_written("empty.pth", b""), "which is empty"),
        (_written("weights.onnx", b"x"), "wanted a checkpoint that ends in .safetensors, .pth"),
        (_written("noise.safetensors", os.urandom(4096)), "wanted a state dict in .*, but .*eader"),
        (_truncated, "wanted a state dict in .*, but .*; save the"),
        (_bfloat16, f"has '{HEAD}' as 'bfloat16' of shape"),
        (_endless, r"wanted a state dict of about 10 MB, got .* with 1099512 MB"),
        (
            _written("mine.pth", b"x"),
            "a pickle, which only torch 2.6 or newer reads safely, and no",
        ),
    ],
    ids=[
        *("absent", "long", "folder", "pipe", "empty", "ending", "noise", "truncated", "bfloat16"),
        *("huge", "pickle"),
    ],
)
def test_a_file_that_is_not_a_checkpoint_is_refused_and_not_stored(
    state: State, tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        _take(make(tmp_path), state)
    assert _nothing_kept(state)


def test_a_stored_checkpoint_of_another_model_is_refused(state: State, tmp_path: Path) -> None:
    path = _save(tmp_path, _weights())
    _take(path, state)
    with pytest.raises(UserError, match=r"lacks 'conv1\.weight'"):
        take_checkpoint(path, "resnet50", [], state)


@pytest.mark.parametrize("workload", ["matmul", "mlp"])
def test_a_workload_without_trained_weights_takes_no_checkpoint(
    state: State, tmp_path: Path, workload: str
) -> None:
    with pytest.raises(UserError, match=f"torchvision model, got '{workload}'; there are effic"):
        take_checkpoint(_save(tmp_path, _weights()), workload, [], state)


def test_a_case_with_fewer_layers_than_the_model_takes_no_checkpoint(
    state: State, tmp_path: Path
) -> None:
    case = load_spec("vit_b_16").cases["tiny_infer"]
    with pytest.raises(UserError, match="fewer layers or tokens, which no checkpoint fits"):
        take_checkpoint(_save(tmp_path, _weights()), "vit_b_16", [case], state)


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ("resnet50", 25_557_032 + 2 * 26_560),
        ("mobilenet_v3_small", 2_542_856 + 2 * 6_056),
        ("efficientnet_b0", 5_288_548 + 2 * 21_008),
        ("vit_b_16", 86_567_656),
    ],
)
def test_every_measured_and_proven_case_has_the_arrays_of_the_whole_model(
    model: str, numbers: int
) -> None:
    """Parameters, and a mean and a variance a channel that is normalised."""
    cases = load_spec(model).cases
    found = checkpoints._describe_model(model, [cases["infer_b1"], cases["train_b32"]])
    assert sum(math.prod(shape) for _, shape in found.values()) == numbers


@pytest.mark.parametrize("model", ["resnet50", "mobilenet_v3_small", "efficientnet_b0", "vit_b_16"])
def test_a_state_dict_has_the_arrays_that_contenders_are_given(model: str) -> None:
    spec = load_spec(model)
    case = spec.cases["tiny_infer"]
    shapes = {name: array.shape for name, array in spec.make_arrays(case, 0).params.items()}
    assert spec.state_dict_shapes(case) == shapes


def test_a_checkpoint_does_not_change_the_winograd_share() -> None:
    plain = winograd_share("resnet50", "infer_b1")
    assert plain > 0.3
    assert winograd_share("resnet50", "infer_b1+0123456789ab") == plain


class _Trap:
    """A pickle that makes a file as it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return open, (str(self._path), "w")


def _zip_pickle(path: Path, content: bytes) -> None:
    """As `torch.save` lays it out."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def test_an_archive_that_unpacks_to_more_than_a_model_is_refused(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_find_torch", lambda *_: "/bin/false")
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(2**27))
    assert (tmp_path / "bomb.pth").stat().st_size < 2**20
    with pytest.raises(UserError, match=r"wanted a state dict of about 10 MB, got .* with 134 MB"):
        _take(tmp_path / "bomb.pth", state)


@pytest.mark.provisions
@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_runs_none(
    session_state: State,
    framework_environment: Callable[[str], EnvironmentRecord],
    state: State,
    tmp_path: Path,
    zipped: bool,
) -> None:
    _borrow_torch(state, session_state, framework_environment)
    sprung = tmp_path / "sprung"
    content = pickle.dumps({HEAD: _Trap(sprung)}, protocol=2)
    path = tmp_path / "trap.pth"
    if zipped:
        _zip_pickle(path, content)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"torch refused it: .*open"):
        _take(path, state)
    assert not sprung.exists()
    assert _nothing_kept(state)
    code = f"import pickle; pickle.loads({content!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sprung.exists()  # it is a trap


def _borrow_torch(
    state: State, session_state: State, environments: Callable[[str], EnvironmentRecord]
) -> None:
    """The session's environments in a state folder of its own."""
    environments("torch")
    state.environments.rmdir()
    state.environments.symlink_to(session_state.environments)


def test_an_old_torch_reads_no_pickle(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until 2.6 `weights_only` did not keep code from running."""
    record = dataclasses.replace(make_contender("torch").environment, packages={"torch": "2.5.1"})
    newer = dataclasses.replace(record, python="/newer", packages={"torch": "2.10.0+cpu"})
    kept = [record]
    monkeypatch.setattr(checkpoints, "list_environments", lambda _: kept)
    path = _written("mine.pth", b"x")(tmp_path)
    with pytest.raises(UserError, match="no environment has it yet"):
        _take(path, state)
    kept += [newer, dataclasses.replace(newer, packages={"torch": "2.9.0"}, python="/older")]
    assert checkpoints._find_torch(path, state) == "/newer"
