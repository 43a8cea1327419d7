"""`docs/add-a-metric.md` is applied as it stands, in a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from manual import ROOT, find_blocks

MANUAL = ROOT / "docs" / "add-a-metric.md"
_USE = """
import sys
from pathlib import Path

from result_documents import CAMPAIGN, make_document, spool_document

from benchcore.cell.measure.metric_probes import probe_metrics
from benchcore.state import open_state
from benchcore.store.database import open_database
from benchcore.store.frames.contenders import contender_frame
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.reports.campaign import list_contenders
from dashboards.listings.tables import list_costs, measured_costs
from flows.cli.report import print_costs

document = make_document()
for start in document["contenders"][0]["starts"]:
    start["measured"] = probe_metrics()
assert document["contenders"][0]["starts"][0]["measured"]["page_faults"] > 0
state = open_state(Path(sys.argv[1]))
spool_document(state.spool, document)
engine = open_database(f"sqlite:///{state.root / 'a.db'}")
report = ingest_spool(engine, state)
assert report.rejected == (), report.rejected
contenders = contender_frame(engine, CAMPAIGN)
measured, unmeasured = contenders["page_faults"]
assert measured > 0 and unmeasured != unmeasured
rows = list_costs(contenders)
assert measured_costs(rows)["page_faults"] == "Page faults"
assert rows[1]["page_faults"] == "not measured"
print_costs(list_contenders(engine, CAMPAIGN))
"""


def test_a_metric_is_added_as_documented_in_two_files(tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    for name in ("benchcore", "dashboards", "data_checks", "flows", "tasks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    changed = set[str]()
    for diff in find_blocks(MANUAL, "diff"):
        changed |= set(re.findall(r"^\+\+\+ b/(\S+)", diff, re.MULTILINE))
        apply = ["git", "apply", "--recount", "-"]
        subprocess.run(apply, input=diff, text=True, check=True, cwd=copy, env={"PATH": "/usr/bin"})
    assert len(changed) == 2
    done = subprocess.run(
        [sys.executable, "-c", _USE, str(tmp_path / "state")],
        cwd=copy,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{copy}:{ROOT / 'tests'}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "page faults" in done.stdout
