"""A campaign of a workload that is another function on one side, from its plan to its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from duel_orders import copy_inside_ring

from benchcore.planning.profiles import Match, Profile
from benchcore.planning.requests import Placement
from benchcore.planning.snapshot import hash_inside
from benchcore.planning.tracks import JAX_NEWEST, TORCH_EAGER
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.running import duels, equivalence, plans
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.incoming.documents import read_document
from benchcore.store.incoming.ingest import ingest_spool
from benchcore.store.incoming.proofs import list_proofs
from benchcore.store.reports.campaign import judge_and_list
from dashboards.publish import publish_campaign
from dashboards.website.files import WebsiteFiles
from data_checks.check import check_campaign
from tasks.unfair.framework_servers import FrameworkServers, fork_contenders

pytestmark = pytest.mark.provisions
PROFILE = Profile(
    name="broken",
    matches=(
        Match(
            workload="mlp",
            case="tiny_infer_bf16",
            arms=(JAX_NEWEST, TORCH_EAGER),
            expected_s=1,
        ),
    ),
    limits=DuelLimits(starts=2, rounds=4, block_ms=1.0, warm_up_limit_s=0.2, budget_s=20.0),
)


@pytest.fixture
def state(
    session_state: State,
    framework_environment: Callable[[str], EnvironmentRecord],
    tmp_path: Path,
) -> State:
    """A state folder of its own, but for the session's environments."""
    for request in ("jax@newest", "torch@newest"):
        framework_environment(request)
    state = open_state(tmp_path / "state")
    state.environments.rmdir()
    state.environments.symlink_to(session_state.environments)
    return state


def test_a_broken_model_gets_no_ratio_onto_the_page(
    state: State,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    framework_servers: FrameworkServers,
) -> None:
    """Its mistake is so small that the outputs agree, in float32 too: only the proof shows it."""
    ring = tmp_path / hash_inside()
    copy_inside_ring(ring)
    broken = ring / "benchcore" / "workloads" / "mlp" / "in_torch.py"
    source = broken.read_text()
    assert "nn.ReLU()" in source
    broken.write_text(source.replace("nn.ReLU()", "nn.LeakyReLU(1e-6)"))
    fork_contenders(ring, framework_servers)
    for module in (duels, equivalence):
        monkeypatch.setattr(module, "take_snapshot", lambda folder: ring)

    plan = plans.plan_campaign(PROFILE, Placement(campaign="broken"), state)
    (wanted,) = equivalence.list_campaign_proofs(plan, state)
    equivalence.prove(wanted, state, lambda text: None, repeat=False)
    (row,) = list_proofs(open_database(state.database_url), equivalence.proof_subject(wanted))
    assert not row["passed"] and "not the same function" in row["reason"]
    assert row["a_error"] <= row["a_bound"] and row["b_error"] <= row["b_bound"]
    assert row["first_drift"] == "layer/fc1"
    (duel,) = plan.duels
    document = read_document(duels.measure_duel(plan, duel, state))
    assert [each["status"] for each in document["contenders"]] == ["ok", "ok"]
    assert all(row["agrees"] for row in document["equivalence"])

    engine = open_database(state.database_url)
    ingest_spool(engine, state)
    check_campaign(engine, "broken")
    (ratio,) = judge_and_list(engine, "broken")
    assert not ratio["counts"]
    publish_campaign(state, "broken")
    page = WebsiteFiles(state.website).read("campaigns/broken")
    assert page["sentence"].startswith("Nothing counts: in 1 of 1 pairs")
    assert "not the same function" in str(page["blocks"])
    (cell,) = page["cells"]
    assert not cell["counts"] and cell["metrics"] == {}
    tables = str(page["blocks"])
    assert "'void'" in tables and not re.findall(r"\d+(?:\.\d+)?x \(", tables)
