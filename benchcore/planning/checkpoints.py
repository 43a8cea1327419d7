"""Checkpoints that users name: state dicts of torchvision's models, taken into the state folder.

A pickle is never read by this process: torch reads it, as weights only, in its own environment.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from packaging.version import Version
from safetensors import SafetensorError, safe_open

from benchcore.cell.proof.case import list_proof_cases
from benchcore.environments.build import list_environments
from benchcore.errors import MOST_SHOWN, UserError, and_more, show
from benchcore.planning.catalog import check_checkpoint, load_spec
from benchcore.program import read_arrays
from benchcore.state import State

_PICKLES = (".pth", ".pt")
_ENDINGS = (".safetensors", *_PICKLES)
_SAFE_TORCH = Version("2.6")
"""Before it, `weights_only=True` did not keep a pickle from running code (CVE-2025-32434)."""
_TIMEOUT_S = 600
_ROOM = 64 * 2**20
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_READ_PICKLE = """
import json, sys
import numpy, torch

def report(**found):
    print("\\n" + json.dumps(found))
    raise SystemExit

def describe(value):
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_cpu
    if not plain:
        return [type(value).__name__, []]
    return [str(value.dtype).removeprefix("torch."), list(value.shape)]

source, target = sys.argv[1:]
wanted = json.load(sys.stdin)
try:
    loaded = torch.load(source, map_location="cpu", weights_only=True)
except Exception as error:
    words = str(error).rpartition("WeightsUnpickler error: ")[2] or type(error).__name__
    for advice in ("Please use", "Check the documentation"):
        words = words.partition(advice)[0]
    report(refused=" ".join(words.split()))
if not isinstance(loaded, dict) or not all(type(name) is str for name in loaded):
    report(refused=f"it holds a {type(loaded).__name__}, not arrays by name")
found = {name: describe(value) for name, value in loaded.items()}
if {name: found.get(name) for name in wanted} == wanted:
    numpy.savez(target, **{name: loaded[name].detach().numpy() for name in wanted})
report(found=found)
"""

Described = Mapping[str, tuple[str, tuple[int, ...]]]
"""Name -> type and shape of an array."""


def take_checkpoint(path: Path, workload: str, cases: Iterable[Any], state: State) -> str:
    """Store a checkpoint's weights where the measured layer can read them; the file's SHA-256.

    Each array must have the name, shape and type that the workload's own have in all of the cases,
    and be finite; the counters `num_batches_tracked`, which nothing reads, are left out. Raises
    UserError for any other file, and stores nothing of it.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise UserError(
            f"wanted a checkpoint that ends in {', '.join(_ENDINGS)}, got {show(path)}; save the "
            "model's state_dict() as one"
        )
    wanted = _describe_model(workload, cases)
    _check_file(path, wanted)
    try:
        state.checkpoints.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".part-", dir=state.checkpoints) as scratch:
            copy = Path(scratch, "checkpoint")
            sha256 = _copy(path, copy)
            kept = _weights(state, sha256)
            if kept.exists():
                _check_arrays(_describe(_load(kept)), wanted, path)
                return sha256
            if path.suffix.lower() in _PICKLES:
                arrays = _read_pickle(copy, wanted, path, _find_torch(path, state))
            else:
                arrays = _read_safetensors(copy, wanted, path)
            _check_finite(arrays, path)
            np.savez(part := copy.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
            part.rename(kept)
    except OSError as error:
        raise UserError(
            f"wanted to copy the checkpoint {show(path)} to {show(state.checkpoints)}, but "
            f"{error.strerror or error}; free space or set its permissions, and rerun the command"
        ) from error
    return sha256


def find_weights(state: State, sha256: str) -> Path:
    """The weights that `take_checkpoint` stored. Raises UserError where there are none."""
    kept = _weights(state, sha256)
    if not kept.exists():
        raise UserError(
            f"wanted the weights of checkpoint {sha256:.12} in {show(state.checkpoints)}, got "
            "none; name its file with --checkpoint once more"
        )
    return kept


def _weights(state: State, sha256: str) -> Path:
    return state.checkpoints / f"{sha256}.npz"


def _describe_model(workload: str, cases: Iterable[Any]) -> Described:
    """The arrays of the whole model, which the cases must have, too."""
    check_checkpoint(workload, "0" * 64)
    spec = load_spec(workload)
    assert spec.state_dict_shapes is not None
    proofs = list_proof_cases(spec, from_checkpoint=True).values()
    model, *others = (spec.state_dict_shapes(case) for case in (*proofs, *cases))
    if any(other != model for other in others):
        raise UserError(
            f"wanted a case of {workload!r} that has the whole model's weights, got one with fewer "
            "layers or tokens, which no checkpoint fits; choose another case"
        )
    return {name: ("float32", shape) for name, shape in model.items()}


def _describe(arrays: Mapping[str, np.ndarray]) -> Described:
    return {name: (str(array.dtype), array.shape) for name, array in arrays.items()}


def _check_file(path: Path, wanted: Described) -> None:
    try:
        size, regular = path.stat().st_size, path.is_file()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"wanted a checkpoint, got {show(path)}: {why}; name another") from error
    if not regular:
        raise UserError(
            f"wanted a checkpoint, got {show(path)}, which is not a file; name the file itself"
        )
    if size == 0:
        raise UserError(f"wanted a checkpoint, got {show(path)}, which is empty; fetch it again")
    _check_size(size, wanted, path)


