"""The page of a campaign with many versions: a column for each, causes before their pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from page_visits import Visit
from playwright.sync_api import Browser
from result_documents import JAX, TORCH, make_document
from stored_histories import store_history

from benchcore.state import open_state
from benchcore.store.database import open_database
from dashboards.publish import publish_campaign

VERSIONS = ("0.9.1", "0.9.2", "0.10.0", "0.10.1", "0.10.2", "0.11.0")


def test_each_version_has_a_column_and_many_void_pairs_are_counted_by_cause(
    browser: Browser, tmp_path: Path
) -> None:
    older = [
        replace(JAX, name=f"jax-{version}", version=version, role="pinned", step_ns=1e6 + place)
        for place, version in enumerate(VERSIONS)
    ]
    racers = [*older, replace(TORCH, arm="torch-eager", name="torch-eager")]
    state, name = open_state(tmp_path), "backfill-jax"
    documents = [
        make_document(racers, duel_run=f"{number:016x}", campaign=name) for number in range(2)
    ]
    documents[1]["duel"] |= {"case": "tiny_b64", "batch": 64}
    engine = open_database(state.database_url)
    store_history(engine, state, documents, wrong=[1])
    engine.dispose()
    publish_campaign(state, name)
    visit = Visit(browser)
    page = visit.open(state.website, f"{name}/index.html")
    assert page.locator("h1").inner_text() == (
        "6 versions of JAX were compared on 2 cases (1 without a pair that counts). "
        "Releases shows what each changed."
    )
    heads = page.locator(".heat thead th").all_inner_texts()
    assert heads == ["Case, by version", *(f"JAX {version}" for version in VERSIONS)]
    assert page.locator(".heat tbody tr").count() == 2
    assert page.locator(".heat tbody tr").last.locator("td").all_inner_texts() == ["void"] * 6
    void = page.locator("#voids")
    assert void.locator("tbody tr").first.locator("td").last.inner_text() == "21"
    assert void.locator("summary").inner_text() == "21 pairs, each with its reason"
    page = visit.open(state.website, "compare.html#framework=jax")
    assert page.get_by_label("Framework").locator("option").all_inner_texts() == [
        "choose",
        "JAX",
        "PyTorch",
    ]
    cases = page.locator(".framed").last.locator("tbody th").all_inner_texts()
    assert len(cases) == 1, "what does not count is not compared"
    assert visit.complaints == []
    visit.context.close()
