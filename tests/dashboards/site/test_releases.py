"""The page of releases: each version beside the nearest older one."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from dashboards.site.files import SiteFiles
from dashboards.site.releases import releases_page


def _certify(new: str, old: str) -> dict[str, Any]:
    row: dict[str, Any] = {"a_framework": "jax", "a_version": new, "b_version": old}
    row |= {
        "words": "MLP, training",
        "a_arm": "jax-jit",
        "batch": 8,
        "noun": "step time",
        "metric": "median_step_ns",
    }
    row |= {"certificate": "worse", "change": -0.4, "low": -0.5, "high": -0.3, "bound": 0.02}
    return row | {"num_samples": 5, "reason": "95 % interval excludes equality"}


def test_a_backfill_of_many_versions_shows_what_each_did_to_the_one_before(tmp_path: Path) -> None:
    files = SiteFiles(tmp_path)
    versions = ["0.9.2", "0.10.0", "0.10.1", "0.10.2"]
    files.write("releases", [_certify(new, old) for old, new in combinations(versions, 2)])
    heat, *sections = releases_page(files)["blocks"]
    assert [each["title"] for each in sections] == [
        "JAX 0.10.2 against 0.10.1",
        "JAX 0.10.1 against 0.10.0",
        "JAX 0.10.0 against 0.9.2",
    ]
    (grid,) = heat["blocks"]
    assert [each["text"] for each in grid["columns"]] == ["0.10.2", "0.10.1", "0.10.0"]
