"""What `make` passes on to the commands that it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_WRITE_SETTING = "#!/bin/sh\necho ${UV_PYTHON_DOWNLOADS-unset} > %s\n"


@pytest.mark.parametrize(("users", "passed_on"), [(None, "unset"), ("manual", "manual")])
def test_only_the_user_forbids_a_night_to_fetch_a_python(
    users: str | None, passed_on: str, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for path, writes in (("uv", "sync"), (".venv/bin/deadheat", "night")):
        (tmp_path / path).write_text(_WRITE_SETTING % writes)
        (tmp_path / path).chmod(0o755)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    if users is not None:
        environment["UV_PYTHON_DOWNLOADS"] = users
    subprocess.run(
        ["make", "UV=./uv", "nightly"], cwd=tmp_path, env=environment, check=True, timeout=60
    )
    assert (tmp_path / "sync").read_text().strip() == "never"
    assert (tmp_path / "night").read_text().strip() == passed_on
