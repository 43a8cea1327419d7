"""`deadheat bisect`: a slow JAX among others is found by real starts, and named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.exceptions import ParameterTypeError
from result_documents import spool_ceiling
from slow_environments import make_slow
from typer.testing import CliRunner

from benchcore.environments.contents import list_files
from benchcore.environments.package_locks import Lock
from benchcore.environments.version_requests import Release, Request, parse_request
from benchcore.errors import UserError
from benchcore.experiments.changes.bisect import BisectRequest, Candidates
from benchcore.experiments.changes.dependency_moves import EnvironmentPair
from benchcore.protocol import EnvironmentRecord
from benchcore.state import open_state
from flows.bisect import bisect
from flows.cli.bisect import print_bisection
from flows.cli.main import app

COMMAND = ["bisect", "jax", "--workload", "matmul", "--case", "tiny_op", "--json"]
VERSIONS = ("1.1", "1.2")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["--good", "1", "--bad", "nonsense"], "wanted a version such as"),
        (["--good", "2.0", "--bad", "1.0"], "wanted a good version that is older"),
        (
            ["--good", "1.0", "--bad", "2.0", "--looks", "1"],
            "wanted increasing numbers of starts from 2",
        ),
        (["--good", "1.0", "--bad", "2.0", "--case", "none"], "no case 'none'"),
        (["--good", "1.0", "--bad", "2.0", "--device", "abacus"], "no device 'abacus'"),
        (["--good", "1.0", "--bad", "2.0", "--event", "7"], "no event 7"),
        (["--good", "1.0", "--bad", "2.0", "--metric", "charm"], "no metric 'charm' is tracked"),
        (["--good", "a.lock", "--bad", "2.0", "--dependencies"], "wanted two versions, or two loc"),
        (["--good", "a.lock", "--bad", "b.lock"], "wanted two versions, or two locks and --depen"),
        (["--good", "a.lock", "--bad", "b.lock", "--dependencies"], "wanted a lock, such as"),
    ],
)
def test_bad_input_is_reported_before_anything_is_measured(
    changes: list[str], words: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, [*COMMAND, *changes, "--state", str(tmp_path)])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
    assert not list(tmp_path.glob("campaigns/*"))


def _publish(built: Mapping[str, EnvironmentRecord], patched: pytest.MonkeyPatch) -> None:
    """Let the index have versions of ours, each with its environment, and let one package after
    the other be moved from 1.1 to 1.2."""

    def resolve(request: Request, *given: object, **named: object) -> Release:
        version = str(request.version)
        return Release(
            framework="jax",
            version=version,
            role="pinned",
            python=Path(built[version].python),
            python_version=built[version].python_version,
        )

    def build(pair: EnvironmentPair, moved: frozenset[str], *given: object) -> EnvironmentRecord:
        return built["+".join(sorted(moved)) or "1.1"]

    old, new = ({"jax": "1.1", "numpy": version, "flax": version} for version in VERSIONS)
    pair = EnvironmentPair(
        release=resolve(parse_request("jax==1.2")),
        like=Lock(text="", packages={}, build="cpu"),
        old=old,
        new=new,
        accelerator="cpu",
    )
    candidates = Candidates(versions=VERSIONS, python="3")
    patched.setattr("benchcore.running.plans.resolve", resolve)
    patched.setattr(
        "benchcore.running.duels.provision",
        lambda release, *given, **named: built[release.version],
    )
    patched.setattr(
        "benchcore.experiments.changes.bisect.find_candidates", lambda *given: candidates
    )
    patched.setattr("benchcore.experiments.changes.dependencies.compare_ends", lambda *given: pair)
    patched.setattr(
        "benchcore.experiments.changes.dependencies.make_refusal_check",
        lambda pair: lambda moved: None,
    )
    patched.setattr("benchcore.experiments.changes.dependencies.build", build)


@pytest.mark.provisions
def test_the_version_that_is_slower_is_found_by_real_starts(
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    prefect_api: None,
    forked_contenders: None,
) -> None:
    """Of two versions: the second one does its work a hundred times over; and of the packages
    that differ between them, whichever environment has the new flax."""
    real = framework_environment("jax")
    built = {"1.1": replace(real, key="1.1")}
    for each in ("1.2", "numpy", "flax+numpy", "flax"):
        slow = make_slow(tmp_path / each, Path(real.python), "jax")
        if each == "numpy":
            next((tmp_path / each).rglob("sitecustomize.py")).unlink()
            list_files(tmp_path / each)
        built[each] = replace(real, key=each, python=str(slow))
    _publish(built, monkeypatch)
    spool_ceiling(open_state(tmp_path / "state"))
    monkeypatch.setattr("benchcore.experiments.changes.pairs._list_ceilings", lambda *given: ())
    # Few starts, so that a wide bound is what they can show.
    more = ["--good", "1.1", "--bad", "1.2", "--looks", "3", "--bound", "0.5", "--profile", "ci"]
    more += ["--dependencies", "--state", str(tmp_path / "state")]
    done = run_here(*COMMAND, *more)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    pairs = [
        (each["purpose"], each["old"], each["new"], each["verdict"]) for each in answer["rounds"]
    ]
    assert json.loads(Path(answer["record"]).read_text())["summary"] == answer["summary"]
    if answer["verdict"] == "unknown":
        assert (done.returncode, answer["culprits"]) == (1, [])
        pytest.skip(f"others used this machine: {answer['reason']}")
    assert done.returncode == 0, done.stderr
    (culprit,) = answer["culprits"]
    assert culprit["version"] == "1.2"
    assert culprit["low"] > 1.5
    _check_dependencies(answer)
    assert answer["summary"].startswith("1.2 takes ")
    assert (culprit["before"], culprit["undecided"]) == ("1.1", [])
    assert pairs == [("ends", "1.1", "1.2", "different"), ("verify", "1.1", "1.2", "different")]


def _check_dependencies(answer: dict[str, Any]) -> None:
    (found,) = answer["dependencies"]
    assert [each["package"] for each in found["moves"]] == ["numpy", "flax"]
    pairs = [(each["purpose"], each["old"], each["new"]) for each in found["rounds"]]
    if found["verdict"] == "unknown" or len(pairs) < 3:  # others used this machine by then
        return
    assert pairs[0] == ("ends", "old", "flax+numpy")
    (culprit,) = found["culprits"]
    assert "flax" in culprit["packages"]
    assert culprit["low"] > 1.5
    if culprit["packages"] == ["flax"]:
        assert pairs[1:3] == [("search", "old", "numpy"), ("verify", "numpy", "flax+numpy")]
        assert culprit["manner"] in ("alone", "undecided")
        assert "flax makes a step take " in answer["summary"]


def test_the_tables_show_versions_before_packages_with_intervals_and_end_with_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    step = {"purpose": "ends", "starts": 5, "verdict": "different", "ratio": 0.6}
    old, new = {"package": "jaxlib", "old": "1.0", "new": "2.0"}, "jax+jaxlib"
    packages = {
        "moves": [old],
        "differences": [],
        "refused": [],
        "lost": ["old against jax: disturbed"],
        "summary": "jaxlib and jax make a step take 0.6 times as long",
        "rounds": [{**step, "old": "old", "new": new, "low": 0.58, "high": 0.62}],
    }
    found = {
        "versions": ["1.0", "2.0"],
        "rounds": [{**step, "old": "1.0", "new": "2.0", "low": 0.55, "high": 0.66}],
        "lost": [],
        "dependencies": [packages],
        "summary": f"2.0 takes 0.6 times as long as 1.0. {packages['summary']}",
        "record": "bisections/one.json",
    }
    print_bisection(found)
    lines = capsys.readouterr().out.splitlines()
    at = [
        next(row for row, line in enumerate(lines) if text in line)
        for text in ("0.55 to 0.66", "0.58 to 0.62", "a start does not count", "2.0 takes 0.6")
    ]
    assert at == sorted(at)
    assert lines[-1] == "Record: bisections/one.json"


def test_the_flow_of_the_deployment_reports_its_finding_or_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_api: None
) -> None:
    monkeypatch.setenv("DEADHEAT_STATE", str(tmp_path))
    question = {"framework": "jax", "workload": "matmul", "case": "tiny_op", "return_state": True}
    with pytest.raises(ParameterTypeError, match="case"):
        bisect(**{**question, "case": "../tiny_op", "return_state": False}, good="1.0", bad="2.0")
    refused = bisect(**question, good="2.0", bad="1.0")
    assert refused.is_failed() and "a good version that is older" in str(refused.message)
    unknown = bisect(**{**question, "case": "none"}, good="1.0", bad="2.0")
    assert unknown.is_failed() and "no case 'none'" in str(unknown.message)

    orders: list[BisectRequest] = []
    step = {"purpose": "ends", "old": "1.0", "new": "2.0", "starts": 5, "reason": "", "ratio": 1.1}
    of_package = {"rounds": [{**step, "verdict": "same", "low": 0.9, "high": 1.2}]}
    found: dict[str, Any] = {
        "verdict": "found",
        "summary": "2.0 takes 1.1 times as long",
        "rounds": [{**step, "verdict": "different", "low": 1.05, "high": 1.15}],
        "dependencies": [of_package],
    }
    monkeypatch.setattr(
        "tasks.experiment_runs.run_bisection",
        lambda order, state, measurer: orders.append(order) or found,
    )
    more: dict[str, Any] = {"dependencies": True, "metric": "process_peak_bytes"}
    done = bisect(**question, good="1.0", bad="2.0", looks=[3, 6], **more)
    assert done.is_completed() and done.message == found["summary"]
    assert (orders[0].looks, orders[0].dependencies) == ((3, 6), True)
    assert (orders[0].target.metric, orders[0].target.bound) == ("process_peak_bytes", 0.04)
    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(any_=["bisection"])
        tables = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    table = max(tables, key=lambda each: str(each.created))
    assert [row["verdict"] for row in json.loads(str(table.data))] == ["different", "same"]
    found["verdict"] = "unknown"
    assert bisect(**question, good="1.0", bad="2.0").is_failed()
