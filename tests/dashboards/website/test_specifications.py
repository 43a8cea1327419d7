"""Pages get the charts that Altair made, without Altair."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import altair as alt

from dashboards.website.charts import write_specifications
from dashboards.website.specifications import VEGA_LITE

ROOT = Path(__file__).parents[3]
REFRESH = "python -m dashboards.website.charts dashboards/website/charts.json"


def test_the_specifications_in_git_are_what_altair_makes() -> None:
    stored = (resources.files("dashboards.website") / "charts.json").read_text(encoding="utf-8")
    assert stored == write_specifications(), f"refresh it: {REFRESH}"
    assert alt.SCHEMA_VERSION.rpartition(".")[0] == VEGA_LITE


def test_a_dashboard_is_made_without_altair() -> None:
    program = "import sys, dashboards.publish; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "dashboards.website.files" in done.stdout
    assert "altair" not in done.stdout.split()
