"""The weights of a checkpoint: from the plan of a duel to the arrays of its contenders."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchcore.cell.building import WeightsUnusableError, put_weights
from benchcore.cell.proof.run import ProofRun
from benchcore.environments.version_requests import Release
from benchcore.errors import UserError
from benchcore.planning.catalog import load_spec
from benchcore.planning.checkpoints import find_weights, take_checkpoint
from benchcore.planning.matrix import Plan, make_plan
from benchcore.planning.profiles import Match, Profile
from benchcore.planning.tracks import Arm
from benchcore.program import Arrays
from benchcore.protocol import EnvironmentRecord, decode_proof_order, encode
from benchcore.running import equivalence, plans
from benchcore.state import State

MODEL = "mobilenet_v3_small"
SPEC = load_spec(MODEL)
CASE = SPEC.cases["tiny_infer"]


def _make_weights() -> dict[str, np.ndarray]:
    return dict(SPEC.make_arrays(CASE, 5).params)


def _record(framework: str) -> EnvironmentRecord:
    return EnvironmentRecord(
        name=framework,
        key=framework * 2,
        lock_sha256=None,
        python=sys.executable,
        python_version="3",
        build="cpu",
        packages={},
    )


def _plan(*weights: str | None) -> Plan:
    releases = {
        each: Release(
            framework=each,  # type: ignore[arg-type]
            version="1.0",
            role="newest",
            python=Path(sys.executable),
            python_version="3",
        )
        for each in ("jax", "torch")
    }
    arms = tuple(Arm(name=each, request=each, settings={}) for each in releases)
    match = Match(workload=MODEL, case="infer_b1", arms=arms, expected_s=1)
    matches = tuple(dataclasses.replace(match, checkpoint=each) for each in weights)
    return make_plan(Profile(name="both", matches=matches), releases, campaign="both", site="local")


def test_the_proof_for_a_duel_with_a_checkpoint_uses_its_weights(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the plan to what each contender must prove."""
    save_file(_make_weights(), tmp_path / "mine.safetensors")
    sha256 = take_checkpoint(tmp_path / "mine.safetensors", MODEL, [CASE], state)
    plan = _plan(None, sha256)
    monkeypatch.setattr(equivalence, "load_environment", lambda _, text, __: _record(text))
    wanted = equivalence.list_campaign_proofs(plan, state)
    assert [each.checkpoint for each in wanted] == [None, sha256]
    assert [equivalence.proof_subject(each).checkpoint for each in wanted] == [None, sha256]
    weights = [None, {"sha256": sha256, "weights": str(find_weights(state, sha256))}]
    for each, expected in zip(wanted, weights, strict=True):
        encoded = encode(equivalence._make_order(each, state, tmp_path, None))
        order, messages = decode_proof_order(encoded), []
        assert encode(order) == encoded
        process: Any = SimpleNamespace(
            request=lambda message, messages=messages, **_: messages.append(message)
        )
        ProofRun(order, tmp_path)._request(process, order.contenders[0], "fp64", "evidence")
        assert [message["checkpoint"] for message in messages[1:]] == [expected]


def test_missing_weights_are_requested_again(state: State) -> None:
    with pytest.raises(UserError, match=r"checkpoint 0123456789ab in .*, got none; name its file"):
        find_weights(state, "0123456789ab" + "c" * 52)


def test_a_plan_without_its_weights_is_not_started(state: State) -> None:
    plan = _plan(None, "f" * 64)
    with pytest.raises(UserError, match=r"checkpoint ffffffffffff in .*, got none; name its file"):
        plans.save_campaign(plan, state)
    assert list(state.campaigns.iterdir()) == []


def _order(path: Path) -> dict[str, str]:
    return {"sha256": "a" * 64, "weights": str(path)}


def test_contenders_get_the_arrays_of_the_checkpoint_and_their_own_inputs(tmp_path: Path) -> None:
    seeded = SPEC.make_arrays(CASE, 1)
    assert put_weights(seeded, None) is seeded
    backwards = dict(reversed(_make_weights().items()))
    np.savez(tmp_path / "kept.npz", **backwards)  # type: ignore[arg-type]
    given = put_weights(seeded, _order(tmp_path / "kept.npz"))
    assert list(given.params) == list(seeded.params)  # sketches go by this order
    assert given.inputs is seeded.inputs
    for name, array in backwards.items():
        np.testing.assert_array_equal(given.params[name], array)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"a": np.zeros(2, np.float32)},
        {"a": np.zeros(3, np.float16)},
        {"a": np.zeros(3, np.float32), "b": np.zeros(1, np.float32)},
        {"a": np.array([{}, {}, {}])},
    ],
)
def test_a_contender_accepts_only_the_weights_of_its_network(tmp_path: Path, params: Any) -> None:
    seeded = Arrays(params={"a": np.ones(3, np.float32)}, inputs={})
    np.savez(tmp_path / "kept.npz", **params)
    with pytest.raises(WeightsUnusableError):
        put_weights(seeded, _order(tmp_path / "kept.npz"))
    with pytest.raises(WeightsUnusableError):
        put_weights(seeded, _order(tmp_path / "gone.npz"))
