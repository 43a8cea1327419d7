"""`deadheat defects` from the command to its page, with both frameworks on a tiny case."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_here

from benchcore.protocol import EnvironmentRecord
from benchcore.state import State
from dashboards.website.files import WebsiteFiles

pytestmark = pytest.mark.usefixtures("prefect_api", "short_blocks", "forked_contenders")


@pytest.mark.provisions
def test_real_sides_that_are_wrong_on_purpose_are_raced_and_caught(
    session_state: State, framework_environment: Callable[[str], EnvironmentRecord]
) -> None:
    for request in ("jax", "torch"):
        framework_environment(request)
    command = ["defects", "mlp", "--case", "tiny_infer", "--no-ceilings", "--starts", "2"]
    command += ["--switch", "torch-eager", "--switch", "jax-not-waited-for", "--rounds", "2"]
    command += ["--json", "--state", str(session_state.root)]
    done = run_here(*command)
    found = json.loads(done.stdout)
    assert done.returncode == (found["fair"]["speedup"] is None), done.stderr
    switches = {each["name"]: each for each in found["switches"]}
    assert set(switches) == {"torch-eager", "jax-not-waited-for"}
    for each in switches.values():
        assert each["speedup"] > 0.0, each["why"]
    guards = {name: str(each["caught"]) for name, each in switches.items()}
    assert "compiled yes against no" in guards["torch-eager"]
    assert "prevented by the clock" in guards["jax-not-waited-for"]
    page = Path(found["page"])
    assert page.name == "defects.html"
    own = WebsiteFiles(page.parents[1]).read(f"campaigns/{page.parent.name}")
    assert f"{page.parent.name}/defects.html" in str(own["top"])
