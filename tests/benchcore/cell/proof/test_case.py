"""What float64 gave is kept for other precisions, and for nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchcore.cell.proof.case import list_proof_cases, save_proof
from benchcore.program import REFERENCE, Arrays


@dataclass(frozen=True, kw_only=True)
class _Case:
    precision: str = "fp32_ieee"
    steps: int = 1


def _make_arrays(case: _Case, seed: int) -> Arrays:
    coarse = case.precision == "tf32"
    return Arrays(params={"weight": np.full(2, seed + coarse)}, inputs={})


_SPEC = SimpleNamespace(
    proofs={"infer": _Case(), "train": _Case(steps=3)},
    checkpoint_proofs=None,
    make_arrays=_make_arrays,
    smooth=lambda case, arrays: arrays,
)


class _CountedProof:
    """Counts what is built; every build gives other evidence."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.built = 0

    def _bind(self, case: _Case, arrays: Arrays) -> Any:
        self.built += 1
        self.weight = arrays.params["weight"]
        found = {"logits": np.array([float(self.built)])}
        return SimpleNamespace(prove=lambda *wait: found, trace=lambda *wait: found)

    def prove(self, **changes: Any) -> float:
        given = {
            "what": "evidence",
            "use_case": "infer",
            "precision": REFERENCE,
            "label": "fp32_ieee",
            "seed": 1,
            "test_images": None,
            "references": str(self._folder / "references"),
            "checkpoint": None,
            "environment": "e1",
            "device": "cpu",
            "path": str(self._folder / "found.npz"),
        }
        runtime = SimpleNamespace(synchronise=None, release=None)
        assert save_proof(_SPEC, {**given, **changes}, self._bind, runtime) == ["logits"]  # type: ignore[arg-type]
        with np.load(self._folder / "found.npz") as stored:
            return float(stored["logits"][0])


def test_the_same_arrays_in_float64_are_computed_once(tmp_path: Path) -> None:
    proof = _CountedProof(tmp_path)
    assert [proof.prove(), proof.prove(), proof.prove(label="bf16")] == [1.0, 1.0, 1.0]
    assert proof.built == 1


def test_a_checkpoint_is_proven_with_a_reference_of_its_own_weights(tmp_path: Path) -> None:
    proof = _CountedProof(tmp_path)
    assert (proof.prove(), list(proof.weight)) == (1.0, [1.0, 1.0])
    np.savez(tmp_path / "kept.npz", weight=np.array([5, 6]))
    order = {"sha256": "a" * 64, "weights": str(tmp_path / "kept.npz")}
    assert (proof.prove(checkpoint=order), list(proof.weight)) == (2.0, [5.0, 6.0])
    assert [proof.prove(), proof.prove(checkpoint=order)] == [1.0, 2.0]


def test_a_checkpoint_is_proven_on_the_cases_of_the_whole_model() -> None:
    whole = SimpleNamespace(proofs={"train": 1}, checkpoint_proofs={"train": 2})
    assert list_proof_cases(whole, from_checkpoint=True) == {"train": 2}
    assert list_proof_cases(whole, from_checkpoint=False) == {"train": 1}
    assert list_proof_cases(_SPEC, from_checkpoint=True) == _SPEC.proofs


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"label": "tf32"},
        {"use_case": "train"},
        {"environment": "e2"},
        {"device": "cuda:0"},
        {"precision": "fp32_ieee"},
        {"what": "parts"},
        {"references": None},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_reference_is_recomputed_if_anything_that_affects_it_changes(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    proof = _CountedProof(tmp_path)
    assert [proof.prove(), proof.prove(**change), proof.prove()] == [1.0, 2.0, 1.0]


def test_only_float64_is_kept(tmp_path: Path) -> None:
    proof = _CountedProof(tmp_path)
    assert [proof.prove(precision="bf16") for _ in range(2)] == [1.0, 2.0]
    assert not (tmp_path / "references").exists()


def test_a_partly_written_reference_is_ignored(tmp_path: Path) -> None:
    proof = _CountedProof(tmp_path)
    proof.prove()
    (kept,) = (tmp_path / "references").iterdir()
    kept.rename(kept.with_suffix(".part"))
    assert proof.prove() == 2.0


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "flipped"])
def test_a_damaged_reference_is_computed_again_and_replaced(tmp_path: Path, cut: bool) -> None:
    proof = _CountedProof(tmp_path)
    proof.prove()
    (kept,) = (tmp_path / "references").iterdir()
    damaged = bytearray(kept.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    kept.write_bytes(damaged[:130] if cut else damaged)
    assert [proof.prove(), proof.prove()] == [2.0, 2.0]
