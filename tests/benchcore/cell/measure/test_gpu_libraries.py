"""Versions are read from the libraries that a process has loaded: here, from ones of our own."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from benchcore.cell.measure import gpu_libraries
from benchcore.cell.measure.gpu_libraries import read_pci_address, read_versions

_SOURCE = """
#include <stddef.h>
size_t cudnnGetVersion(void) { return %d; }
int cublasGetProperty(int which, int *value) { *value = 13 - which; return 0; }
int ncclGetVersion(int *value) { *value = 22705; return 0; }
"""


def _compile(folder: Path, name: str, source: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    path = folder / name
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)
    return path


@pytest.mark.parametrize(("number", "cudnn"), [(91002, "9.10.2"), (8907, "8.9.7")])
def test_a_loaded_library_reports_its_version(tmp_path: Path, number: int, cudnn: str) -> None:
    names = ("libcudnn.so.9", "libcublas.so.13", "libnccl.so.2")
    loaded = [_compile(tmp_path, name, _SOURCE % number) for name in names]
    handles = [ctypes.CDLL(str(each)) for each in loaded]
    assert handles
    maps = tmp_path / "maps"
    kept = Path("/proc/self/maps").read_text().splitlines()
    maps.write_text("\n".join(line for line in kept if str(tmp_path) in line))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gpu_libraries, "_MAPS", maps)
        assert read_versions() == {"cudnn": cudnn, "cublas": "13.12.11", "nccl": "2.27.5"}


def test_a_library_that_is_not_loaded_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = dict.fromkeys(("cudnn", "cublas", "nccl"), "not loaded")
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 0 08:01 1 /usr/lib/libc.so.6\n")
    monkeypatch.setattr(gpu_libraries, "_MAPS", tmp_path / "maps")
    assert read_versions() == absent
    monkeypatch.setattr(gpu_libraries, "_MAPS", tmp_path / "no such file")
    assert read_versions() == absent


def test_a_library_without_its_documented_function_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _compile(tmp_path, "libnccl.so.2", "int nothing;")
    (tmp_path / "maps").write_text(f"7f00-7f01 r-xp 0 08:01 1 {path}\n")
    monkeypatch.setattr(gpu_libraries, "_MAPS", tmp_path / "maps")
    assert read_versions()["nccl"] == "unreadable"


_CUDA = """
#include <stdio.h>
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) { *device = 7 + ordinal; return ordinal > 1 ? 101 : 0; }
int cuDeviceGetPCIBusId(char *text, int length, int device) {
    return snprintf(text, length, "0000:%02X:00.0", device) < 0;
}
"""


def test_cuda_names_the_board_that_a_process_computes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _compile(tmp_path, "libcuda.so.1", _CUDA)
    monkeypatch.setattr(gpu_libraries, "_DRIVER", str(driver))
    assert [read_pci_address(each) for each in (0, 1)] == ["0000:07:00.0", "0000:08:00.0"]
    assert read_pci_address(2) is None
    for absent in (tmp_path / "none", _compile(tmp_path, "old.so", "int nothing;")):
        monkeypatch.setattr(gpu_libraries, "_DRIVER", str(absent))
        assert read_pci_address(0) is None
