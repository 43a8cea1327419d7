"""Size is a budget: raising a number here is a one-line diff with its reason in the commit."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks")
# + 500: ceilings and the physics gate, degraded blocks, crash ladder; + 400: cell/stopping.py,
# comparison.py, flows/commands/compare.py; + 800: latency, memory, energy; + 900: canary,
# parity; + 250: devices by name, ladder of a whole life; + 750: the profile pass; + 200: parity
# beside each ratio, costs in reports, the profile h100 (#3); + 1150: the equivalence pass, its
# command, rows and checks (#4); + 200: MIG, large results let go, disturbed blocks counted (#3);
# + 100: profiles and costs on the dashboard (#4);
# + 150: Python's calls in a step (#3); + 50: what `compare` tells (#3)
# + 50: compilation with empty and with filled caches, and throughput, in frames and tables (#3)
# + 100: outliers, verdicts over nodes; + 100: cold compilation, ceilings of `compare` (#3)
# + 900: the rest of the crash ladder: causes, HLO kept, prices, what is still needed (#3)
# + 450: bottleneck classes, in verdict/, store/, reports and the page (#4)
# + 1150: the defect study: switches, what they move, command and page (#4)
# + 700: programs and their differences, the waterfall with its page (#4)
# + 1550: image folders: scan, producer, epochs as rows, `deadheat train` (#4)
# + 400: the local Slurm's script (#5)
# + 250: Slurm sites, allocations and the batch script (#5)
# + 500: checkpoints of users: read safely, in orders, proofs and rows (#4)
# + 550: Slurm's states, its commands, and the worker type `slurm` (#5)
# + 150: links to the other pages of a site, programs on the page (#4)
# + 400: verdicts over allocations, and `deadheat judge` on anyone's numbers (#7)
# + 750: shards: packed, placed, handed to Slurm and waited for (#5)
# + 850: verdict/{history,steps,nights}.py, and `deadheat detect` on anyone's history (#7)
# + 250: shards stop in time, are placed by one process, results remember their job (#5)
# + 1800: from suspicions to events: series, confirmation, attribution, certificates (#7)
# + 400: a GPU a lane, allocations apart, pools chosen, crashes told by Slurm, proofs in time (#5)
# + 1650: deployments, the form, `deadheat up`, the release watch (#6)
# + 100: alerts of events and releases (#7)
# + 1300: wide analysis (#5), and room for what is being built (#6, #7)
# + 650: trials of our own verdicts: the files calibration.py (#7)
# + 650: bisect over versions: the files bisection.py, flows/commands/bisect.py (#7)
# + 300: the machine's own probe in confirmations (#7)
# + 250: flows/server/postgres.py, a secret for Prefect's server, flows/deployed/calibrate.py (#6)
# + 650: bisect over dependencies: the files dependencies.py (#7)
# + 150: two modes of a history, shown (#7)
# + 150: flows/deployed/bisect.py, the form that bisects (#6); a full disk, told (#5)
# + 100: drifts that bend, noise of few nights (#7)
# + 250: deployments of a site's pools, the same undone; what is cancelled, given back (#6)
# + 100: logs of contenders and progress on the pages of runs (#6)
# + 50: verdict/prospects.py, what a confirmation begins with (#7)
# + 150: versions that forms offer, pages withdrawn (#6)
MAX_LINES = 32100
# + 100: when a duel stops, cell/stopping.py; + 550: cell/passes.py and its like; + 250: foreign CPU
# time in cell/host.py, cell/ladder.py; + 550: the canary, what is read back of both sides;
# + 200: devices by name, ladder of a whole life, degraded blocks; + 450: cell/trace.py, cell/hlo.py
# and the profiles of both frameworks (#3); + 400: cell/{oracle,prover,witness}.py (#4);
# + 250: MIG in cell/gpu.py, cell/degraded.py from verdict/, large results let go (#3);
# + 50: cell/python_calls.py; + 50: cold compilation in a process of its own (#3)
# + 450: cell/causes.py, cell/hlo_dump.py, what a ladder leaves in the result (#3)
# + 100: cell/generated_code.py, operators of eager steps (#4)
# + 450: cell/{epochs,feed,ring,supply,turns}.py (#4)
# + 100: cell/weights.py, and whose weights a result is of (#4)
# + 20: evidence of batches as an epoch takes them (#4)
# + 30: the Slurm job around a duel, in its order and its result (#5)
# + 50: cell/handicap.py (#7)
# + 150: cell/machine_probe.py, what a confirmation measures without a framework (#7)
MAX_INSIDE_LINES = 5800
MAX_FILE_LINES = 400


def _count(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def _sources() -> list[Path]:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return [file for file in files if "workloads" not in file.parts]


def test_the_whole_stays_small() -> None:
    assert _count(_sources()) <= MAX_LINES


def test_the_inside_ring_stays_small() -> None:
    ring = [ROOT / "benchcore" / name for name in ("program.py", "protocol.py")]
    assert _count([*ring, *(ROOT / "benchcore" / "cell").rglob("*.py")]) <= MAX_INSIDE_LINES


def test_no_file_outgrows_a_screenful_of_screens() -> None:
    long = [file for file in _sources() if _count([file]) > MAX_FILE_LINES]
    assert not long


def test_names_say_what_is_inside() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
    assert not [file for file in _sources() if file.stem in vague or file.parent.name in vague]
