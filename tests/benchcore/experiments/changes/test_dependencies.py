"""Environments between two locks: what moves, what the resolver allows, and what is measured."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from package_index import Index
from result_documents import JAX, make_document

from benchcore.errors import UserError
from benchcore.experiments.changes import dependency_moves
from benchcore.experiments.changes.dependencies import (
    draft_pair,
    list_other_differences,
    summarise_packages,
)
from benchcore.experiments.changes.dependency_moves import (
    EnvironmentPair,
    compare_ends,
    make_refusal_check,
)
from benchcore.experiments.changes.pairs import BisectTarget
from benchcore.experiments.rounds import RunContext
from benchcore.planning.profiles import load_profile
from benchcore.protocol import EnvironmentRecord
from benchcore.verdict.confirmation.dependency_search import (
    Attribution,
    PackageCulprit,
    find_path,
)
from benchcore.verdict.confirmation.version_search import Bisection
from benchcore.verdict.samples import Judgement

CONTEXT = RunContext(profile=load_profile("ci"), site="local", python=None)
NONE = frozenset[str]()


@pytest.fixture
def index(index: Index, monkeypatch: pytest.MonkeyPatch) -> Index:
    """JAX 1.1 needs the jaxlib of its own version, which needs scipy."""
    for name in ("numpy", "nvidia-ml-py", "flax", "optax", "jaxlib", "scipy"):
        index.publish(name, "1.0", "1.1")
    for version in ("1.0", "1.1"):
        index.needs["jax", version] = f"jaxlib=={version}"
    index.needs["jaxlib", "1.1"] = "scipy"
    monkeypatch.setattr(dependency_moves, "find_accelerator", lambda: "cpu")
    return index


@pytest.fixture
def pair(index: Index, tmp_path: Path) -> EnvironmentPair:
    """From a lock to a newer one."""
    names = ("flax", "jax", "jaxlib", "numpy", "nvidia-ml-py", "optax")
    old, new = tmp_path / "old.lock", tmp_path / "requirements.lock"
    old.write_text("".join(f"{name}==1.0 \\\n    --hash=sha256:0\n" for name in names))
    new.write_text("".join(f"{name}==1.1\n" for name in names if name != "optax") + "optax==1.0\n")
    return compare_ends("jax", (str(old), str(new)), CONTEXT)


def test_dependencies_that_differ_move_with_the_framework_last(pair: EnvironmentPair) -> None:
    """`scipy` is in neither lock, and the new jaxlib requires it."""
    assert pair.moves == ("jaxlib", "numpy", "flax", "nvidia-ml-py", "jax")
    assert pair.lock(NONE).packages == pair.old
    moved = pair.lock(frozenset(["numpy"])).packages
    assert moved == {**pair.old, "numpy": "1.1"}
    assert pair.release_of(frozenset(["jax"])).version == "1.1"


def test_moves_that_the_resolver_refuses_are_reported_and_made_together(
    pair: EnvironmentPair,
) -> None:
    path = find_path(pair.moves, make_refusal_check(pair))
    assert path.moves == (("numpy",), ("flax",), ("nvidia-ml-py",), ("jaxlib", "jax"))
    refused = dict(path.refused)
    assert refused == {
        "jaxlib": "jax<=1.0 requires jaxlib==1.0",
        "jax after flax, numpy, nvidia-ml-py": "jax>=1.1 requires jaxlib==1.1",
    }


def test_a_refusal_names_the_requirement_without_the_platforms_where_it_holds(
    index: Index, pair: EnvironmentPair
) -> None:
    """PyTorch requires its CUDA packages only on some platforms; uv names these at length."""
    platforms = " or ".join(
        f"(platform_machine == '{machine}' and sys_platform == 'linux')"
        for machine in ("aarch64", "x86_64", "AMD64", "arm64", "riscv64")
    )
    index.needs["optax", "1.0"] = f"numpy==1.0; {platforms}"
    assert make_refusal_check(pair)(frozenset(["numpy"])) == "optax<=1.0 requires numpy==1.0"


@pytest.mark.parametrize("reason", ["", "nothing else changed after the last culprit"])
def test_a_package_that_cannot_change_alone_is_summarised_with_its_requirement(
    reason: str,
) -> None:
    ratio, low, high = map(math.log, (1.37, 1.33, 1.42))
    culprit = PackageCulprit(
        packages=("jaxlib",),
        effect=Judgement(verdict="different", log_ratio=ratio, low=low, high=high, reason=""),
        manner="undecided",
        partners=(),
        reason="it could not be changed alone, as jax==0.10.1 requires jaxlib==0.10.1",
    )
    search = Bisection(verdict="found", reason=reason, culprits=(), rounds=())
    target = BisectTarget(framework="jax", good="1.0", bad="1.1", workload="matmul", case="tiny_op")
    found = Attribution(search=search, culprits=(culprit,))
    summary = (
        "jaxlib makes a step take 1.37 times as long (1.33 to 1.42); it could not be changed "
        "alone, as jax==0.10.1 requires jaxlib==0.10.1"
    )
    assert summarise_packages(found, target) == (f"{summary}; {reason}" if reason else summary)
    pair = dataclasses.replace(culprit, packages=("jaxlib", "jax"))
    both = dataclasses.replace(found, culprits=(pair,))
    assert summarise_packages(both, target).startswith("jaxlib and jax make a step take 1.37 times")
    many = dataclasses.replace(culprit, packages=("cuda-toolkit", "nvidia-nvtx", "triton", "torch"))
    text = summarise_packages(dataclasses.replace(found, culprits=(many,)), target)
    assert text.startswith("4 packages together, from cuda-toolkit to torch, make a step take 1.37")


def test_an_index_that_breaks_is_no_refusal(
    pair: EnvironmentPair, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.broken = True
    monkeypatch.setenv("UV_NO_CACHE", "1")
    with pytest.raises(
        UserError, match="wanted to know whether numpy can be changed, but uv could"
    ):
        make_refusal_check(pair)(frozenset(["numpy"]))


def test_versions_are_ends_too_and_equal_ones_are_refused(index: Index) -> None:
    found = compare_ends("jax", ("1.0", "1.1"), CONTEXT)
    assert (found.old["jax"], found.new["jax"]) == ("1.0", "1.1")
    assert found.moves == ("jaxlib", "jax")
    with pytest.raises(UserError, match="with equal versions"):
        compare_ends("jax", ("1.1", "1.1"), CONTEXT)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "wanted a lock with jax, got"),
        ("torch==2.0\n", "which has 1 packages but not that one"),
        ("jax==one\n", "wanted a lock, such as"),
        (None, "wanted a lock, such as"),
    ],
)
def test_a_file_that_is_no_lock_is_refused(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "requirements.lock"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=words):
        compare_ends("jax", (str(path), str(path)), CONTEXT)


def test_a_pair_is_planned_with_the_old_environment_first(tmp_path: Path) -> None:
    records = []
    for key in ("k1", "k2"):
        python = tmp_path / key / "python"
        python.parent.mkdir()
        python.symlink_to("/usr/bin/env")
        records.append(
            EnvironmentRecord(
                name="jax-1.0",
                key=key,
                lock_sha256="0" * 64,
                python=str(python),
                python_version="3.13.0",
                build="cpu",
                packages={"jax": "1.0"},
            )
        )
    target = BisectTarget(framework="jax", good="1.0", bad="1.1", workload="matmul", case="tiny_op")
    plan = draft_pair(target, records, range(3), CONTEXT)
    again = draft_pair(target, records, range(3), CONTEXT, fresh=True)
    assert [Path(each.python).parent.name for each in plan.releases.values()] == ["k1", "k2"]
    names = [each.name for each in plan.duels[0].contenders]
    assert names == ["jax-jit-1.0", "jax-jit-1.0.twin2"]
    assert again.campaign == f"{plan.campaign}-again"
    assert plan.campaign != draft_pair(target, records[::-1], range(3), CONTEXT).campaign


def test_changed_settings_and_programs_are_examined_first() -> None:
    document = make_document([JAX, dataclasses.replace(JAX, name="new")])
    new = document["contenders"][1]
    new["environment"]["packages"] = {"jax": "0.9.0"}
    new["effective"]["manifest"]["matmul_precision"] = "tf32"
    new["effective"]["versions"] = {"jax": "0.9.0"}
    (first,) = list_other_differences(document)
    assert (first["kind"], first["old"], first["new"]) == ("effective", "ieee", "tf32")
