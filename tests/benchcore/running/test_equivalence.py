"""The equivalence pass on real frameworks: fair sides pass, and a wrong one is found out."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcore.errors import CampaignIncompleteError
from benchcore.protocol import EnvironmentRecord
from benchcore.running import equivalence
from benchcore.running.equivalence import ProofRequest, ProofSide, proof_subject, prove
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.proofs import list_proofs

pytestmark = pytest.mark.provisions
Environments = Callable[[str], EnvironmentRecord]
Rows = dict[tuple[str, str], dict[str, Any]]


def _wanted(environments: Environments, **changes: Any) -> ProofRequest:
    sides = tuple(
        ProofSide(framework, environments(framework).packages[framework], environments(framework))  # type: ignore[arg-type]
        for framework in ("jax", "torch")
    )
    given = {"workload": "mlp", "precision": "fp32_ieee", "use_cases": ("infer", "train")}
    return ProofRequest(**{**given, **changes}, sides=sides)


def _rows(wanted: ProofRequest, state: State) -> Rows:
    rows = list_proofs(open_database(state.database_url), proof_subject(wanted))
    return {(row["use_case"], row["quantity"]): row for row in rows}


@pytest.fixture(scope="module")
def proven(
    framework_environment: Environments,
    tmp_path_factory: pytest.TempPathFactory,
    forking_ring: Path,
) -> tuple[State, ProofRequest]:
    state = open_state(tmp_path_factory.mktemp("proven"))
    wanted = _wanted(framework_environment, num_seeds=2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(equivalence, "take_snapshot", lambda folder: forking_ring)
        prove(wanted, state, lambda text: None, repeat=False)
    return state, wanted


def test_both_frameworks_are_proven_to_compute_the_same(proven: tuple[State, ProofRequest]) -> None:
    rows = _rows(proven[1], proven[0])
    assert set(rows) == {
        ("infer", "logits"),
        *(("train", each) for each in ("loss", "loss_trace", "gradient", "update", "travel")),
    }
    for row in rows.values():
        assert row["passed"], row["reason"]
        assert row["reference_error"] < 1e-12
        assert 1e-9 < row["a_error"] < 1e-4


def test_a_finished_proof_is_not_repeated(
    proven: tuple[State, ProofRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, wanted = proven
    messages: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            equivalence, "run_proof", lambda *given, **rest: pytest.fail("computed again")
        )
        prove(wanted, state, messages.append, repeat=False)
    assert messages == ["mlp in fp32_ieee was proven before"]
    assert [path.name for path in state.proofs.iterdir() if path.is_dir()] == ["references"]


def test_only_a_document_of_its_own_that_is_refused_stops_a_proof(
    proven: tuple[State, ProofRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, wanted = proven
    old = state.proofs / "0123456789abcdef.json"
    (mine,) = (path for path in state.proofs.glob("*.json"))
    old.write_text('{"rows": [{"oracle_error": 0.1}]}')
    messages: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(equivalence, "run_proof", lambda *given, **rest: mine)
        prove(wanted, state, messages.append, repeat=True)
        assert str(old) in messages[-1] and messages[-1].endswith("delete it")
        patch.setattr(equivalence, "run_proof", lambda *given, **rest: old)
        with pytest.raises(CampaignIncompleteError, match="wanted a proof document"):
            prove(wanted, state, messages.append, repeat=True)
    old.unlink()


def test_an_interrupted_proof_leaves_no_process_and_another_precision_uses_its_references(
    proven: tuple[State, ProofRequest], framework_environment: Environments
) -> None:
    state, _ = proven
    wanted = _wanted(framework_environment, precision="bf16", use_cases=("infer",))
    before = sorted((state.proofs / "references").rglob("*.npz"))

    def interrupt(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prove(wanted, state, lambda text: None, repeat=False, advance=interrupt)
    assert _rows(wanted, state) == {}
    give_up_at = time.monotonic() + 20
    while _processes_of(state):
        assert time.monotonic() < give_up_at
    shares: list[float] = []
    prove(wanted, state, lambda text: None, repeat=False, advance=shares.append)
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert _rows(wanted, state)["infer", "logits"]["passed"]
    assert sorted((state.proofs / "references").rglob("*.npz")) == before
    assert len(before) == 6


def _processes_of(state: State) -> list[str]:
    """Those that have a path of this state folder in their command line."""
    found = subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if str(state.proofs) in line]


def _prove_broken(
    environments: Environments,
    snapshot: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str, str],
    **changes: Any,
) -> Rows:
    """The rows of a pass whose measured layer has one line changed on purpose."""
    file, right, wrong = change
    path = snapshot / "benchcore" / file
    source = path.read_text()
    assert right in source
    path.write_text(source.replace(right, wrong))
    monkeypatch.setattr(equivalence, "take_snapshot", lambda folder: snapshot)
    state = open_state(snapshot.parent / "state")
    wanted = _wanted(environments, **changes)
    prove(wanted, state, lambda text: None, repeat=False)
    return _rows(wanted, state)


def test_a_side_that_computes_coarser_than_its_label_fails(
    framework_environment: Environments, forking_snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = (
        "workloads/mlp/in_jax.py",
        "value = value @ params",
        "value = jax.lax.reduce_precision(value, 8 if value.dtype == jnp.float32 else 11, "
        "10 if value.dtype == jnp.float32 else 52) @ params",
    )
    settings = {"use_cases": ("infer",)}
    rows = _prove_broken(framework_environment, forking_snapshot, monkeypatch, change, **settings)
    row = rows["infer", "logits"]
    assert row["reference_error"] < 1e-12
    assert not row["passed"]
    assert "errs by" in row["reason"] and "jax" in row["reason"]


def test_a_side_that_crashes_is_not_proven_with_a_reason(
    framework_environment: Environments, forking_snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = ("workloads/mlp/in_torch.py", "nn.ReLU()", "nn.NoSuchThing()")
    settings = {"use_cases": ("infer",)}
    rows = _prove_broken(framework_environment, forking_snapshot, monkeypatch, change, **settings)
    (row,) = rows.values()
    assert not row["passed"]
    assert "crash in prove" in row["reason"] and "NoSuchThing" in row["reason"]


def test_the_log_of_a_proof_process_that_dies_is_reported(
    framework_environment: Environments, forking_snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = (
        "cell/proof/run.py",
        "        order, started_at =",
        "        raise OSError('no luck')\n        order, started_at =",
    )
    with pytest.raises(CampaignIncompleteError, match="no luck"):
        _prove_broken(framework_environment, forking_snapshot, monkeypatch, change)
