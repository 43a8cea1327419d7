"""Ours against others, in one duel each: timm's models and public Flax ports of the same name, and
per-sample gradients against Opacus and a plain `jit(vmap(grad))`.

Both sides of a duel are the same framework at the same version, in one environment that has the
peer added. Exit code 1 if ours is slower with its whole 95 % interval.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from one_duel import RESULTS, describe_machine, store_results
from short_duels import judge

from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.templates import template_folder
from benchcore.environments.version_requests import Release, parse_request, resolve
from benchcore.planning import matrix
from benchcore.planning.profiles import Arm, Match, Profile
from benchcore.planning.snapshot import hash_inside, list_inside_files, take_snapshot
from benchcore.protocol import DuelLimits, DuelOrder, EnvironmentRecord
from benchcore.running.duel_process import run_duel
from benchcore.state import State, open_state
from benchcore.store.incoming.documents import read_document
from benchcore.verdict.duel.ratios import Ratio

_MODELS = Path(__file__).parent / "peer_models"


@dataclass(frozen=True)
class Peer:
    """Another's code, which needs the package `package`, against our side of the workload."""

    framework: Literal["jax", "torch"]
    workload: str
    package: str
    versions: str = ""
    case: str | None = None
    """The only case that the peer can run; without it, the one that `--case` names."""
    compile: str | None = None
    """How ours is compiled, if not as users run it who change nothing."""


PEERS = (
    Peer("torch", "resnet50", "timm"),
    Peer("torch", "vit_b_16", "timm"),
    Peer("jax", "resnet50", "jax-resnet"),
    Peer("jax", "resnet50", "transformers", "<5"),  # 5 has no Flax
    Peer("jax", "vit_b_16", "transformers", "<5"),
    # DP-SGD. Opacus' hooks can't be compiled.
    Peer("torch", "mnist_cnn", "opacus", case="per_sample_grad_b32", compile="default"),
    Peer("jax", "mnist_cnn", "optax", case="per_sample_grad_b32"),
)
"""Tried and left out: flaxmodels 0.1.3 (its ResNet branches on an array: no longer to be traced),
vit-flax 0.0.3 (wants `flax.nn`, which is gone), jimm 0.0.1 (empty), image-classification-jax 0.1.4
(other networks by these names), equimo and eqxvision (Equinox). Of MobileNetV3 and EfficientNet
no Flax port was found, and timm's have other names for the same weights."""


def main() -> None:
    """Play every duel, print the table and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", default="infer_b8")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--busy", action="store_true", help="count disturbed blocks too")
    parser.add_argument("--only", help="package: timm, jax-resnet, transformers, opacus, optax")
    parser.add_argument("--state", type=Path, default=Path("state"))
    parser.add_argument("--python", help="interpreter version, such as 3.13")
    options = parser.parse_args()
    state = open_state(options.state)
    rows = []
    for peer in PEERS:
        if options.only in (None, peer.package):
            rows.append(_play(peer, options, state))
            print({key: rows[-1][key] for key in ("workload", "peer", "ratio", "low", "high")})
    store_results("peers", merge_rows(rows))
    sys.exit(any(row["slower"] for row in rows))


def merge_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stored rows that were not measured again, and then the new ones."""
    path = RESULTS / "peers.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    again = {_identify(row) for row in rows}
    return [row for row in stored if _identify(row) not in again] + rows


def _identify(row: dict[str, Any]) -> tuple[str, str, str]:
    """A peer keeps its row when its version changes."""
    return row["workload"], row["case"], row["peer"].split()[0]


def _play(peer: Peer, options: argparse.Namespace, state: State) -> dict[str, Any]:
    release = resolve(parse_request(peer.framework), find_interpreters(), python=options.python)
    record = provision(
        release, state, accelerator="cpu", report=print, templates=add_peer(peer, state)
    )
    case = peer.case or options.case
    order = make_order(
        peer, release, record, case=case, starts=options.starts, rounds=options.rounds
    )
    snapshot = _add_workload(peer, state)
    document = read_document(run_duel(order, state, snapshot, lambda event: None))
    for contender in document["contenders"]:
        if contender["status"] != "ok":
            sys.exit(f"{contender['name']}: {contender['status']}: {contender['failure']}")
    if options.busy:
        document = as_if_undisturbed(document)
    ratio = judge(document)
    return {
        "workload": peer.workload,
        "case": case,
        "peer": f"{peer.package} {record.packages[peer.package]}",
        "framework": f"{peer.framework} {release.version}",
        **describe_ratio(ratio),
        "busy": options.busy,
        **describe_machine(document),
    }


