"""A release shows how far its results lie from those of the version before it."""

from __future__ import annotations

from pathlib import Path

from dashboards.website.files import WebsiteFiles
from dashboards.website.numerics import numerics_table, release_key

AGREES = {
    "case": "MLP, training, batch 128, fp32", "arm": "jax-jit", "quantity": "outputs",
    "max_relative": 1e-6, "tolerance": 1e-3, "agrees": True, "run": "0" * 16, "at": "2026-11-20",
}  # fmt: skip
DIFFERS = {**AGREES, "quantity": "losses", "max_relative": 4e-3, "agrees": False}


def test_every_compared_quantity_of_a_release_is_on_its_page(website: Path) -> None:
    files = WebsiteFiles(website)
    found = files.read("numerics")[release_key("jax", "0.12.1", "0.12.0")]
    assert {each["arm"] for each in found.values()} == {"jax-jit"}
    of_mlp = [each for each in found.values() if each["case"] == AGREES["case"]]
    assert of_mlp and all(each["agrees"] for each in of_mlp)
    assert "torch 2.15.0 2.14.1" not in files.read("numerics")  # never in one duel
    page = str(files.read("pages/releases"))
    assert "Numerics: " in page and "all within tolerance" in page


def test_what_differs_leads_and_is_counted() -> None:
    missing = {**AGREES, "quantity": "gradients", "max_relative": None, "agrees": None}
    table = numerics_table("numerics", [AGREES, missing, DIFFERS])
    assert (
        table is not None and table["summary"] == "Numerics: 3 quantities, 2 not within tolerance"
    )
    rows = table["blocks"][0]["rows"]
    assert [row["quantity"] for row in rows] == ["losses", "gradients", "outputs"]
    assert [row["agrees"]["text"] for row in rows] == ["differs", "not compared", "agrees"]
    assert numerics_table("numerics", []) is None
