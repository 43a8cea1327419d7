"""The Guide says what measured pairs that count show, and nothing where there are none."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_here
from result_documents import JAX, TORCH, make_document
from sqlalchemy import event, update
from sqlalchemy.orm import Session
from stored_histories import open_history

from benchcore.state import open_state
from benchcore.store.models import PairRatio
from benchcore.store.reports.guide import GuideFilter, find_break_even, list_answers
from dashboards.website.glossary import CHECKS, GLOSSARY, list_terms
from dashboards.website.guide_pages.guide import (
    describe_answer,
    guide_page,
    list_columns,
    list_sentences,
    summarise_answers,
)

SLOW_JAX = replace(JAX, step_ns=JAX.step_ns * 3)
RUNS = [f"{night:016x}" for night in range(3)]


def _nights() -> list[dict[str, Any]]:
    """PyTorch leads in the first night, JAX in the two after it."""
    listed = []
    for day, (run, jax) in enumerate(zip(RUNS, (SLOW_JAX, JAX, JAX), strict=True), start=1):
        document = make_document([jax, replace(TORCH, step_ns=JAX.step_ns * 2)], duel_run=run)
        document["allocation"]["started_at"] = f"2026-11-{day:02}T03:00:00+00:00"
        document["allocation"]["ended_at"] = f"2026-11-{day:02}T03:05:00+00:00"
        listed.append(document)
    return listed


def test_deleting_rows_takes_their_sentences_away(tmp_path: Path) -> None:
    engine = open_history(open_state(tmp_path), _nights())
    (answer,) = list_answers(engine)
    assert (answer["faster"], answer["duel_run"], answer["counts"]) == ("jax", RUNS[2], True)
    assert answer["since"]["started_at"].day == 2 and not answer["since"]["always"]
    assert answer["of_b"]["median_step_ns"] == pytest.approx(2 * answer["of_a"]["median_step_ns"])
    (sentence,) = list_sentences([answer])
    assert "JAX at batch" in sentence and "2.000x as fast" in sentence

    shown = run_here("guide", "--state", str(tmp_path), "--workload", "ML")
    assert sentence in " ".join(shown.stdout.split()), shown.stderr
    assert "By question" in shown.stdout and "JAX is 2.000x as fast in 1 pair" in shown.stdout
    costs = shown.stdout.partition("What each costs")[2]
    per_s = [answer[side]["items_per_s"] for side in ("of_a", "of_b")]
    assert per_s == pytest.approx([32 / 1e-3, 32 / 2e-3], rel=0.05)
    million = [f"{1e6 / each:.1f}\u00a0s" for each in per_s]
    page = describe_answer(answer)
    assert page["million"] == " / ".join(million)
    assert "Million items" in costs and all(each in costs for each in million)
    assert "Peak memory" in costs and "MiB" in str(page["memory"])
    assert str(page["memory"]).partition(" / ")[0] in costs
    assert "Energy" not in costs and "State per device" not in costs, "no row has them"
    other = run_here("guide", "--state", str(tmp_path), "--workload", "vit")
    assert other.stdout.startswith("not measured: no pair that counts")
    assert "By question" not in other.stdout
    assert (
        json.loads(run_here("guide", "--state", str(tmp_path), "--batch", "7", "--json").stdout)
        == []
    )
    assert run_here("guide", "--state", str(tmp_path), "--batch", "0").returncode == 2

    with Session(engine) as session, session.begin():
        session.execute(update(PairRatio).where(PairRatio.duel_run != RUNS[0]).values(counts=False))
    (answer,) = list_answers(engine)
    assert (answer["faster"], answer["duel_run"]) == ("torch", RUNS[0])
    assert "PyTorch at batch" in str(guide_page([answer]))
    with Session(engine) as session, session.begin():
        session.execute(update(PairRatio).values(counts=False, reason="outputs differ"))
    (answer,) = list_answers(engine)
    assert (answer["counts"], answer["faster"], answer["log_ratio"]) == (False, None, None)
    assert list_answers(engine, GuideFilter(device="no such device")) == []
    page = guide_page([answer])
    assert "no pair of versions that were the newest on their night counts" in str(page)
    assert "outputs differ" in str(page)
    assert "as fast" not in str(page["blocks"][0])
    engine.dispose()


def test_a_single_operation_is_answered_with_its_last_pair_of_other_versions(
    tmp_path: Path,
) -> None:
    nights = _nights()
    for night, version in zip(nights, ("0.9.0", "0.9.0", "0.9.1"), strict=True):
        night["duel"]["use_case"] = "op"
        for contender in night["contenders"]:
            if contender["framework"] == "jax":
                contender["version"] = version
    engine = open_history(open_state(tmp_path), nights)
    (answer,) = list_answers(engine)
    earlier = answer["earlier"]
    assert (answer["a_version"], earlier["a_version"]) == ("0.9.1", "0.9.0")
    assert earlier["started_at"].day == 2 and earlier["b_version"] == answer["b_version"]
    assert earlier["log_ratio"] == pytest.approx(answer["log_ratio"], abs=0.05)
    with Session(engine) as session, session.begin():
        session.execute(
            update(PairRatio).where(PairRatio.a_version == "0.9.0").values(counts=False)
        )
    (answer,) = list_answers(engine)
    assert answer["earlier"] is None
    engine.dispose()


def test_devices_that_share_work_show_what_each_holds_and_all_exchange(tmp_path: Path) -> None:
    shared = make_document([JAX, replace(TORCH, step_ns=JAX.step_ns * 2)], duel_run="1" * 16)
    for contender, held in zip(shared["contenders"], (2**20, 2**22), strict=True):
        contender["starts"][-1]["measured"] = {
            "state_bytes_per_device": held,
            "communicated_bytes": 3 * 2**20,
        }
    engine = open_history(open_state(tmp_path), [shared])
    (answer,) = list_answers(engine)
    engine.dispose()
    alone = {**answer, "of_a": {}, "of_b": {}, "batch": answer["batch"] + 1}
    (table,) = [
        each["blocks"][0]
        for each in guide_page([answer, alone])["blocks"]
        if str(each.get("id")).startswith("use-")
    ]
    found = {row["state_bytes_per_device"]: row["communicated_bytes"] for row in table["rows"]}
    assert found == {"1.00\u00a0MiB / 4.00\u00a0MiB": "3.00\u00a0MiB", "": ""}
    headings = [each["name"] for each in table["columns"]]
    assert headings[-2:] == ["State per device", "Exchanged in a step"]
    page = str(guide_page([alone]))
    assert "State per device" not in page
    printed = run_here("guide", "--state", str(tmp_path)).stdout
    assert "State per" in printed.partition("What each costs")[2] and "4.00\u00a0MiB" in printed
    (row,) = json.loads(run_here("guide", "--state", str(tmp_path), "--json").stdout)
    assert (row["of_a"]["state_bytes_per_device"], row["of_b"]["communicated_bytes"]) == (
        2**20,
        3 * 2**20,
    )


def test_cases_of_several_shapes_show_what_a_new_one_costs(tmp_path: Path) -> None:
    shaped = make_document([JAX, replace(TORCH, step_ns=JAX.step_ns * 2)], duel_run="1" * 16)
    shaped["duel"] |= {"workload": "recompile", "case": "infer_k7", "use_case": "infer"}
    for contender, new_shape_s in zip(shaped["contenders"], (0.25, 4.0), strict=True):
        contender["starts"][-1]["measured"] = {"new_shape_s": new_shape_s, "after_new_shapes": 1.02}
    engine = open_history(open_state(tmp_path), [shaped])
    page = guide_page(list_answers(engine))
    engine.dispose()
    (row,) = next(
        each["blocks"][0]["rows"]
        for each in page["blocks"]
        if str(each.get("id")).startswith("use-")
    )
    assert row["new_shape_s"] == "250\u00a0ms / 4.00\u00a0s"
    assert row["after_new_shapes"] == "1.02x"
    assert "7 shapes" in row["case"]["text"]


def test_compilation_pays_against_eager_pytorch_which_has_none(tmp_path: Path) -> None:
    eager = replace(TORCH, arm="torch-eager", name="torch-eager-2.10", step_ns=JAX.step_ns * 2)
    document = make_document([JAX, eager], duel_run="1" * 16)
    for start in document["contenders"][1]["starts"]:
        start["stages"] |= dict.fromkeys(("trace", "lower", "compile"))
    engine = open_history(open_state(tmp_path), [document])
    (answer,) = list_answers(engine)
    engine.dispose()
    a, b = answer["of_a"], answer["of_b"]
    assert a["cold_compile_s"] > 0 == b["cold_compile_s"]
    gained_s = (b["median_step_ns"] - a["median_step_ns"]) / 1e9
    assert answer["break_even"] == math.ceil(a["cold_compile_s"] / gained_s)
    assert str(describe_answer(answer)["compile"]).endswith(" / none")


def test_energy_has_a_column_where_a_row_has_it(tmp_path: Path) -> None:
    engine = open_history(open_state(tmp_path), _nights())
    (answer,) = list_answers(engine)
    engine.dispose()
    assert "energy" not in [each["key"] for each in list_columns([answer])]
    # 115.2 J per step of 32 items are 1 kWh per million items.
    measured = {**answer, "of_a": {**answer["of_a"], "gross_mj": 115_200.0}}
    assert list_columns([answer, measured])[-1]["name"] == "Energy of a million"
    assert describe_answer(measured)["energy"] == "1\u00a0kWh / not\u00a0measured"


@pytest.mark.parametrize(
    ("faster", "sentence"),
    [
        (("jax", "jax"), "Of 2 pairs, JAX is faster in 2."),
        (("jax",), "Of 1 pair, JAX is faster in 1."),
        (("torch", "jax", "torch"), "Of 3 pairs, PyTorch is faster in 2, JAX is faster in 1."),
        (
            ("torch", None),
            "Of 2 pairs, PyTorch is faster in 1, neither is shown to be faster in 1.",
        ),
        ((None,), "Of 1 pair, neither is shown to be faster in 1."),
    ],
)
def test_the_guide_begins_with_who_is_faster_in_how_many_pairs(
    faster: tuple[str | None, ...], sentence: str
) -> None:
    assert summarise_answers([{"faster": each} for each in faster]) == sentence


def test_single_operations_show_what_numpy_takes(tmp_path: Path) -> None:
    eager = [
        replace(JAX, arm="jax-eager", name="jax-eager-0.9"),
        replace(TORCH, arm="torch-eager", name="torch-eager-2.10", step_ns=JAX.step_ns / 2),
    ]
    document = make_document(eager, duel_run="1" * 16)
    document["duel"] |= {"workload": "ops", "case": "linspace_chain_small", "use_case": "op"}
    for contender, took in zip(document["contenders"], (12e3, 13e3), strict=True):
        contender["starts"][-1]["measured"] = {"numpy_step_ns": took}
    engine = open_history(open_state(tmp_path), [document])
    (answer,) = list_answers(engine)
    engine.dispose()
    (table,) = [
        each["blocks"][0]
        for each in guide_page([answer])["blocks"]
        if str(each.get("id")).startswith("use-")
    ]
    assert [each["name"] for each in table["columns"]][-1] == "In NumPy"
    (row,) = table["rows"]
    assert row["numpy_step_ns"] == "12.0\u00a0\u00b5s / 13.0\u00a0\u00b5s"
    assert "JAX eager against PyTorch eager" in list_sentences([answer])[0]


def test_what_is_not_measured_is_named_with_its_reason_and_without_a_number(tmp_path: Path) -> None:
    """Of the talk's last table: what both sides lack in their own library, and opinions."""
    (section,) = [each for each in guide_page([])["blocks"] if each.get("id") == "not-measured"]
    (table,) = section["blocks"]
    assert {row["answer"] for row in table["rows"]} == {"not measured"}
    listed = {row["topic"]: row["why"] for row in table["rows"]}
    assert {
        *("Pipeline parallelism", "Expert parallelism", "Prototyping and debugging", "Community"),
        *("Kernels in CUDA", "Libraries for training", "Modules in JAX"),
        *("Kernels in Triton and Pallas on a CPU", "Dynamic shapes in JAX"),
    } == set(listed), "everything else has rows"
    assert not [text for text in [*listed, *listed.values()] if re.search(r"\d", text)]
    assert "own library" in listed["Pipeline parallelism"]
    assert not [text for text in [*listed, *listed.values()] if "`" in text], "shown as it is"
    assert "own library" in listed["Expert parallelism"]
    shown = run_here("guide", "--state", str(tmp_path)).stdout
    assert all(f"not measured: {topic}. " in shown for topic in listed)
    filtered = run_here("guide", "--state", str(tmp_path), "--workload", "mlp").stdout
    assert "Community" not in filtered


