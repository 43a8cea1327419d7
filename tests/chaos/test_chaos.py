"""Trials notice every kind of damage, and a few faults of a short seeded run are survived."""

from __future__ import annotations

import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from command_line import run_here

from flows.chaos import processes
from flows.chaos.faults.fault import do_nothing
from flows.chaos.night import CAMPAIGN
from flows.chaos.own_slurm import RefusedError
from flows.chaos.proxy import Proxy
from flows.chaos.runner import FAULTS, StateTemplate, make_template, run_trials, tabulate
from flows.chaos.trial import (
    MissedError,
    Run,
    Trial,
    TrialOutcome,
    find_doubled,
    find_lost,
    hash_documents,
    run_trial,
)
from flows.server.postgres import find_postgres

SHORT = (
    "contender: SIGKILL",
    "conductor: SIGKILL",
    "node: everything killed",
    "job: suspended and resumed",
    "document: cut",
    "database: pages overwritten",
    "snapshot: file emptied",
    "control group: contender out of memory",
    "PostgreSQL: connections ended again and again",
)
WELL = Run(code=0, stderr="", seconds=1.0, hung=False, orphans=())
GOOD = TrialOutcome(fault="f", first=WELL, again=WELL, lost=(), doubled=())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateTemplate]:
    """It has run a night without a fault, twice."""
    with ExitStack() as stack:
        yield make_template("measuring", tmp_path_factory.mktemp("chaos"), stack)


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost_or_doubled(template: StateTemplate, name: str, tmp_path: Path) -> None:
    faults = [each for each in FAULTS if each.name == name]
    lines: list[str] = []
    outcomes = run_trials(template, faults, times=1, seed=7, folder=tmp_path, report=lines.append)
    if not outcomes and name.startswith("PostgreSQL") and isinstance(find_postgres(), str):
        pytest.skip("PostgreSQL is not installed")
    if not outcomes and name.startswith("control group"):
        pytest.skip("this process may not limit the memory of others")
    assert [each.is_good for each in outcomes] == [True], lines


_INTERRUPTED = """
import os, signal, subprocess, sys
from pathlib import Path
from flows.chaos.starting import heed_interrupts, start_command
heed_interrupts()
night = start_command(("sleep", "30"), os.environ, Path(sys.argv[1]))
night.send_signal(signal.SIGINT)
print(night.wait(20))
"""


def test_a_night_is_interrupted_also_where_this_process_ignores_it(tmp_path: Path) -> None:
    """As a job in the background of a shell does."""
    python = (sys.executable, "-c", _INTERRUPTED, str(tmp_path / "log"))
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *python]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "-2", done


def test_there_are_thirty_kinds_with_names_of_their_own() -> None:
    names = [each.name for each in FAULTS]
    assert len({*names}) == len(names) >= 30


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"lost": ("a",)}, "lost"),
        ({"doubled": ("a",)}, "doubled"),
        ({"first": replace(WELL, orphans=("a",))}, "orphans"),
        ({"again": replace(WELL, hung=True)}, "hung"),
        ({"first": replace(WELL, code=1, stderr="Traceback (most")}, "unexplained"),
        ({"first": replace(WELL, code=1, stderr="no advice")}, "unexplained"),
        ({"again": replace(WELL, code=1, stderr="deadheat: x")}, "recovered"),
    ],
)
def test_each_kind_of_damage_is_counted(change: dict[str, object], column: str) -> None:
    bad = replace(GOOD, **change)  # pyright: ignore[reportArgumentType]
    assert GOOD.is_good and not bad.is_good
    good_row, bad_row = (tabulate([each])[0] for each in (GOOD, bad))
    assert {key for key in good_row if good_row[key] != bad_row[key]} == {column}


def _make_trial(template: StateTemplate, folder: Path) -> Trial:
    state = folder / "state"
    subprocess.run(["cp", "-r", str(template.state), str(state)], check=True)
    return Trial(folder, "measuring", random.Random(1), limit_s=1.0)


def _instead(trial: Trial, program: str) -> None:
    """Run this program as the night."""
    trial.prefix = (sys.executable, "-S", "-c", program)


