"""What a failure was: the framework's messages, how the process ended, and the kernel's log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchcore.cell.failures.kernel_log import KernelLog, Xid
from benchcore.cell.failures.oom_kills import OomKills
from benchcore.cell.failures.status import Cause, ContenderFailedError, find_cause
from benchcore.cell.processes import process as process_module
from benchcore.cell.processes.process import start_contender

_BOARD = "00000000:3B:00.0"
_FAULT = "NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=python3, Ch 00000008, MMU Fault"


@pytest.mark.parametrize(
    ("text", "reported", "cause"),
    [
        ("XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an", "signal", "illegal_address"),
        ("INTERNAL: Autotuning failed for HLO: %fusion", "exception", "autotuning"),
        ("RESOURCE_EXHAUSTED: Out of memory while trying", "exception", "out_of_memory"),
        ("Autotuning failed: RESOURCE_EXHAUSTED: no room", "exception", "out_of_memory"),
        ("CUDA_ERROR_LAUNCH_FAILED: unspecified", "exception", "cuda_error"),
        ("CUDNN_STATUS_EXECUTION_FAILED", "exception", "cuda_error"),
        ("CUDNN_STATUS_SUCCESS", "exception", "exception"),
        ("killed by SIGSEGV", "signal", "signal"),
        ("ended with exit code 0", "no_result", "no_result"),
        ("ValueError: wanted a device", "exception", "exception"),
    ],
)
def test_the_framework_message_classifies_a_failure_first(
    text: str, reported: Cause, cause: Cause
) -> None:
    assert find_cause("crash", text, reported) == cause


@pytest.mark.parametrize(
    ("status", "reported"),
    [("timeout", "timeout"), ("numerics", "not_finite"), ("environment", "import")],
)
def test_a_precise_status_is_not_overridden_by_messages(status: str, reported: Cause) -> None:
    assert find_cause(status, "CUDA_ERROR_ILLEGAL_ADDRESS", reported) == reported


@pytest.mark.parametrize(("number", "cause"), [(31, "signal"), (79, "hardware"), (95, "hardware")])
def test_a_broken_gpu_is_not_a_software_fault(number: int, cause: Cause) -> None:
    xid = Xid(number=number, pci="0000:3b:00", message="NVRM: Xid")
    assert find_cause("crash", "killed by SIGSEGV", "signal", [xid]) == cause


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "kmsg"
    file.write_text(f"3,1,1,-;{_FAULT} of long ago\n")
    return file


def _write(log: Path, *lines: str) -> None:
    with log.open("a") as stream:
        stream.writelines(f"3,2,2,-;{line}\n" for line in lines)


@pytest.fixture
def opened(log: Path) -> Iterator[KernelLog]:
    kernel_log = KernelLog(_BOARD, log)
    yield kernel_log
    kernel_log.close()


def test_only_xids_of_our_gpu_since_the_last_look_are_read(log: Path, opened: KernelLog) -> None:
    assert opened.read_xids() == []
    _write(log, "usb 1-1: new device", _FAULT, _FAULT.replace("3b", "5e"))
    assert opened.read_xids() == [Xid(number=31, pci="0000:3b:00", message=_FAULT)]
    assert opened.read_xids() == []


def test_without_an_address_the_xids_of_every_gpu_are_read(log: Path) -> None:
    kernel_log = KernelLog(None, log)
    _write(log, _FAULT.replace("3b", "5e"))
    assert [each["pci"] for each in kernel_log.read_xids() or []] == ["0000:5e:00"]
    kernel_log.close()


def test_an_unreadable_log_gives_null_and_not_an_empty_list(tmp_path: Path) -> None:
    """None, not an empty list, which would mean that nothing happened."""
    assert KernelLog(_BOARD, tmp_path / "none").read_xids() is None


def _fail(log: Path, script: str) -> ContenderFailedError:
    """Of a contender whose Python is a script."""
    python = log.with_name("python")
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    process = start_contender(str(python), {}, log)
    try:
        with pytest.raises(ContenderFailedError) as failed:
            process.request({}, wanted="anything", timeout_s=20.0)
    finally:
        process.close()
    return failed.value


def test_log_lines_of_an_earlier_process_do_not_explain_a_later_failure(tmp_path: Path) -> None:
    log = tmp_path / "jax.log"
    log.write_text("CUDA_ERROR_ILLEGAL_ADDRESS\n")
    failed = _fail(log, "echo the end; exit 3")
    assert (failed.status, failed.cause) == ("crash", "no_result")
    assert failed.traceback == "the end\n"


def test_a_contender_that_something_else_kills_is_killed_and_not_out_of_memory(
    tmp_path: Path,
) -> None:
    failed = _fail(tmp_path / "log", "kill -9 $$")
    assert (failed.status, failed.cause) == ("killed", "killed")
    assert failed.reason.startswith("killed by SIGKILL, ")


_CLOSES_ITS_PIPE = f"""
exec {sys.executable} -c 'import os, sys, time; os.close(int(sys.argv[-1])); time.sleep(60)' "$@"
"""


def test_a_contender_that_only_closes_its_pipe_was_not_killed_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "_ENDING_S", 0.2)
    failed = _fail(tmp_path / "log", _CLOSES_ITS_PIPE)
    assert (failed.status, failed.cause) == ("crash", "no_result")
    assert "did not end in 0.2 s" in failed.reason


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    return tmp_path / "groups"


VERSIONS = {
    "version 2": ("0::/job/step\n", "job/step/memory.events", "low 0\noom 1\noom_kill {}\n"),
    "in a container": ("0::/\n", "memory.events", "oom_kill {}\noom_group_kill 0\n"),
    "version 1": (
        "4:memory:/job\n1:cpu:/job\n",
        "memory/job/memory.oom_control",
        "under_oom 0\noom_kill {}\n",
    ),
    "mounted at the top": ("4:memory:/docker/1\n", "memory/memory.oom_control", "oom_kill {}\n"),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_control_group_counts_what_the_kernel_killed(
    version: str, groups: Path, tmp_path: Path
) -> None:
    line, name, content = VERSIONS[version]
    membership = tmp_path / "membership"
    membership.write_text(line)
    counter = groups / name
    counter.parent.mkdir(parents=True)
    counter.write_text(content.format(3))  # those of long ago
    kills = OomKills(membership, groups, tmp_path / "no-log")
    assert kills.include(4242) is False
    counter.write_text(content.format(4))
    assert kills.include(4242) is True


def test_the_kernels_log_names_the_process(log: Path, groups: Path, tmp_path: Path) -> None:
    killed = "Memory cgroup out of memory: Killed process {} (python3) total-vm:221356kB"
    _write(log, killed.format(4242))
    kills = OomKills(tmp_path / "none", groups, log)
    assert kills.include(4242) is False  # that was another process, long ago
    _write(log, killed.format(42420))
    assert kills.include(4242) is False
    _write(log, killed.format(4242))
    assert kills.include(4242) is True
    kills.close()


def test_without_counter_and_log_nobody_knows_why(groups: Path, tmp_path: Path) -> None:
    assert OomKills(tmp_path / "none", groups, tmp_path / "no-log").include(4242) is None


_MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
_IN_GROUP = """
import os, sys
from pathlib import Path
from benchcore.cell.failures.status import ContenderFailedError
from benchcore.cell.processes.process import start_contender

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
process = start_contender(sys.argv[2], {}, Path(sys.argv[3]))
try:
    process.request({}, wanted="anything", timeout_s=20.0)
except ContenderFailedError as failed:
    print(failed.status, failed.cause)
"""


@pytest.mark.skipif(
    not os.access(_MEMORY_GROUPS / "cgroup.procs", os.W_OK), reason="can't make a control group"
)
def test_a_contender_beyond_its_control_groups_memory_is_out_of_memory(tmp_path: Path) -> None:
    group = _MEMORY_GROUPS / f"deadheat-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'bytearray(300 << 20)'\n")
        python.chmod(0o755)
        arguments = [str(group), str(python), str(tmp_path / "log")]
        ran = subprocess.run(
            [sys.executable, "-c", _IN_GROUP, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        group.rmdir()
    assert ran.stdout.split() == ["oom", "out_of_memory"]


def test_a_failure_holds_only_text_that_a_database_stores(tmp_path: Path) -> None:
    """A log may hold any bytes, and the name of a file a lone surrogate."""
    assert _fail(tmp_path / "log", r"printf 'a\0b'; exit 3").traceback == "a\\0b"
    failed = ContenderFailedError("crash", "build", "no file \udcff")
    assert (failed.reason, failed.traceback) == ("no file \\udcff", None)
