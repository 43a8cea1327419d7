"""The lock with hashes that uv makes from an environment's template."""

from __future__ import annotations

import functools
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version

from benchcore.cell.measure import gpu
from benchcore.environments.templates import Template
from benchcore.environments.uv_command import run_uv, run_uv_or_cached
from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError, UserError

Accelerator = Literal["cpu", "cuda"]
_LOCK_TIMEOUT_S = 600
_PROBE_TIMEOUT_S = 15
_CUDA_PACKAGE = re.compile(r"nvidia-.+-cu(\d\d)|jax-cuda(\d\d)-plugin")


@dataclass(frozen=True, kw_only=True)
class Lock:
    """Resolved packages with hashes, without machine paths: same packages, same text."""

    text: str
    packages: dict[str, str]
    build: str
    index_arguments: tuple[str, ...] = ()
    extra: str = ""

    @property
    def sha256(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def lock_release(release: Release, template: Template, accelerator: Accelerator) -> Lock:
    """Resolve the release and its companions to a lock with hashes.

    The CUDA branch has not been run on a GPU. Raises EnvironmentBuildError if the packages have no
    common solution, and UserError if neither the index nor uv's cache answers.
    """
    if accelerator == "cuda":
        return _lock_for_cuda(release, template)
    if not template.cpu_index:
        return _compile(release, template, build="cpu")
    reason = _cpu_index_failure()
    if reason is None:
        try:
            arguments = ("--torch-backend", "cpu")
            return _compile(release, template, build="cpu index", index_arguments=arguments)
        except (EnvironmentBuildError, UserError):
            reason = "the CPU index could not provide this release"
    return _compile(release, template, build=f"registry default; {reason}")


class UnresolvableError(EnvironmentBuildError):
    """The resolver found no solution for these versions."""


def lock_pinned(release: Release, template: Template, like: Lock, pins: Mapping[str, str]) -> Lock:
    """A lock of the same kind as `like`, with the versions of `pins` for every package it needs.
    Raises UnresolvableError if they conflict, else as `lock_release`."""
    return _compile(
        release,
        template,
        build=like.build,
        extra=like.extra,
        index_arguments=like.index_arguments,
        pins=pins,
    )


def parse_lock(text: str) -> dict[str, str]:
    """Name and version of every package in a lock."""
    pins = re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def _lock_for_cuda(release: Release, template: Template) -> Lock:
    """A build for the newest CUDA that the driver supports; for any where no driver is, such as on
    a login node. Not run on a GPU."""
    driver = gpu.driver_cuda()
    refused: list[str] = []
    for lock in _list_cuda_locks(release, template, driver, refused):
        needed = _find_cuda(lock)
        if template.cuda_plugin and needed is None:
            refused.append(f"{lock.extra}: the release has no such extra")
        elif driver is not None and needed is not None and needed > driver:
            refused.append(f"{lock.build}: built for CUDA {needed}")
        else:
            return lock
    supported = "" if driver is None else f" for the driver's CUDA {driver}"
    raise EnvironmentBuildError(
        f"wanted a CUDA build of {release.framework} {release.version}{supported}, but found none "
        f"({'; '.join(refused)}); choose another release, update the driver, or run on the CPU"
    )


def _list_cuda_locks(
    release: Release, template: Template, driver: int | None, refused: list[str]
) -> Iterator[Lock]:
    """The builds of a release, newest CUDA first; `refused` gets why one could not be locked."""
    if not template.cuda_extras:
        yield _compile(release, template, build="registry default")
    for extra in template.cuda_extras:
        if driver is None or int(extra.removeprefix("cuda")) <= driver:
            yield _compile(release, template, build=extra, extra=extra)
        else:
            refused.append(f"{extra}: newer than the driver")
    for backend in template.cuda_backends:  # an index of its own, queried only if it is needed
        if driver is not None and int(backend[2:4]) > driver:
            continue
        arguments = ("--torch-backend", backend)
        try:
            yield _compile(release, template, build=f"{backend} index", index_arguments=arguments)
        except (EnvironmentBuildError, UserError) as error:
            refused.append(f"{backend} index: {' '.join(str(error).split())[:200]}")


def _find_cuda(lock: Lock) -> int | None:
    """The major version of CUDA that a lock's packages are built for; None = for none."""
    found = [_CUDA_PACKAGE.fullmatch(name) for name in lock.packages]
    return max((int(each[1] or each[2]) for each in found if each), default=None)


def _compile(
    release: Release,
    template: Template,
    *,
    build: str,
    extra: str = "",
    index_arguments: Sequence[str] = (),
    pins: Mapping[str, str] = MappingProxyType({}),
) -> Lock:
    extras = f"[{extra}]" if extra else ""
    wanted = [f"{release.framework}{extras}=={release.version}", *template.packages]
    arguments = ["pip", "compile", "-", "--python", str(release.python), "--generate-hashes"]
    arguments += ["--no-build", "--no-header", "--no-annotate", "--no-sources", "--quiet"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as constraints:
        constraints.writelines(f"{name}=={version}\n" for name, version in pins.items())
        constraints.flush()
        answer = run_uv_or_cached(
            [*arguments, *index_arguments, *(["--constraints", constraints.name] if pins else [])],
            stdin="\n".join(wanted) + "\n",
            timeout_s=_LOCK_TIMEOUT_S,
        )
    if answer.failure == "uncached":
        raise UserError(
            f"wanted an environment with {wanted[0]}, but the package index did not answer and "
            "uv's cache lacks some of it; connect to the network once, or use a Python that has "
            f"it installed: {release.framework}@system:/path/to/python"
        )
    if answer.failure is not None:
        refused = answer.failure == "unsatisfiable"
        raise (UnresolvableError if refused else EnvironmentBuildError)(
            f"wanted a lock of {', '.join(wanted)} for Python {release.python_version}, but uv "
            f"found none; choose another version; uv reported: {answer.message}"
        )
    lines = [line for line in answer.output.splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines) + "\n"
    packages = parse_lock(text)
    locked = packages.get(release.framework)
    if locked is None or Version(locked).public != Version(release.version).public:
        raise EnvironmentBuildError(
            f"wanted a lock with {wanted[0]}, got {locked!r}; look for an override or a constraint "
            "in uv's settings"
        )
    return Lock(
        text=text,
        packages=packages,
        build=build,
        index_arguments=tuple(index_arguments),
        extra=extra,
    )


@functools.cache
def _cpu_index_failure() -> str | None:
    """Why the index of CPU builds can't be used; None if it can. Checked once per process."""
    answer = run_uv(
        ["pip", "compile", "-", "--no-deps", "--quiet", "--torch-backend", "cpu"],
        stdin="torch\n",
        settings={"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": str(_PROBE_TIMEOUT_S)},
        timeout_s=2 * _PROBE_TIMEOUT_S,
    )
    if answer.failure is None:
        return None
    unreachable = answer.failure in ("unreachable", "uncached")
    return "the CPU index did not answer" if unreachable else "the CPU index could not be used"
