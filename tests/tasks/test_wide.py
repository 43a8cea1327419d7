"""Many histories are looked at side by side, and nothing else comes of it than one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from local_slurm import LocalSlurm

from benchcore.errors import UserError
from benchcore.sites import Analysis, Site
from benchcore.slurm.allocation import Allocation
from benchcore.store.suspicions import History, find_one_by_one
from tasks import wide

HERE = Site(name="here", kind="local")


@pytest.fixture(scope="module")
def histories() -> list[History]:
    """Of 40 nights each; every third has a shift."""
    rng = np.random.default_rng(3)
    logs = rng.normal(0.0, 0.01, (wide.ENOUGH_TO_SHARE, 40))
    logs[::3, 25:] += 0.1
    return [(np.exp(each), np.arange(40.0)) for each in logs]


def _site(**asked: object) -> Site:
    nodes = {"partition": "gpu", "cpus": 1, "memory_mb": 900, "minutes": 5, "interface": "lo"}
    analysis = Analysis.model_validate({**nodes, "jobs": 2, **asked})
    return Site(
        name="there", kind="slurm", pools={"h100": Allocation(partition="gpu")}, analysis=analysis
    )


def test_many_are_found_what_one_by_one_is(histories: list[History], tmp_path: Path) -> None:
    found = wide.find_wide(histories, HERE, str(tmp_path))
    assert found == find_one_by_one(histories)
    assert sum(bool(each.shifts) for each in found) > len(histories) // 4


def test_jobs_of_a_slurm_site_find_the_same(
    slurm: LocalSlurm,
    histories: list[History],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    assert wide.find_wide(histories, _site(), str(tmp_path)) == find_one_by_one(histories)
    jobs = slurm.ask("squeue", "-h", "-t", "all", "-n", "deadheat-analysis", "-o", "%i").split()
    assert len(jobs) == 2
    assert slurm.ask("squeue", "-h", "-t", "running,pending", "-n", "deadheat-analysis") == ""


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "wanted a job of site 'there' within 0 s, got none; see squeue"),
        ({"partition": "nowhere"}, "but Slurm says: .*[Ii]nvalid partition.*mend the site's table"),
    ],
    ids=["late", "refused"],
)
def test_jobs_that_do_not_come_are_told(
    slurm: LocalSlurm,
    histories: list[History],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, str],
    words: str,
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(wide, "_START_S", 0.1)
    with pytest.raises(UserError, match=words):
        wide.find_wide(histories, _site(**asked), str(tmp_path))