def describe_ratio(ratio: Ratio) -> dict[str, Any]:
    """The peer's time as a multiple of ours: above 1 = ours is faster; `slower` is a failure."""
    if ratio.log_ratio is None or ratio.low is None or ratio.high is None:
        raise ValueError(f"wanted an interval, got none: {ratio.reason}; give it 2 starts or more")
    return {
        "ratio": math.exp(ratio.log_ratio),
        "low": math.exp(ratio.low),
        "high": math.exp(ratio.high),
        "starts": ratio.num_starts,
        "slower": ratio.high < 0.0,
    }


def as_if_undisturbed(document: dict[str, Any]) -> dict[str, Any]:
    """Without what was noticed of others on the machine: rows that rest on it are called busy."""
    document = copy.deepcopy(document)
    for contender in document["contenders"]:
        for block in (block for start in contender["starts"] for block in start["blocks"]):
            block["telemetry"] = dict.fromkeys(block["telemetry"])
    return document


def add_peer(peer: Peer, state: State) -> Path:
    """Templates of environments that hold the peer too."""
    folder = state.root / "peers" / f"{peer.framework}-{peer.package}"
    return add_packages(peer.framework, [f"{peer.package}{peer.versions}"], folder)


def add_packages(framework: str, packages: Sequence[str], folder: Path) -> Path:
    """The framework's template with these packages too, written to this folder of templates."""
    folder.mkdir(parents=True, exist_ok=True)
    template = (template_folder() / f"{framework}.toml").read_text(encoding="utf-8")
    listed = "".join(f'"{each}", ' for each in packages)
    added = template.replace("packages = [", f"packages = [{listed}", 1)
    (folder / f"{framework}.toml").write_text(added, encoding="utf-8")
    return folder


def make_order(
    peer: Peer, release: Release, record: EnvironmentRecord, *, case: str, starts: int, rounds: int
) -> DuelOrder:
    """Ours first, then the peer's; both as users run them who change nothing (jit, and eager), if
    the peer asks for nothing else."""
    settings = {"compile": "jit" if peer.framework == "jax" else "none"}
    arm = Arm(name=peer.framework, request=peer.framework, settings=settings)
    match = Match(workload=peer.workload, case=case, arms=(arm, arm), expected_s=starts * 30)
    limits = DuelLimits(starts=starts, rounds=rounds, warm_up_limit_s=2.0)
    profile = Profile(name="peers", matches=(match,), limits=limits)
    campaign = f"peers-{peer.workload}-{peer.package}-{case}-{hash_inside()[:8]}"
    plan = matrix.make_plan(profile, {peer.framework: release}, campaign=campaign, site="local")
    order = matrix.make_order(
        plan,
        plan.duels[0],
        {peer.framework: record},
        harness_version=version("deadheat"),
        snapshot=hash_inside(),
    )
    sides = zip(order.contenders, ("ours", peer.package), strict=True)
    own = settings if peer.compile is None else {"compile": peer.compile}
    contenders = tuple(
        dataclasses.replace(
            contender, settings={**(own if side == "ours" else settings), "side": side}
        )
        for contender, side in sides
    )
    return dataclasses.replace(order, workload=f"peer_{peer.workload}", contenders=contenders)


def _add_workload(peer: Peer, state: State) -> Path:
    """A snapshot is read-only: a copy of it that has one workload more."""
    snapshot, folder = take_snapshot(state.snapshots), state.root / "peers" / "snapshot"
    shutil.rmtree(folder, ignore_errors=True)
    for file in list_inside_files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(snapshot / file, folder / file)
    workload = folder / "benchcore" / "workloads" / f"peer_{peer.workload}"
    shutil.copytree(_MODELS, workload)
    spec = f"from benchcore.workloads.{peer.workload}.spec import *\nWORKLOAD = {peer.workload!r}\n"
    (workload / "spec.py").write_text(spec)
    return folder


if __name__ == "__main__":
    main()
