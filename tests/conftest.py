"""Fixtures shared by all tests: one state folder a session, and real framework environments."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
from cached_compiler import put_before
from duel_orders import copy_inside_ring
from forked_contenders import run_script
from hypothesis import HealthCheck, settings
from local_slurm import LocalSlurm, need_slurm
from postgres_server import serve_postgres
from prefect_server import Template, serve_prefect

from benchcore.environments.build import provision
from benchcore.environments.interpreters import find_interpreters
from benchcore.environments.version_requests import parse_request, resolve
from benchcore.planning.snapshot import hash_inside
from benchcore.protocol import DuelLimits, EnvironmentRecord
from benchcore.state import State, open_state
from benchcore.store.database import Engine, open_database
from benchcore.variables import VARIABLES
from tasks.unfair.framework_servers import FrameworkServers, fork_contenders, serve_frameworks

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")  # the tests fetch no Python
for _each in VARIABLES:
    if _each.name.startswith("DEADHEAT_"):  # settings of the machine that runs the tests
        os.environ.pop(_each.name, None)
# For scripts in a framework's Python; contenders have their own. Threads would wait for each
# other at every tiny operation, and Inductor's pool imports torch once more.
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", TORCHINDUCTOR_COMPILE_THREADS="1")
_ROOT = Path(__file__).parent.parent
_SETTINGS = ("DEADHEAT_", "PREFECT_")
_MINUTES = """
test_programs test_up test_plants test_slurm_campaign test_compare test_sweep test_automations
test_bisect test_tune test_real_metrics test_ladder test_nightly test_physics test_setting_effects
test_ceilings test_real_epochs test_real_duel test_wandb_runs test_confirm test_real_programs
test_deployment_runs test_shard_pools test_deployments
test_conductor test_defects test_suites test_equivalence test_docs test_disk_full
test_canary test_proofs test_profiles test_real_checkpoints test_slurm_worker test_real_products
test_measure test_release_watch test_broken_model test_calibration test_prefect_file
"""
"""Files that take minutes, the longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--engine postgresql` has every test of the store use a PostgreSQL."""
    parser.addoption("--engine", choices=("sqlite", "postgresql"), default="sqlite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker is left alone with it at the end."""
    order = {name: place for place, name in enumerate(_MINUTES.split())}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture
def state(tmp_path: Path) -> State:
    """An empty state folder."""
    return open_state(tmp_path / "state")


@pytest.fixture
def engine(state: State) -> Iterator[Engine]:
    """An empty SQLite; in `benchcore/store/` also of another engine."""
    opened = open_database(state.database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A copy of the measured layer that a test may break or add workloads to."""
    folder = tmp_path / "snapshot"
    copy_inside_ring(folder)
    return folder


@pytest.fixture(autouse=True)
def _suites_of_the_file(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Great Expectations' suites only those run that a file of tests names as SUITES, if it
    does: all of them take a second each time."""
    names = getattr(request.module, "SUITES", None)
    if names is not None:
        from data_checks.suites import list_suites

        assert {name for name, *_ in list_suites()} >= names
        monkeypatch.setattr(
            "data_checks.suites.list_suites",
            lambda: (each for each in list_suites() if each[0] in names),
        )


@pytest.fixture(autouse=True)
def _own_prefect() -> Iterator[None]:
    """A command that ran in this process leaves Prefect's settings and stored addresses behind, and
    the threads that send events and logs to *its* server, which another test's may not be sent
    to."""
    before = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    yield
    if senders := sys.modules.get("prefect.events.worker"):
        # In a thread of its own, as Playwright has a loop running in this one.
        ending = Thread(target=senders.EventsWorker.drain_all, kwargs={"timeout": 2})
        ending.start()
        ending.join()
    for name in [each for each in os.environ if each.startswith(_SETTINGS)]:
        del os.environ[name]
    os.environ.update(before)


def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the test run, which all its workers share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Duels of tests that run at the same time don't wait for each other."""
    os.environ["DEADHEAT_LOCKS"] = str(tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="session", autouse=True)
def _cached_compiler(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Inductor compiles a program once a test run."""
    if compiler := shutil.which("g++"):
        folder = put_before(compiler, _shared_folder(tmp_path_factory) / "compiled")
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def uncached_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that looks at how long a compilation takes."""
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(os.pathsep)[2])


@pytest.fixture(scope="session", autouse=True)
def _prefect_template(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prefect's tables are made once a test run."""
    Template.folder = _shared_folder(tmp_path_factory) / "prefect-template"


_LOOPS = (
    "CANCELLATION_CLEANUP", "CLEANUP_RECONCILER", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS",
    "REPOSSESSOR", "SCHEDULER", "TRIGGERS",
)  # fmt: skip
"""What a Prefect server does every few seconds for workers, schedules and automations. A server
that has none of them spends less than half of its idle CPU time without."""


@pytest.fixture(scope="session")
def _prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    idle = {f"PREFECT_SERVER_SERVICES_{each}_ENABLED": "false" for each in _LOOPS}
    folder = tmp_path_factory.mktemp("prefect")
    with serve_prefect(folder, {**os.environ, **idle}) as environment:
        yield environment["PREFECT_API_URL"]


@pytest.fixture(scope="module")
def prefect_api(_prefect_server: str) -> Iterator[None]:
    """One server for the campaigns of many tests: a temporary one each takes seconds to start. What
    is run in this process, which may have imported Prefect before, uses it, too."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        pytest.MonkeyPatch.context() as patched,
        temporary_settings({PREFECT_API_URL: _prefect_server}),
    ):
        patched.setenv("PREFECT_API_URL", _prefect_server)
        yield


@pytest.fixture(scope="session")
def session_state(tmp_path_factory: pytest.TempPathFactory) -> State:
    """A state folder that lives as long as the session, and that all its workers share;
    DEADHEAT_TEST_STATE keeps one for longer, so that the next run finds its environments built."""
    kept = os.environ.get("DEADHEAT_TEST_STATE")
    return open_state(Path(kept) if kept else _shared_folder(tmp_path_factory) / "state")


@pytest.fixture(scope="session")
def framework_environment(session_state: State) -> Callable[[str], EnvironmentRecord]:
    """Provisions the environment that a version request means, once a session."""
    built: dict[str, EnvironmentRecord] = {}

    def provide(request: str) -> EnvironmentRecord:
        if request not in built:
            release = resolve(parse_request(request), find_interpreters())
            built[request] = provision(
                release, session_state, accelerator="cpu", report=lambda text: None
            )
        return built[request]

    return provide


@pytest.fixture(scope="session")
def framework_python(
    framework_environment: Callable[[str], EnvironmentRecord],
) -> Callable[[str], Path]:
    """The Python of the newest environment of a framework."""
    return lambda framework: Path(framework_environment(framework).python)


@pytest.fixture(scope="module")
def short_blocks() -> Iterator[None]:
    """Duels that are planned meanwhile warm up and time briefly, unless they say how long. For
    tests of what a duel shows whatever its speed, or of a side that is many times slower."""
    defaults = DuelLimits.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(defaults, "block_ms", 10.0)
        patched.setitem(defaults, "warm_up_limit_s", 0.3)
        yield


@pytest.fixture(scope="session")
def framework_servers() -> Iterator[FrameworkServers]:
    """Processes that have imported a framework, and fork others."""
    with serve_frameworks() as servers:
        yield servers


@pytest.fixture(scope="session")
def run_in_framework(
    framework_python: Callable[[str], Path], framework_servers: FrameworkServers
) -> Callable[..., str]:
    """Runs a script in a framework's Python, which is 3.12 or later and has imported it; what the
    script prints."""

    def run(framework: str, script: str, *arguments: str, **late: str) -> str:
        late = {"PYTHONPATH": str(_ROOT), "CUDA_VISIBLE_DEVICES": "", **late}
        python = framework_python(framework)
        done = run_script(framework_servers, python, [framework], script, *arguments, **late)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def forking_ring(
    tmp_path_factory: pytest.TempPathFactory, framework_servers: FrameworkServers
) -> Path:
    """The measured layer, whose contenders are forked. For tests that look at no start."""
    ring = tmp_path_factory.mktemp("ring") / hash_inside()
    copy_inside_ring(ring)
    fork_contenders(ring, framework_servers)
    return ring


@pytest.fixture(scope="module")
def forked_contenders(forking_ring: Path) -> Iterator[None]:
    """Duels and proofs that run meanwhile use `forking_ring`: each framework is imported once."""
    with pytest.MonkeyPatch.context() as patched:
        for module in ("duels", "equivalence"):
            patched.setattr(
                f"benchcore.running.{module}.take_snapshot", lambda folder: forking_ring
            )
        yield


@pytest.fixture
def forking_snapshot(snapshot: Path, framework_servers: FrameworkServers) -> Path:
    """The same `snapshot`, whose contenders are forked from now on."""
    fork_contenders(snapshot, framework_servers)
    return snapshot


@pytest.fixture(scope="module")
def disturbed_blocks() -> Iterator[None]:
    """Blocks count though others use the machine, for tests of times that differ by a multiple."""
    with pytest.MonkeyPatch.context() as patched:
        for module in ("duels", "frames.raw_times"):
            patched.setattr(f"benchcore.store.{module}.find_degraded", lambda blocks: {})
        patched.setattr("benchcore.store.frames.ceilings.leave_out_degraded", list)
        yield


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL; each test makes a database of its own in it."""
    with serve_postgres(tmp_path_factory.mktemp("postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    """A real Slurm of two nodes with two make-believe GPUs each."""
    need_slurm()
    cluster = LocalSlurm(tmp_path_factory.mktemp("slurm"))
    cluster.start()
    yield cluster
    cluster.stop()
