"""The local Slurm: real daemons and jobs, nothing beyond this machine, nothing left behind."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_slurm import SLURM_LOCAL, LocalSlurm, need_slurm


def _call(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SLURM_LOCAL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def test_a_job_gets_its_own_gpu_and_appears_in_the_accounting(slurm: LocalSlurm) -> None:
    log = slurm.folder / "job-%j.log"
    words = "echo gpu=$CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME"
    arguments = ("--wait", "--parsable", "--gres=gpu:h100:1", f"--output={log}", f"--wrap={words}")
    job = slurm.run("sbatch", *arguments)
    assert (slurm.folder / f"job-{job}.log").read_text() == "gpu=0 on node01\n"
    states = [slurm.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "state,alloctres")]
    assert states[0].startswith("COMPLETED|") and "gres/gpu=1" in states[0]


def test_the_cluster_has_two_nodes_with_two_gpus_each(slurm: LocalSlurm) -> None:
    nodes = slurm.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %G")
    assert nodes.split("\n") == ["node01 gpu:h100:2", "node02 gpu:h100:2"]
    refused = subprocess.run(
        ["sbatch", "--gres=gpu:h100:3", "--wrap=true"],
        env=slurm.environment,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1 and "Requested node configuration" in refused.stderr


def test_starting_again_changes_nothing(slurm: LocalSlurm) -> None:
    before = slurm.find_daemons()
    again = _call("start", "--folder", str(slurm.folder))
    assert (again.returncode, again.stdout) == (0, "up already\n"), again.stderr
    assert slurm.find_daemons() == before
    status = _call("status", "--folder", str(slurm.folder))
    assert status.returncode == 0
    assert status.stdout.count("-N node") == 2 and "node02 idle" in status.stdout


def test_nothing_listens_beyond_this_machine(slurm: LocalSlurm) -> None:
    listeners = {
        inode: address
        for file in ("tcp", "tcp6")
        for line in Path("/proc/net", file).read_text().splitlines()[1:]
        for address, state, inode in [(line.split()[1], line.split()[3], line.split()[9])]
        if state == "0A"
    }
    ours = {
        listeners[inode]
        for pid in slurm.find_daemons()
        for entry in Path(f"/proc/{pid}/fd").iterdir()
        if (inode := str(entry.readlink()).removeprefix("socket:[").removesuffix("]")) in listeners
    }
    assert len(ours) == 4  # slurmctld, slurmdbd, two slurmd
    assert {address.split(":")[0] for address in ours} == {"0100007F"}


@pytest.fixture
def nobodys_folder() -> Iterator[Path]:
    """A folder that an ordinary user owns, holding the scripts: root's checkout may be private."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the other tests ran as an ordinary one")
    need_slurm()
    folder = Path(tempfile.mkdtemp(prefix="deadheat-"))
    shutil.copytree(SLURM_LOCAL.parent, folder / "scripts")
    shutil.chown(folder, "nobody")
    yield folder
    shutil.rmtree(folder)


def test_an_ordinary_user_can_start_and_stop_a_cluster_completely(nobodys_folder: Path) -> None:
    script = str(nobodys_folder / "scripts" / SLURM_LOCAL.name)

    def call(what: str) -> str:
        arguments = [script, what, "--folder", str(nobodys_folder / "slurm"), "--nodes", "1"]
        done = subprocess.run(
            ["/usr/bin/python3", *arguments, "--gpus", "0"],
            user="nobody",
            group=pwd.getpwnam("nobody").pw_gid,
            extra_groups=[],
            cwd=nobodys_folder,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == (1 if what == "status" else 0), done.stderr
        return done.stdout

    assert call("start").startswith("up in")
    try:
        assert call("start") == "up already\n"
    finally:
        assert call("stop") == "stopped\n"
    assert call("stop") == "down already\n"
    assert "no daemon runs" in call("status")


def test_a_failed_start_has_a_reason_and_leaves_nothing_running(tmp_path: Path) -> None:
    need_slurm()
    (tmp_path / "database" / "mysql").mkdir(parents=True)  # munged runs by then
    failed = _call("start", "--folder", str(tmp_path))
    assert failed.returncode == 2
    assert "mariadbd ended with 1" in failed.stderr and "mysql." in failed.stderr
    assert not LocalSlurm(tmp_path).find_daemons()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["start", "--folder", "/tmp/with space"], "wanted an absolute folder"),
        (["start", "--folder", "/tmp/" + "x" * 80], "at most 80"),
        (["start", "--folder", "/tmp/a\nSlurmUser=root"], "wanted an absolute folder"),
        (["start", "--nodes", "17"], "invalid choice: 17"),
        (["start", "--gpu-type", "h100 File=/dev/sda"], "wanted a GPU type"),
        (["start", "--folder", "/proc/none"], "/proc/none"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], words: str) -> None:
    refused = _call(*arguments)
    assert refused.returncode == 2
    assert words in refused.stderr and "Traceback" not in refused.stderr


def test_without_slurm_the_message_names_what_to_install(tmp_path: Path) -> None:
    bare = {**os.environ, "PATH": str(tmp_path)}
    refused = _call("start", "--folder", str(tmp_path), env=bare)
    assert refused.returncode == 2
    assert "no sbatch" in refused.stderr and "slurm_local.py install` as root" in refused.stderr
    refused = _call("install", env=bare)
    assert refused.returncode == 2 and "installing needs apt-get and root" in refused.stderr


def test_a_missing_slurm_fails_in_ci_and_skips_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install"):
        need_slurm()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install"):
        need_slurm()
