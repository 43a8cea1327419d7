"""Exported files hold the numbers that count, with their provenance, and nothing else."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from command_line import run_here
from dashboard_nights import ADHOC, NIGHTS, name_night
from manual import ROOT

from benchcore.errors import UserError
from benchcore.state import State
from benchcore.store.database import open_database
from benchcore.store.frames.ratios import ratio_frame
from benchcore.store.history.events import EVENT_COLUMNS
from benchcore.store.reports.export import MEASUREMENT_COLUMNS, RATIO_COLUMNS, export_tables
from dashboards.export import write_csv, write_tables
from dashboards.figures.paper_figures import list_costs
from dashboards.readme import BEGIN, END

LAST = name_night(NIGHTS - 1)
_SIDE = {"framework": "jax", "version": "1", "arm": "jax-jit"}
HOSTILE = pd.DataFrame(
    [
        {
            "workload": "mlp",
            "case_name": "tiny_infer",
            "use_case": "infer",
            "batch": 8,
            "precision": "fp32_ieee",
            "track": "default",
            "device_model": "<b>|",
            "kind": "k",
            **{f"{side}_{name}": value for side in "ab" for name, value in _SIDE.items()},
            "speedup": 2.0,
            "low": 1.0,
            "high": 3.0,
            "verdict": "v",
            "started_at": "2026-01-01",
        }
    ]
)


def test_only_what_counts_is_exported_and_each_row_names_its_document(nights: State) -> None:
    engine = open_database(nights.database_url)
    names = [name_night(3), LAST, ADHOC]
    tables = export_tables(engine, names)
    ratios, measured = tables["ratios"], tables["measurements"]
    stored = ratio_frame(engine, names)
    counting = stored.loc[stored["counts"].eq(True)]
    assert 0 < len(counting) < len(stored) and len(ratios) == len(counting)
    assert sorted(ratios["speedup"]) == pytest.approx(sorted(map(math.exp, counting["log_ratio"])))
    assert tuple(ratios.columns) == RATIO_COLUMNS and tuple(measured.columns) == MEASUREMENT_COLUMNS
    for frame in (ratios, measured):
        assert set(frame["campaign"]) == {name_night(3), LAST}  # nothing of the run counts
        assert (
            frame[["duel_run", "duel_hash", "snapshot", "harness_version"]].notna().all(axis=None)
        )
    assert ratios[["a_environment_key", "b_environment_key"]].notna().all(axis=None)
    assert set(measured["duel_run"]) == set(ratios["duel_run"])
    assert len(tables["events"]) == 1 and "blocks" not in tables
    assert tuple(tables["events"].columns) == EVENT_COLUMNS
    empty = export_tables(engine, [ADHOC])
    assert empty["ratios"].empty and tuple(empty["ratios"].columns) == RATIO_COLUMNS


def test_without_an_event_the_table_has_its_columns(tmp_path: Path) -> None:
    tables = export_tables(open_database(f"sqlite:///{tmp_path / 'new.db'}"), [])
    assert tables["events"].empty and tuple(tables["events"].columns) == EVENT_COLUMNS


def test_the_command_writes_every_format_with_hashes(nights: State, tmp_path: Path) -> None:
    if find_spec("pyarrow") is None:
        if os.environ.get("CI"):
            pytest.fail("wanted pyarrow, found none; install the group dev")
        pytest.skip("pyarrow is not installed")
    unknown = run_here("export", "--campaign", "never", "--state", str(nights.root))
    assert unknown.returncode == 2
    assert LAST in unknown.stderr and "choose one of them with --campaign" in unknown.stderr
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n{BEGIN}\nold\n{END}\nend\n")
    formats = [f"--format={each}" for each in ("csv", "json", "parquet", "latex", "markdown")]
    command = ["export", "--folder", str(tmp_path / "out"), "--state", str(nights.root)]
    done = run_here(*command, *formats, "--campaign", LAST, "--readme", str(readme), "--blocks")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())
    assert manifest["campaigns"] == [LAST]
    for each in manifest["files"]:
        content = (tmp_path / "out" / each["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each["sha256"]
    of_csv = list(csv.DictReader((tmp_path / "out" / "ratios.csv").read_text().splitlines()))
    of_json = json.loads((tmp_path / "out" / "ratios.json").read_text())
    of_parquet = pd.read_parquet(tmp_path / "out" / "ratios.parquet")
    speedups = [[float(row["speedup"]) for row in rows] for rows in (of_csv, of_json)]
    assert speedups[0] == pytest.approx(speedups[1]) and len(of_parquet) == len(of_csv) > 0
    assert list(of_parquet["speedup"]) == pytest.approx(speedups[0])
    blocks = pd.read_csv(tmp_path / "out" / "blocks.csv")
    measured = pd.read_csv(tmp_path / "out" / "measurements.csv")
    assert len(blocks) == len(measured) * 5 * 6, "starts and rounds"
    same = ["duel_run", "framework", "version", "arm"]
    medians = blocks.groupby([*same, "start"])["step_ns"].median().groupby(same).median()
    expected = measured.set_index(same)["median_step_ns"]
    assert dict(medians) == pytest.approx(dict(expected), rel=0.02)
    models = (tmp_path / "out" / "models.tex").read_text()
    assert "ResNet-50 & 25.56 & 8.178 & 24.3" in models and "ViT-B/16 & 86.57" in models
    for name in ("throughput", "latency", "memory", "scaling"):
        assert (tmp_path / "out" / f"figure-{name}.pdf").read_bytes().startswith(b"%PDF"), name
    assert not (tmp_path / "out" / "figure-energy.pdf").exists(), "energy was not measured"
    listed = {each["file"]: each["rows"] for each in manifest["files"]}
    assert listed["figure-throughput.pdf"] > listed["figure-scaling.pdf"] > 0
    latex = (tmp_path / "out" / "throughput.tex").read_text()
    assert "ResNet-50, inference, batch 4, fp32" in latex and r"\toprule" in latex
    summary = (tmp_path / "out" / "summary.md").read_text().splitlines()
    assert summary[0].startswith("| Case | Device | A | B | Speedup of A over B (95 %) |")
    assert len(summary) - 2 == listed["summary.md"] <= len(of_csv)
    assert any(row.startswith("| ResNet-50, inference, batch 4, fp32 | ") for row in summary)
    text = readme.read_text()
    assert "| MLP, inference, batch 8, fp32 | " in text and "old" not in text
    assert text.startswith("# Mine\n") and text.endswith("\nend\n")

    for wrong in (["--format", "xls"], ["--campaign", "none"], ["--readme", str(tmp_path / "no")]):
        refused = run_here(*command, *wrong, "--folder", str(tmp_path / "refused"))
        assert refused.returncode == 2 and wrong[1][:4] in refused.stderr
        assert not (tmp_path / "refused").exists()


def test_energy_has_a_latex_table_and_a_figure_where_it_was_measured(
    nights: State, tmp_path: Path
) -> None:
    tables = export_tables(open_database(nights.database_url), [LAST])
    measured = tables["measurements"]
    others = dict.fromkeys(("items_per_s", "latency_p50_ns", "process_peak_bytes"), math.nan)
    energy = measured["framework"].map({"jax": 1234.0, "torch": 2345.5})
    measured = measured.assign(**others, gross_mj=energy)
    write_tables(tmp_path, {**tables, "measurements": measured}, ["latex"], {})
    files = {each.name for each in tmp_path.iterdir()}
    assert files == {"energy.tex", "figure-energy.pdf", "models.tex", "export.json"}
    latex = (tmp_path / "energy.tex").read_text().splitlines()
    assert latex[1] == r"\caption{Energy per step in mJ}"
    (head,) = (each for each in latex if "JAX 0.12.1" in each)
    (row,) = (each for each in latex if each.startswith("ResNet-50, inference, batch 4, fp32"))
    cells = dict(zip(head.rstrip(" \\").split(" & "), row.rstrip(" \\").split(" & "), strict=True))
    assert (cells["JAX 0.12.1"], cells["PyTorch eager 2.15.0"]) == ("1234", "2346")
    assert (tmp_path / "figure-energy.pdf").read_bytes().startswith(b"%PDF")
    drawn = list_costs(measured, "energy")
    manifest = json.loads((tmp_path / "export.json").read_text())
    listed = {each["file"]: each["rows"] for each in manifest["files"]}
    assert listed["figure-energy.pdf"] == len(drawn) > 6
    assert {each["arm"].partition(" ")[0]: each["value"] for each in drawn} == (
        {"JAX": 1234.0, "PyTorch": 2345.5}
    )


def test_the_docs_map_what_benchmark_scripts_write_to_columns_that_exist() -> None:
    text = (ROOT / "docs" / "export.md").read_text()
    table = text.partition("| wanted | column | unit |")[2].partition("\n\n")[0]
    found = {
        wanted: re.findall(r"`(\w+)`", columns)
        for wanted, columns in re.findall(r"^\| ([a-z ]+) \| (.+?) \|", table, re.MULTILINE)
    }
    assert {"model", "batch size", "throughput", "latency", "memory", "energy"} <= set(found)
    named = [column for columns in found.values() for column in columns]
    assert [each for each in named if each not in MEASUREMENT_COLUMNS] == []
    assert all(found.values())


def test_hostile_text_is_defused_and_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["=cmd()", "-1 is text"], "low": [-0.5, math.nan]})
    assert write_csv(frame).decode().splitlines() == ["name,low", "'=cmd(),-0.5", "'-1 is text,"]
    (written, _) = write_tables(tmp_path / "md", {"ratios": HOSTILE}, ["markdown"], {})
    assert "\\<b\\>" in written.read_text() and "<b>" not in written.read_text()
    with pytest.raises(UserError, match="no format 'exe'"):
        write_tables(tmp_path / "new", {}, ["exe"], {})
    assert not (tmp_path / "new").exists()
