"""What a failure was: the framework's messages, how the process ended, and the kernel's log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchcore.cell.failures.kernel_log import KernelLog, Xid
from benchcore.cell.failures.status import Cause, ContenderFailedError, find_cause
from benchcore.cell.process import start_contender

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
            process.ask({}, wanted="anything", timeout_s=20.0)
    finally:
        process.close()
    return failed.value


def test_log_lines_of_an_earlier_process_do_not_explain_a_later_failure(tmp_path: Path) -> None:
    log = tmp_path / "jax.log"
    log.write_text("CUDA_ERROR_ILLEGAL_ADDRESS\n")
    failed = _fail(log, "echo the end; exit 3")
    assert (failed.status, failed.cause) == ("crash", "no_result")
    assert failed.traceback == "the end\n"