def test_an_answer_reads_only_the_nights_of_its_case(tmp_path: Path) -> None:
    engine = open_history(open_state(tmp_path), _nights())
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "LIMIT" in statement:
            database = connection.connection.dbapi_connection
            steps = database.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.append("; ".join(step[3] for step in steps))

    event.listen(engine, "before_cursor_execute", explain)
    list_answers(engine)
    assert len(plans) == 2, "the newest pair, and the first one of its lead"
    for plan in plans:
        assert "ix_duel_run_series" in plan and "started_at>?" in plan, plan
        assert "SEARCH ratio USING INDEX sqlite_autoindex_ratio_1 (duel_run=?)" in plan, plan
        assert "ORDER BY" not in plan, "the index has them in order"
    engine.dispose()


def test_a_guide_of_many_answers_has_a_fold_per_model(tmp_path: Path) -> None:
    engine = open_history(open_state(tmp_path), _nights())
    (answer,) = list_answers(engine)
    engine.dispose()
    few = guide_page([answer])
    (best,) = [each for each in few["blocks"] if each.get("id") == "best"]
    assert [each["kind"] for each in best["blocks"]] == ["table"]
    other = {**answer, "log_ratio": -answer["log_ratio"], "faster": "torch"}
    wide = {**answer, "low": answer["log_ratio"] - 0.2, "high": answer["log_ratio"] + 0.2}
    models = [
        *[{**wide, "workload": "mlp", "case_name": f"train_b{each}"} for each in range(19)],
        {**answer, "workload": "resnet50"},
        {**other, "workload": "resnet50", "case_name": "train_b1"},
    ]
    sections = {each["id"]: each for each in guide_page(models)["blocks"] if "id" in each}
    for name in ("best", "use-train"):
        folds = sections[name]["blocks"]
        assert [each["summary"] for each in folds] == [
            "MLP: JAX is 2.0x as fast in 19 pairs.",
            "ResNet-50: JAX is faster in 1 of 2 pairs, PyTorch in 1.",
        ]
    (table,) = sections["best"]["blocks"][0]["blocks"]
    assert table["caption"] == "Which framework is faster.", "each has one batch"
    batches = guide_page([{**answer, "batch": each} for each in (1, 8)])["blocks"]
    (several,) = next(each["blocks"] for each in batches if each.get("id") == "best")
    assert several["caption"] == "Over all batches that were measured."


def test_compilation_pays_after_the_steps_that_make_up_for_it() -> None:
    fast = {"cold_compile_s": 3.0, "median_step_ns": 1e6}
    slow = {"cold_compile_s": 1.0, "median_step_ns": 2e6}
    row = {"faster": "jax", "log_ratio": 0.7, "of_a": fast, "of_b": slow}
    assert find_break_even(row) == 2000
    assert find_break_even({**row, "of_a": {**fast, "cold_compile_s": 0.5}}) == 0
    assert find_break_even({**row, "of_b": {**slow, "cold_compile_s": None}}) is None
    assert find_break_even({**row, "faster": None}) is None


def test_every_gate_links_to_a_page_or_a_word_that_exists() -> None:
    anchors = {each.id for each in list_terms()}
    assert len(anchors) == len(GLOSSARY)
    for *_, (_, address) in CHECKS:
        page, _, anchor = address.partition("#")
        assert page != "glossary.html" or anchor in anchors, address
