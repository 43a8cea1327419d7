"""Ours against others' models: what is ordered, how names are mapped, and what is a failure."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import peers
import pytest
from result_documents import make_document
from short_duels import judge

from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning.catalog import list_workloads, load_spec
from benchcore.protocol import EnvironmentRecord
from benchcore.state import open_state
from benchcore.workloads.vit_b_16.spec import CASES


@pytest.mark.parametrize(
    ("low", "high", "slower"), [(0.01, 0.02, False), (-0.1, 0.1, False), (-0.2, -0.1, True)]
)
def test_ours_is_slower_only_if_the_whole_interval_shows_it(
    low: float, high: float, slower: bool
) -> None:
    ratio: Any = SimpleNamespace(log_ratio=(low + high) / 2, low=low, high=high, num_starts=5)
    assert peers.describe_ratio(ratio)["slower"] is slower


def test_without_an_interval_there_is_no_verdict() -> None:
    ratio: Any = SimpleNamespace(log_ratio=0.5, low=None, high=None, reason="one start")
    with pytest.raises(ValueError, match="one start"):
        peers.describe_ratio(ratio)


def test_each_peer_has_a_workload_and_is_added_to_its_framework_alone(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    for peer in peers.PEERS:
        assert peer.workload in list_workloads()
        folder = peers.add_peer(peer, state)
        (template,) = folder.iterdir()
        assert template.name == f"{peer.framework}.toml"
        assert f'packages = ["{peer.package}{peer.versions}", ' in template.read_text()


def test_the_peer_runs_in_the_same_environment_as_ours(tmp_path: Path) -> None:
    bare = resolve(parse_request("stdlib"), find_interpreters())
    release = dataclasses.replace(bare, framework="torch", version="2.15.0")
    record = EnvironmentRecord(
        name="e", key="k", lock_sha256=None, python="python", python_version="3.13.0",
        build="", packages={},
    )  # fmt: skip
    order = peers.make_order(peers.PEERS[0], release, record, case="infer_b1", starts=3, rounds=4)
    ours, theirs = order.contenders
    assert order.workload == "peer_resnet50"
    assert (ours.settings["side"], theirs.settings["side"]) == ("ours", "timm")
    assert ours.environment == theirs.environment == record
    assert (order.limits.starts, order.limits.rounds) == (3, 4)


def test_ours_is_compiled_against_hooks_that_cannot_be(tmp_path: Path) -> None:
    (opacus,) = (peer for peer in peers.PEERS if peer.package == "opacus")
    assert opacus.case is not None
    bare = resolve(parse_request("stdlib"), find_interpreters())
    release = dataclasses.replace(bare, framework="torch", version="2.15.0")
    record = EnvironmentRecord(
        name="e", key="k", lock_sha256=None, python="python", python_version="3.13.0",
        build="", packages={},
    )  # fmt: skip
    order = peers.make_order(opacus, release, record, case=opacus.case, starts=3, rounds=4)
    assert [dict(each.settings) for each in order.contenders] == [
        {"compile": "default", "side": "ours"},
        {"compile": "none", "side": "opacus"},
    ]


def test_rows_that_were_not_measured_again_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "RESULTS", tmp_path)
    first = {"workload": "resnet50", "case": "infer_b1", "peer": "timm 1.0.31", "ratio": 1.0}
    other = {**first, "workload": "vit_b_16"}
    assert peers.merge_rows([first]) == [first]
    (tmp_path / "peers.json").write_text(json.dumps([first, other]))
    again = {**first, "peer": "timm 1.0.32", "ratio": 1.1}
    assert peers.merge_rows([again]) == [other, again]


def test_disturbed_blocks_count_only_with_a_note() -> None:
    document = make_document()
    for contender in document["contenders"]:
        for block in (block for start in contender["starts"] for block in start["blocks"]):
            block["telemetry"]["foreign_cpu_share"] = 0.9
    assert judge(document).log_ratio is None
    assert judge(peers.as_if_undisturbed(document)).log_ratio is not None
    assert judge(document).log_ratio is None


def test_every_array_of_the_vision_transformer_gets_a_name_of_its_own() -> None:
    rename = _load_rename()
    names = list(load_spec("vit_b_16").make_arrays(CASES["tiny_infer"], 0).params)
    renamed = [rename("vit_b_16", name) for name in names]
    assert len(set(renamed)) == len(names)
    kept = ("encoder", "self_attention", "ln_", "in_proj", "heads", "class_token")
    assert not [name for name in renamed if any(word in name for word in kept)]
    block = "encoder.layers.encoder_layer_3."
    assert rename("vit_b_16", block + "self_attention.in_proj_weight") == "blocks.3.attn.qkv.weight"
    assert rename("vit_b_16", block + "mlp.3.bias") == "blocks.3.mlp.fc2.bias"
    assert rename("resnet50", "layer1.0.conv1.weight") == "layer1.0.conv1.weight"


def _load_rename() -> Any:
    """Of a module that imports torch, which is not here: only its names are needed."""
    path = Path(peers.__file__).parent / "peer_models" / "in_torch.py"
    spec = importlib.util.spec_from_file_location("peer_in_torch", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"torch": mock.MagicMock()}):
        spec.loader.exec_module(module)
    return module.rename