def _check_size(size: int, wanted: Described, path: Path) -> None:
    """Refuse a size that no checkpoint of this model has: of the file, or unpacked."""
    exact = 4 * sum(math.prod(shape) for _, shape in wanted.values())
    if size > 4 * exact + _ROOM:
        raise UserError(
            f"wanted a state dict of about {exact / 1e6:.0f} MB, got {show(path)} with "
            f"{size / 1e6:.0f} MB; save the model's state_dict() alone"
        )


def _copy(source: Path, target: Path) -> str:
    """Returns the SHA-256 of the copy: the file may change later, the copy does not."""
    sha = hashlib.sha256()
    with source.open("rb") as stream, target.open("wb") as copy:
        while chunk := stream.read(2**20):
            sha.update(chunk)
            copy.write(chunk)
    return sha.hexdigest()


def _read_safetensors(copy: Path, wanted: Described, path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(copy, framework="numpy") as archive:
            slices = {name: archive.get_slice(name) for name in archive.keys()}  # noqa: SIM118
            found = {name: _describe_slice(each) for name, each in slices.items()}
            _check_arrays(found, wanted, path)
            return {name: archive.get_tensor(name) for name in wanted}
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, str(error)) from error


def _describe_slice(each: Any) -> tuple[str, tuple[int, ...]]:
    code = str(each.get_dtype())
    return _DTYPES.get(code, code.lower()), tuple(each.get_shape())


def _find_torch(path: Path, state: State) -> str:
    """The Python of the newest torch environment that was built."""
    built = [each for each in list_environments(state) if "torch" in each.packages]
    able = [each for each in built if Version(each.packages["torch"]) >= _SAFE_TORCH]
    if not able:
        raise UserError(
            f"{show(path)} is a pickle, which only torch {_SAFE_TORCH} or newer reads safely, and "
            "no environment has it yet; build one with `deadheat environments torch`, or save the "
            "state dict as .safetensors"
        )
    return max(able, key=lambda each: Version(each.packages["torch"])).python


def _read_pickle(copy: Path, wanted: Described, path: Path, python: str) -> dict[str, np.ndarray]:
    if zipfile.is_zipfile(copy):
        try:
            with zipfile.ZipFile(copy) as archive:
                _check_size(sum(each.file_size for each in archive.infolist()), wanted, path)
        except zipfile.BadZipFile as error:
            raise _unreadable(path, str(error)) from error
    target = copy.with_suffix(".torch.npz")
    command = [python, "-I", "-c", _READ_PICKLE, str(copy), str(target)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(wanted),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unreadable(path, f"torch did not end within {_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise _unreadable(path, f"torch ended with {done.returncode}: {done.stderr[-100:]}")
    answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    if "refused" in answer:
        raise _unreadable(path, f"torch refused it: {answer['refused']}")
    found = {name: (dtype, tuple(shape)) for name, (dtype, shape) in answer["found"].items()}
    _check_arrays(found, wanted, path)
    return _load(target)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_arrays(path)
    except (ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{show(path)} is broken: {error}; remove it and rerun the command"
        ) from error


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"wanted a state dict in {show(path)}, but {ascii(why[: 2 * MOST_SHOWN])[1:-1]}; save "
        "the model's state_dict() again, best as .safetensors"
    )


def _check_arrays(found: Described, wanted: Described, path: Path) -> None:
    """Every array once, and no other but the counters of batch norms."""
    counters = {
        name.removesuffix("running_mean") + "num_batches_tracked"
        for name in wanted
        if name.endswith(".running_mean")
    }
    lacking = [name for name in wanted if name not in found]
    unknown = sorted(found.keys() - wanted.keys() - counters)
    wrong = [name for name in wanted if name in found and found[name] != wanted[name]]
    problems = [
        f"{what} {names[0][:MOST_SHOWN]!r}{and_more(len(names) - 1)}"
        for what, names in (("lacks", lacking), ("has the unknown", unknown))
        if names
    ]
    if wrong:
        (dtype, shape), (came, came_shape) = wanted[wrong[0]], found[wrong[0]]
        problems.append(
            f"has {wrong[0]!r} as {came[:MOST_SHOWN]!r} of shape {came_shape}, not as {dtype} of "
            f"{shape}{and_more(len(wrong) - 1)}"
        )
    if problems:
        raise UserError(
            f"wanted the state dict of this model, got {show(path)}, which {', '.join(problems)}; "
            "name a checkpoint of this model, in float32"
        )


def _check_finite(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
    if broken:
        raise UserError(
            f"wanted finite weights, got NaN or infinity in "
            f"{broken[0]!r}{and_more(len(broken) - 1)} of {show(path)}; name another checkpoint"
        )
