"""The specifications of the dashboard's charts, as `charts.py` made them with Altair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECS: dict[str, Any] = json.loads(Path(__file__).with_name("charts.json").read_text("utf-8"))
"""By the name that `blocks.chart` uses."""
_SCHEMA: str = SPECS["forest"]["$schema"]  # ends with v6.1.0.json
VEGA_LITE = _SCHEMA.rpartition("/")[2].rpartition(".")[0].rpartition(".")[0]
"""The version of Vega-Lite that Altair writes for, as vl-convert names it."""
