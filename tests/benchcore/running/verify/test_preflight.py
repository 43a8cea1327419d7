import http.server
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from benchcore.errors import UserError
from benchcore.running.verify import preflight
from benchcore.running.verify.preflight import (
    Needs,
    Observation,
    Readiness,
    evaluate,
    probe_gpus,
    probe_prefect_api,
    probe_slurm,
    verify_machine,
)


def _command(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("usable", "needed", "status"),
    [
        (True, True, "ok"),
        (True, False, "ok"),
        (False, True, "missing"),
        (False, False, "absent_but_optional"),
    ],
)
def test_only_a_requirement_can_be_missing(usable: bool, needed: bool, status: str) -> None:
    [finding] = evaluate([Observation("gpu", usable, "words")], Needs(gpu=needed))

    assert finding.status == status
    assert finding.detail == "words"
    assert bool(finding.remedy) is not usable


def _verify(
    needs: Needs, root: Path, check_database: Any = lambda: "SQLite 3"
) -> dict[str, Readiness]:
    found = verify_machine(needs, root, check_database=check_database)
    return {each.name: each for each in found}


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spares the search for interpreters where it is not the matter."""
    monkeypatch.setattr(preflight, "find_interpreters", list)


def test_this_machine_is_described_completely(tmp_path: Path) -> None:
    found = _verify(Needs(), tmp_path / "not" / "yet" / "there")

    assert list(found) == list(Needs.__dataclass_fields__)
    assert found["python"].status == "ok"
    assert found["uv"].detail.startswith("uv ")
    assert found["database"] == Readiness(
        name="database", status="ok", detail="SQLite 3", remedy=""
    )
    assert str(tmp_path) in found["disk"].detail


def test_a_bare_machine_lacks_exactly_the_requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "PREFECT_API_URL", "CXX"):
        monkeypatch.delenv(name, raising=False)

    found = _verify(Needs(compiler=True), tmp_path)

    assert found["compiler"].status == "missing"
    assert "install a C++ compiler" in found["compiler"].remedy
    assert found["slurm"].status == "absent_but_optional"
    assert found["wandb"].status == "absent_but_optional"
    assert found["prefect_api"].status == "ok"


@pytest.mark.usefixtures("no_search")
def test_a_compiler_that_does_not_run_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    _command(tmp_path, "g++", "exit 1")
    assert _verify(Needs(), tmp_path)["compiler"].status == "absent_but_optional"

    _command(tmp_path, "clang++", "echo clang version 19")
    assert _verify(Needs(), tmp_path)["compiler"].detail == "clang version 19"


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("error", [UserError("wanted a database"), PermissionError(13, "denied")])
def test_a_database_that_refuses_is_missing(error: Exception, tmp_path: Path) -> None:
    def refuse() -> str:
        raise error

    finding = _verify(Needs(), tmp_path, refuse)["database"]

    assert finding.status == "missing"
    assert str(error) in finding.detail


@pytest.mark.usefixtures("no_search")
def test_a_full_disk_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: usage)

    assert _verify(Needs(), tmp_path)["disk"].status == "missing"


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize(
    ("variable", "value", "status"),
    [
        ("WANDB_API_KEY", "k" * 40, "ok"),
        ("WANDB_MODE", "offline", "ok"),
        ("WANDB_MODE", "online", "absent_but_optional"),
    ],
)
def test_wandb_is_ready_with_a_key_or_offline(
    variable: str, value: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)

    finding = _verify(Needs(), tmp_path)["wandb"]

    assert finding.status == status
    assert "kkk" not in finding.detail


@pytest.mark.usefixtures("no_search")
def test_wandb_is_ready_when_logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "netrc"
    path.write_text("machine api.wandb.ai login user password secret\n")
    path.chmod(0o600)
    monkeypatch.setenv("NETRC", str(path))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)

    assert _verify(Needs(), tmp_path)["wandb"].detail == "logged in"


def _nvml(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "580.95.05")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(names))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda index: names[index])


def test_gpus_are_named_with_their_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    _nvml(monkeypatch, ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"])

    seen = probe_gpus()

    assert seen.usable
    assert seen.detail == "NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3; driver 580.95.05"


def test_a_driver_without_a_gpu_counts_as_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _nvml(monkeypatch, [])

    assert probe_gpus() == Observation("gpu", False, "no GPU; driver 580.95.05")


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "NVML: Driver Not Loaded"),
    ],
)
def test_an_absent_driver_and_a_broken_one_are_distinguished(
    code: int, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)

    assert probe_gpus() == Observation("gpu", False, detail)


def test_slurm_is_usable_when_its_controller_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _command(tmp_path, "sbatch", "exit 0")
    _command(tmp_path, "sinfo", 'case "$1" in --version) echo slurm 23.11.4;; *) echo gpu*;; esac')

    assert probe_slurm() == Observation("slurm", True, "slurm 23.11.4; partition gpu*")


@pytest.mark.parametrize("silence", ["exit 1", "sleep 60"])
def test_slurm_without_its_controller_is_not_usable(
    silence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(preflight, "_COMMAND_TIMEOUT_S", 0.5)
    _command(tmp_path, "sbatch", "exit 0")
    silence = silence.replace("sleep", "exec sleep")
    _command(
        tmp_path,
        "sinfo",
        f'case "$1" in --version) echo slurm 23.11.4;; *) {silence};; esac',
    )

    assert probe_slurm() == Observation(
        "slurm", False, "slurm 23.11.4: the controller did not answer"
    )


@pytest.fixture
def api() -> Iterator[str]:
    """A server that is healthy under /api only."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_healthy_prefect_server_is_usable_and_its_password_is_not_shown(api: str) -> None:
    seen = probe_prefect_api(f"http://{api}/api/")
    assert seen == Observation("prefect_api", True, f"http://{api}/api/ answers")

    assert "secret" not in probe_prefect_api(f"http://user:secret@{api}/api").detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api", "ftp://127.0.0.1/api", "http://[/api"])
def test_a_prefect_server_that_does_not_answer_is_not_usable(url: str) -> None:
    assert not probe_prefect_api(url).usable


def test_an_unhealthy_prefect_server_is_not_usable(api: str) -> None:
    seen = probe_prefect_api(f"http://{api}/other")

    assert not seen.usable
    assert "Service Unavailable" in seen.detail


@pytest.mark.parametrize("url", [None, ""])
def test_a_missing_prefect_server_is_a_failure_only_where_it_is_required(url: str | None) -> None:
    assert probe_prefect_api(url).usable
    assert not probe_prefect_api(url, required=True).usable


@pytest.mark.usefixtures("no_search")
def test_a_slurm_site_without_a_prefect_server_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    finding = _verify(Needs(prefect_api=True), tmp_path)["prefect_api"]

    assert (finding.status, finding.detail) == ("missing", "PREFECT_API_URL is unset")
    assert "set PREFECT_API_URL" in finding.remedy
