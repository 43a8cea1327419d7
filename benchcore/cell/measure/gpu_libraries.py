"""Versions of NVIDIA's libraries in this process, from the loaded files themselves; and which GPU
CUDA uses.

Not run on a GPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

_DRIVER, _LONGEST_ADDRESS = "libcuda.so.1", 32
_MAPS = Path("/proc/self/maps")
_FILE = re.compile(r"(/\S*/lib(cudnn|cublas|nccl)\.so[.\d]*)$", re.MULTILINE)


def read_versions() -> dict[str, str]:
    """`cudnn`, `cublas` and `nccl` as `9.10.2`, or `not loaded`: frameworks load them when needed.

    `unreadable` stands for a library that does not report its version as documented.
    """
    versions = dict.fromkeys(_READERS, "not loaded")
    try:
        loaded = _FILE.findall(_MAPS.read_text())
    except OSError:  # not Linux
        return versions
    for path, name in loaded:
        try:
            versions[name] = _READERS[name](ctypes.CDLL(path))
        except (OSError, AttributeError):
            versions[name] = "unreadable"
    return versions


def read_pci_address(ordinal: int) -> str | None:
    """The PCI address of the GPU that CUDA calls so in this process, as `0000:3B:00.0`; None where
    CUDA does not report it."""
    device, text = ctypes.c_int(), ctypes.create_string_buffer(_LONGEST_ADDRESS)
    try:
        cuda = ctypes.CDLL(_DRIVER)
        failed = (
            cuda.cuInit(0)
            or cuda.cuDeviceGet(ctypes.byref(device), ordinal)
            or cuda.cuDeviceGetPCIBusId(text, _LONGEST_ADDRESS, device)
        )
    except (OSError, AttributeError):
        return None
    return None if failed else text.value.decode()


def _read_cudnn(library: ctypes.CDLL) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    number = int(library.cudnnGetVersion())
    return _split(number, major=10_000 if number >= 90_000 else 1_000)  # 9.0.0 and later


def _read_cublas(library: ctypes.CDLL) -> str:
    found = []
    for which in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        value = ctypes.c_int()
        library.cublasGetProperty(which, ctypes.byref(value))
        found.append(value.value)
    return ".".join(map(str, found))


def _read_nccl(library: ctypes.CDLL) -> str:
    value = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(value))
    return _split(value.value, major=10_000)  # since 2.9


def _split(number: int, *, major: int) -> str:
    """`91002` with a major unit of 10,000 is 9.10.2."""
    return f"{number // major}.{number % major // 100}.{number % 100}"


_READERS: dict[str, Callable[[ctypes.CDLL], str]] = {
    "cudnn": _read_cudnn,
    "cublas": _read_cublas,
    "nccl": _read_nccl,
}
