"""Units and containers for who runs Dead Heat for good: read as systemd and Compose read them, and
their commands and variables are some that there are."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import prefect.settings
import pytest
import yaml
from manual import COMPOSE, ROOT, UNITS, BrokenCommandError, check_command, find_blocks

from benchcore.variables import VARIABLES
from flows.server.temporary_api import OF_SERVER

PAGE = ROOT / "docs" / "service.md"
OURS = {each.name for each in VARIABLES}
OTHERS = {"DO_NOT_TRACK", "POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
IMAGE = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"


def _check_variable(name: str) -> None:
    assert name in OURS | OTHERS or hasattr(prefect.settings, name), f"nobody reads {name}"


def _check_words(words: list[str]) -> None:
    """Python's own web server is what everybody has."""
    if words[:3] != ["python", "-m", "http.server"]:
        check_command(shlex.join(words))


def _read_units(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Keys and values of each unit, in their order."""
    return {
        path.name: re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE)
        for path in sorted(folder.glob("*.service"))
    }


def _check_units(folder: Path) -> None:
    """With the repository in place of /opt/deadheat, as the page describes."""
    for name, pairs in _read_units(folder).items():
        for key, value in pairs:
            if key == "Environment":
                _check_variable(value.partition("=")[0])
            if key == "ExecStart":
                program, *words = shlex.split(value)
                assert program.startswith("/opt/deadheat/.venv/bin/"), f"{name}: {program}"
                _check_words([Path(program).name, *words])
            if key in ("Wants", "After"):
                others = [each for each in value.split() if each.startswith("deadheat")]
                assert all((folder / each).is_file() for each in others), f"{name}: {value}"


def _check_compose(text: str) -> None:
    document = yaml.safe_load(text)
    jsonschema.validate(document, json.loads(IMAGE.read_text()))
    for service in document["services"].values():
        for name in service.get("environment", {}):
            _check_variable(name)
        assert set(service.get("depends_on", {})) <= set(document["services"])
        assert {each.partition(":")[0] for each in service["volumes"]} <= set(document["volumes"])
        if "build" in service:
            _check_words(service["command"])
            copied = re.findall(r"^COPY (.+) \S+$", service["build"]["dockerfile_inline"], re.M)
            assert all((ROOT / each).exists() for part in copied for each in part.split())


def test_the_units_start_existing_commands() -> None:
    assert len(_read_units(UNITS)) == 4
    _check_units(UNITS)


@pytest.fixture
def verify(tmp_path: Path) -> Callable[[], str]:
    """What systemd reports on the units, which are copied to where they can be broken."""
    if shutil.which("systemd-analyze") is None:
        lacks = "there is no systemd-analyze here to read units (package `systemd`)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(lacks)
    for path in UNITS.glob("*.service"):
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/deadheat", str(ROOT)))

    def verify_units() -> str:
        units = [str(path) for path in sorted(tmp_path.glob("*.service"))]
        done = subprocess.run(
            ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60
        )
        return "\n".join(line for line in done.stderr.splitlines() if "deadheat" in line)

    return verify_units


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("RestartSec=5", "RestartSecs=5"),
        ("Restart=always", "Restart=often"),
        ("[Service]", "[Servce]"),
        ("/prefect worker", "/prefct worker"),
    ],
)
def test_systemd_accepts_the_units_and_reports_a_broken_one(
    right: str, wrong: str, verify: Callable[[], str], tmp_path: Path
) -> None:
    unit = tmp_path / "deadheat-worker.service"
    text = unit.read_text()
    assert right in text
    unit.write_text(text.replace(right, wrong))
    assert bool(verify()) == (right != wrong)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("worker start", "worker begin"),
        ("--pool deadheat", "--poool deadheat"),
        ("PREFECT_HOME=", "PREFECT_HOUSE="),
        ("After=deadheat-server.service", "After=deadheat-sever.service"),
        ("/opt/deadheat/.venv", "/usr/local/deadheat"),
    ],
)
def test_a_unit_that_starts_an_unknown_command_is_found(
    right: str, wrong: str, tmp_path: Path
) -> None:
    shutil.copytree(UNITS, tmp_path, dirs_exist_ok=True)
    unit = tmp_path / "deadheat-worker.service"
    text = unit.read_text()
    assert right in text
    unit.write_text(text.replace(right, wrong))
    with pytest.raises((AssertionError, BrokenCommandError)):
        _check_units(tmp_path)


def test_the_compose_file_is_valid_and_starts_existing_commands() -> None:
    _check_compose(COMPOSE.read_text())
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert set(services) == {"database", "server", "deploy", "worker", "dashboard"}
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("restart: always", "restarts: always"),
        ('ports: ["127.0.0.1:4200:4200"]', "ports: 4200"),
        ('"worker", "start"', '"worker", "begin"'),
        ("PREFECT_SERVER_API_AUTH_STRING:", "PREFECT_SERVER_API_AUTH:"),
        ("server: {condition", "sever: {condition"),
        ("service_healthy", "service_well"),
        ("state:/var", "stat:/var"),
        ("COPY tasks", "COPY task"),
    ],
)
def test_a_compose_file_that_is_broken_is_found(right: str, wrong: str) -> None:
    text = COMPOSE.read_text()
    assert right in text
    with pytest.raises((AssertionError, BrokenCommandError, jsonschema.ValidationError)):
        _check_compose(text.replace(right, wrong))


def test_a_permanent_server_keeps_runs_as_long_as_the_temporary_one() -> None:
    unit = {
        name: value
        for key, pair in _read_units(UNITS)["deadheat-server.service"]
        for name, _, value in [pair.partition("=")]
        if key == "Environment"
    }
    container = yaml.safe_load(COMPOSE.read_text())["services"]["server"]["environment"]
    assert OF_SERVER.items() <= unit.items() and OF_SERVER.items() <= container.items()


def test_the_page_names_every_required_secret() -> None:
    page: dict[str, Any] = {
        "compose": set(re.findall(r"\$\{(\w+)(?::\?[^}]*)?\}", COMPOSE.read_text())),
        "units": {path for pairs in _read_units(UNITS).values() for path in pairs},
    }
    text = PAGE.read_text()
    assert all(f"export {name}=" in text for name in page["compose"])
    files_of_units = {value for key, value in page["units"] if key == "EnvironmentFile"}
    assert files_of_units == {"/etc/deadheat/server", "/etc/deadheat/environment"}
    assert all(f"`{path}`" in text for path in files_of_units)
    for block in find_blocks(PAGE, "ini"):
        for line in block.splitlines():
            _check_variable(line.partition("=")[0])


def test_a_terminal_and_a_worker_with_a_private_tmp_share_their_locks() -> None:
    worker = _read_units(UNITS)["deadheat-worker.service"]
    assert ("PrivateTmp", "true") in worker and ("RuntimeDirectoryMode", "0777") in worker
    (folder,) = (value for key, value in worker if key == "RuntimeDirectory")
    locks = f"DEADHEAT_LOCKS=/run/{folder}"
    assert ("Environment", locks) in worker and f"export {locks}" in PAGE.read_text()
