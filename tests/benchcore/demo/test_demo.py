"""Forty made-up nights are stored once for all tests; others test the command."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from command_line import run_here
from result_documents import spool_document

from benchcore.demo import findings, story
from benchcore.demo.documents import make_document
from benchcore.demo.write import open_demo, write_nights
from benchcore.running.plans import load_campaign
from benchcore.state import State
from benchcore.store.database import Engine, open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.frames.duels import duel_frame
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.history.events import list_events
from benchcore.store.history.series import read_series
from benchcore.store.history.suspicions import list_suspicions, read_suspicion
from benchcore.store.incoming.documents import read_document
from benchcore.store.metrics import TRACKED

LAST = date(2026, 11, 22)
DAYS = 40


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[State, Engine]]:
    state = open_demo(tmp_path_factory.mktemp("demo") / "new")
    engine = open_database(state.database_url, made_up=True)
    write_nights(state, engine, LAST, DAYS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings, "_UNTRIAGED_DAYS", 0)
        findings.write_findings(engine, LAST)
    yield state, engine
    engine.dispose()


def test_every_campaign_device_and_plan_says_that_it_is_made_up(
    made_up: tuple[State, Engine],
) -> None:
    state, engine = made_up
    duels = duel_frame(engine)
    assert set(duels["campaign"].str.startswith("nightly-demo-")) == {True}
    assert set(duels["device_model"]) == {"Made-up GPU 80 GB"}
    assert set(duels["node"]) == {"made-up-node"}
    assert load_campaign(state, duels["campaign"].iloc[-1]).notes == (story.MADE_UP,)


def test_a_suspicion_reads_the_same_from_series_that_were_read_before(
    made_up: tuple[State, Engine],
) -> None:
    _, engine = made_up
    known = {each.key: each for each in read_series(engine, metrics=TRACKED)}
    suspicions = [row["id"] for row in list_suspicions(engine)]
    assert suspicions
    for each in suspicions[:2]:
        assert read_suspicion(engine, each, known) == read_suspicion(engine, each)


def test_the_documents_fit_the_schema_of_measured_ones(tmp_path: Path) -> None:
    state = open_demo(tmp_path / "one")
    engine = open_database(state.database_url, made_up=True)
    night = write_nights(state, engine, LAST, 1)[0]
    engine.dispose()
    for duel in night.plan.duels:
        document = make_document(night, duel, 0)
        assert document["campaign"] == "nightly-demo-2026-11-22"
        assert read_document(spool_document(tmp_path, document)) == document


def test_a_made_up_history_has_all_that_pages_show(made_up: tuple[State, Engine]) -> None:
    _, engine = made_up
    ratios = ratio_frame(engine)
    newest = ratios.loc[ratios["campaign"] == f"nightly-demo-{LAST}"]
    assert set(newest["kind"]) == {"cross_framework", "cross_version"}
    assert 0 < (~newest["counts"]).sum() < newest["counts"].sum()
    contenders = contender_frame(engine, f"nightly-demo-{LAST}")
    assert set(contenders["status"]) == {"ok", "crash"}
    measured = contenders.loc[contenders["status"] == "ok"]
    for column in ("gross_mj", "net_mj", "allocator_peak_bytes", "latency_p95_ns"):
        assert not all(measured[column].isna())
    assert max(contenders["compute_share"].dropna()) < 1
    assert {"open", "confirmed"} <= {row["state"] for row in list_suspicions(engine)}


def test_what_releases_changed_is_found_in_the_right_framework(
    made_up: tuple[State, Engine],
) -> None:
    _, engine = made_up
    events = {(each["series"], each["culprit"]): each for each in list_events(engine)}
    slower_jax = events["resnet50 infer_b1_bf16: jax-jit against torch-compile", "jax"]
    faster_torch = events["resnet50 train_b32_bf16: jax-jit against torch-compile", "torch"]
    assert slower_jax["ratio"] == pytest.approx(1 / 1.09, rel=0.02)
    assert faster_torch["ratio"] == pytest.approx(0.955, rel=0.02)
    assert slower_jax["since"] == "2026-11-18"
    assert slower_jax["opened_at"] < "2026-11-23"


def test_an_improvement_is_what_made_the_culprit_need_less(made_up: tuple[State, Engine]) -> None:
    _, engine = made_up
    answered = {row["state"] for row in list_events(engine)}
    assert {"improvement", "investigating"} == answered
    for row in list_events(engine):
        assert (row["state"] == "improvement") == (" by \u2212" in row["reason"]), row["reason"]


def test_demo_publishes_pages_and_never_touches_anything_else(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    open_demo(folder)  # an earlier demo, which the next one replaces
    ended = run_here("demo", "--folder", str(folder), "--days", "2", "--last", str(LAST))
    assert ended.returncode == 0, ended.stderr
    page = folder / "site" / "index.html"
    assert story.MADE_UP.replace("`", "") in page.read_text().replace("`", "")
    assert ended.stdout.splitlines() == [story.MADE_UP, f"Dashboard: {page}"]

    (tmp_path / "precious").write_text("results")
    refused = run_here("demo", "--folder", str(tmp_path))
    assert refused.returncode == 2
    assert "choose another with --folder" in refused.stderr
    assert (tmp_path / "precious").exists()

    elsewhere = {"DEADHEAT_DATABASE_URL": "sqlite:////real.db"}
    refused = run_here("demo", "--folder", str(tmp_path / "new"), environ=elsewhere)
    assert refused.returncode == 2
    assert "unset it" in refused.stderr