def test_a_night_that_hangs_and_leaves_a_process_is_noticed(
    template: StateTemplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_ENDING_S", 0.2)
    trial = _make_trial(template, tmp_path)
    program = (
        "import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', "
        "'import time; time.sleep(60)', sys.argv[-2]]); time.sleep(60)"
    )
    outcome = run_trial("hangs", lambda trial: _instead(trial, program), do_nothing, trial)
    assert outcome.first.hung and len(outcome.first.orphans) == 1, outcome
    assert not outcome.is_good


def test_a_fault_that_waits_for_a_night_that_hangs_ends(
    template: StateTemplate, tmp_path: Path
) -> None:
    """As for a conductor whose night is stopped, and so never reaped."""
    trial = _make_trial(template, tmp_path)
    program = "import time; time.sleep(60)"
    outcome = run_trial(
        "waits", lambda trial: _instead(trial, program), lambda t: t.find("conductor"), trial
    )
    assert outcome.first.hung and not outcome.is_good


def test_what_is_lost_or_measured_again_is_noticed(template: StateTemplate, tmp_path: Path) -> None:
    trial = replace(_make_trial(template, tmp_path), limit_s=60)
    assert run_trial("none", do_nothing, do_nothing, trial).is_good
    before = hash_documents(trial.state)
    changed, gone = sorted((trial.state.spool / CAMPAIGN).glob("*.json"))
    assert (find_lost(trial), find_doubled(trial, before)) == ([], [])
    changed.write_text(changed.read_text() + " ")
    aside = gone.parent / "void" / gone.name
    aside.parent.mkdir()
    gone.rename(aside)
    assert (find_lost(trial), find_doubled(trial, before)) == ([gone.stem], [changed.stem])
    aside.unlink()
    assert find_doubled(trial, before) == [changed.stem, gone.stem]
    (trial.state.root / "deadheat.db").write_bytes(b"no database" * 500)
    assert "not a database" in find_lost(trial)[0]


def test_a_fault_that_comes_late_does_not_count(template: StateTemplate, tmp_path: Path) -> None:
    trial = _make_trial(template, tmp_path)
    late = pytest.raises(MissedError)
    with late:
        run_trial("late", lambda trial: _instead(trial, "pass"), lambda t: t.sleep(9), trial)


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        made = Proxy(server.server_port)
        yield made
        made.close()
        server.shutdown()


def test_a_proxy_fails_on_request(proxy: Proxy) -> None:
    def get() -> object:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{proxy.port}/", timeout=0.3) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError as error:
            return type(error).__name__

    found = [get()]
    for failure in ("500", "503", "refused", "silent", None):
        proxy.fail(failure)
        found.append(get())
    assert found[:3] == [200, 500, 503] and found[5] == 200
    assert "Error" in str(found[3]) or "Disconnected" in str(found[3])
    assert found[4] == "TimeoutError"


def test_the_command_lists_faults_and_refuses_unknown_ones() -> None:
    listed = run_here("chaos", "--list", "--json")
    assert listed.returncode == 0 and "contender: SIGCONT storm" in listed.stdout
    refused = run_here("chaos", "--only", "no such fault")
    assert refused.returncode == 2 and "--list" in refused.stderr


def test_a_database_that_is_not_there_yet_cannot_be_damaged(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "command", random.Random(0), 1.0, None)
    for fault in FAULTS:
        if fault.name in (
            "own server: database damaged",
            "own server: database locked for a while",
        ):
            with pytest.raises(MissedError, match="no database yet"):
                fault.inject(trial)


class _Cluster:
    """A job runs on one of its nodes; the first command comes too late for it."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def list_jobs(self, *_: str) -> list[tuple[str, str]]:
        return [("7", "gpu1")]

    def run(self, *command: str) -> str:
        self.given.append(" ".join(command))
        if len(self.given) == 1:
            raise RefusedError
        return ""

    def kill_daemon(self, *words: str) -> Callable[[], None]:
        self.given.append("kill " + " ".join(words))
        return lambda: self.given.append("start " + " ".join(words))


def test_many_shards_are_struck_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a job ends before it is struck; a node comes back before the command ends."""
    (fault,) = [each for each in FAULTS if each.name.startswith("Slurm: 50 shards")]
    cluster: Any = _Cluster()
    trial = Trial(tmp_path, "slurm", random.Random(2), 1.0, slurm=cluster)
    monkeypatch.setattr(trial, "sleep", lambda _: None)
    monkeypatch.setattr(trial, "wait_for", lambda look, _: look())
    fault.inject(trial)
    urgent = ("sbatch", "scancel --signal=KILL", "scancel 7", "scontrol update jobid=7 EndTime=")
    lost = ("kill slurmd gpu1", "scontrol update nodename=gpu1 state=down", "start slurmd gpu1")
    for command in (*urgent, *lost):
        assert any(each.startswith(command) for each in cluster.given), cluster.given
