"""What goes into an environment: its template, and a lock that fits the driver."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from benchcore.environments import build as environments
from benchcore.environments import package_locks
from benchcore.environments.package_locks import lock_release, parse_lock
from benchcore.environments.templates import load_template, template_folder
from benchcore.environments.uv_command import UvAnswer
from benchcore.environments.version_requests import Release
from benchcore.errors import EnvironmentBuildError, UserError
from benchcore.protocol import ALL_FRAMEWORKS


@pytest.mark.parametrize("framework", ALL_FRAMEWORKS)
def test_every_framework_has_a_template(framework: Any) -> None:
    template = load_template(framework, template_folder())

    compile(template.verification, framework, "exec")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('verification = ""\npackage = ["numpy"]', r"wrongly typed \['package'\]"),
        ('verification = ""\npackages = "numpy"', r"wrongly typed \['packages'\]"),
        ("packages = []", "a verification in"),
        ("packages = [", "wanted an environment template"),
    ],
)
def test_a_template_with_a_mistake_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "jax.toml").write_text(text)

    with pytest.raises(UserError, match=complaint):
        load_template("jax", tmp_path)


def test_an_extra_adds_its_packages_and_makes_another_environment() -> None:
    plain = load_template("torch", template_folder())
    whole = plain.add(("opacus",))
    assert whole.packages == [*plain.packages, "opacus"]
    assert whole.imports == [*plain.imports, "opacus"]
    assert plain.add(()) == plain
    with pytest.raises(UserError, match="wanted packages of opacus in brackets, got 'x'"):
        plain.add(("x",))
    release = dataclasses.replace(_release("torch", "2.15.0"), extras=("opacus",))
    assert environments._name(release) == "torch-2.15.0_opacus"


def test_a_template_that_is_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="wanted an environment template"):
        load_template("jax", tmp_path)


def test_a_lock_is_read_as_its_packages() -> None:
    text = (
        "iniconfig==2.1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
        "Ml_Dtypes==0.6.0 ; python_version < '4' \\\n    --hash=sha256:02\n"
        "torch==2.15.0+cpu \\\n    --hash=sha256:03\n"
    )

    assert parse_lock(text) == {
        "iniconfig": "2.1.0",
        "ml-dtypes": "0.6.0",
        "torch": "2.15.0+cpu",
    }


def _record_compilations(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[tuple[Any, str]]:
    queried: list[tuple[Any, str]] = []

    def compile_(arguments: list[str], *, stdin: str, **_: Any) -> UvAnswer:
        queried.append((arguments, stdin))
        return UvAnswer(output=answer, message="", failure=None, offline=False)

    monkeypatch.setattr(package_locks, "run_uv_or_cached", compile_)
    return queried


def _release(framework: Any, version: str) -> Release:
    return Release(
        framework=framework,
        version=version,
        role="pinned",
        python=Path("/python"),
        python_version="3.13.0",
    )


def test_a_lock_without_the_requested_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _record_compilations(monkeypatch, "jax==0.11.0 \\\n    --hash=sha256:00\n")
    template = load_template("jax", template_folder())

    with pytest.raises(
        EnvironmentBuildError, match=r"wanted a lock with jax==0\.12\.0, got '0\.11"
    ):
        lock_release(_release("jax", "0.12.0"), template, "cpu")


def test_a_lock_does_not_depend_on_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    template = load_template("jax", template_folder())
    _record_compilations(monkeypatch, "# uv pip compile /a/b\njax==0.12.0\n    # via -r /a/b\n")

    assert lock_release(_release("jax", "0.12.0"), template, "cpu").text == "jax==0.12.0\n"


_JAX = {13: "jax==0.6.0\njax-cuda13-plugin==0.6.0\n", 12: "jax==0.6.0\njax-cuda12-plugin==0.6.0\n"}
_TORCH = {
    13: "torch==2.15.0\nnvidia-cudnn-cu13==9.26.0.51\n",
    12: "torch==2.15.0\nnvidia-cudnn-cu12==9.26.0.51\n",
}


def _offer(monkeypatch: pytest.MonkeyPatch, builds: dict[str, str | None]) -> list[str]:
    """An index with these builds, by extra or backend (`` = the registry's default). Returns
    the requested builds."""
    queried: list[str] = []

    def compile_(arguments: list[str], *, stdin: str, **_: Any) -> UvAnswer:
        extra = re.match(r"\w+\[(\w+)\]", stdin)
        backend = "--torch-backend" in arguments and arguments[-1]
        queried.append(extra[1] if extra else str(backend or ""))
        found = builds.get(queried[-1])
        failure = None if found else "unsatisfiable"
        return UvAnswer(output=found or "", message="not here", failure=failure, offline=False)

    monkeypatch.setattr(package_locks, "run_uv_or_cached", compile_)
    return queried


def _drive(monkeypatch: pytest.MonkeyPatch, cuda: int | None) -> None:
    monkeypatch.setattr(package_locks.gpu, "driver_cuda", lambda: cuda)


@pytest.mark.parametrize(
    ("driver", "builds", "build", "expected"),
    [
        (13, {"cuda13": _JAX[13], "cuda12": _JAX[12]}, "cuda13", ["cuda13"]),
        (12, {"cuda13": _JAX[13], "cuda12": _JAX[12]}, "cuda12", ["cuda12"]),
        (None, {"cuda13": _JAX[13], "cuda12": _JAX[12]}, "cuda13", ["cuda13"]),
        (13, {"cuda13": "jax==0.6.0\n", "cuda12": _JAX[12]}, "cuda12", ["cuda13", "cuda12"]),
    ],
    ids=["driver 13", "driver 12", "no driver here", "a release before cuda13"],
)
def test_jax_takes_the_newest_cuda_that_the_driver_supports(
    driver: int | None,
    builds: dict[str, str | None],
    build: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _drive(monkeypatch, driver)
    queries = _offer(monkeypatch, builds)
    template = load_template("jax", template_folder())
    assert lock_release(_release("jax", "0.6.0"), template, "cuda").build == build
    assert queries == expected


@pytest.mark.parametrize(
    ("driver", "builds", "build", "expected"),
    [
        (13, {"": _TORCH[13]}, "registry default", [""]),
        (13, {"": _TORCH[12]}, "registry default", [""]),
        (None, {"": _TORCH[13]}, "registry default", [""]),
        (12, {"": _TORCH[13], "cu128": _TORCH[12]}, "cu128 index", ["", "cu129", "cu128"]),
    ],
    ids=["driver 13", "an older release", "no driver here", "driver 12"],
)
def test_torch_takes_a_build_that_the_driver_supports(
    driver: int | None,
    builds: dict[str, str | None],
    build: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _drive(monkeypatch, driver)
    queries = _offer(monkeypatch, builds)
    template = load_template("torch", template_folder())
    lock = lock_release(_release("torch", "2.15.0"), template, "cuda")
    assert (lock.build, queries) == (build, expected)
    assert (lock.index_arguments == ("--torch-backend", "cu128")) is (driver == 12)


def test_a_driver_too_old_for_every_build_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _drive(monkeypatch, 12)
    _offer(monkeypatch, {"": _TORCH[13]})
    template = load_template("torch", template_folder())
    with pytest.raises(EnvironmentBuildError) as refusal:
        lock_release(_release("torch", "2.15.0"), template, "cuda")
    message = str(refusal.value)
    assert "wanted a CUDA build of torch 2.15.0 for the driver's CUDA 12" in message
    assert "registry default: built for CUDA 13; cu129 index: " in message
    assert message.endswith("choose another release, update the driver, or run on the CPU")


def test_jax_without_any_cuda_plugin_is_no_cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    _drive(monkeypatch, 12)
    _record_compilations(monkeypatch, "jax==0.6.0\n")
    template = load_template("jax", template_folder())

    with pytest.raises(EnvironmentBuildError, match="cuda13: newer than the driver; cuda12: the"):
        lock_release(_release("jax", "0.6.0"), template, "cuda")


@pytest.mark.parametrize(
    ("accelerator", "silence", "build", "arguments"),
    [
        ("cpu", None, "cpu index", ("--torch-backend", "cpu")),
        (
            "cpu",
            "the CPU index did not answer",
            "registry default; the CPU index did not answer",
            (),
        ),
        ("cuda", None, "registry default", ()),
    ],
)
def test_the_chosen_torch_build_is_reported_with_its_reason(
    accelerator: Any,
    silence: str | None,
    build: str,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queried = _record_compilations(monkeypatch, "torch==2.15.0+cpu\n")
    monkeypatch.setattr(package_locks, "_cpu_index_failure", lambda: silence)
    template = load_template("torch", template_folder())

    lock = lock_release(_release("torch", "2.15.0"), template, accelerator)

    assert (lock.build, lock.index_arguments) == (build, arguments)
    assert len(queried) == 1
    assert ("--torch-backend" in queried[0][0]) is bool(arguments)
