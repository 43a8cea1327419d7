"""The manual builds without a warning, and its commands can be run."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import typer
from image_folders import write_digits
from manual import (
    PAGES,
    ROOT,
    BrokenCommandError,
    check_command,
    find_blocks,
    find_commands,
)
from safetensors.numpy import save_file
from typer.testing import CliRunner

from benchcore.planning.catalog import load_spec
from benchcore.planning.profiles import PROFILES
from benchcore.running.sites import Site, load_site
from benchcore.running.slurm.allocation import Allocation
from benchcore.state import State
from benchcore.variables import VARIABLES
from dashboards.website.pages import PAGES as DASHBOARD_PAGES
from data_checks.suites import list_suites
from flows.cli.main import app, load_commands
from flows.server.automations import list_automations
from flows.server.deployments import DeployOptions, list_deployments
from tasks.server.apply import Targets

SITES = [block for page in PAGES for block in find_blocks(page, "toml")]
NEW_WORKLOAD = ROOT / "docs" / "add-a-workload.md"
COMMANDS = {
    command.removeprefix(".venv/bin/"): f"{page.relative_to(ROOT).with_suffix('')}-{number}"
    for page in reversed(PAGES)
    for number, command in enumerate(find_commands(page))
}
_READ = {"workloads": (0,), "plan": (0,), "shard": (0,), "verify": (0, 1)}
"""What shows something and changes nothing, with the exit codes it may have."""
_MEASURE = ("run", "compare", "seed0", "sweep", "defects", "waterfall", "train", "tune", "nightly")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs")
    recipe = re.search(r"^docs: sync\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    command = recipe[1].replace("dist/docs", str(folder)).replace(".venv/bin/", "")
    program, *options = shlex.split(command)
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


def _read_page(built: Path, name: str) -> str:
    return re.sub(r"<[^>]+>", "", (built / f"{name}.html").read_text())


def test_the_reference_lists_every_command_key_profile_variable_and_check(built: Path) -> None:
    commands = _read_page(built, "commands")
    group = load_commands()
    for name, command in group.commands.items():
        for whole in [f"{name} {each}" for each in getattr(command, "commands", {})] or [name]:
            assert f"deadheat {whole}" in commands
    for parameter in group.commands["compare"].params:
        assert parameter.opts[0] in commands
    configuration = _read_page(built, "configuration")
    for model in (Site, Allocation):
        assert all(key in configuration for key in model.model_fields)
    assert "Whether no other job may share the nodes." in configuration
    assert all(name in configuration for name in PROFILES)
    assert all(each.name in _read_page(built, "variables") for each in VARIABLES)
    assert "Stop adding starts after this many minutes" in _read_page(built, "ad-hoc")
    checks = _read_page(built, "checks").replace("\u2019", "'")
    metas = [each.meta or {} for *_, listed in list_suites() for each in listed]
    named = [each["name"] for each in metas]
    assert len(named) > 30
    assert [name for name in named if name not in checks] == []
    described = {each.description for *_, listed in list_suites() for each in listed} - {None}
    assert len(described) == 3 and all(str(each) in checks for each in described)
    assert "use_case is infer" in checks and "operator=" not in checks
    meanings = (
        (each.meta or {}).get("meaning", "") for *_, listed in list_suites() for each in listed
    )
    assert [each for each in meanings if re.fullmatch(r"\{\w+\}", each)] == []  # no bare column


def test_the_pictures_are_on_the_site(built: Path) -> None:
    shown = re.findall(r'<img [^>]*src="([^"]+)"', (built / "ad-hoc.html").read_text())
    assert len(shown) >= 3
    assert all((built / each).is_file() for each in shown)


def test_the_readme_lists_every_variable_as_the_code_does() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", PAGES[0].read_text(), re.MULTILINE)
    assert dict(rows) == {each.name: each.meaning for each in VARIABLES}


def test_the_manual_explains_every_page_of_the_dashboard() -> None:
    text = (ROOT / "docs" / "dashboard.md").read_text()
    explained = set(re.findall(r"^(?:- )?\*\*(\w+)\*\*", text, re.MULTILINE))
    assert explained == {each.nav or each.title for each in DASHBOARD_PAGES}


def test_every_page_of_the_manual_ends_with_what_to_do_next() -> None:
    pages = [each for each in (ROOT / "docs").glob("*.md") if each.name != "index.md"]
    lacking = [each.name for each in pages if "\n\nNext: " not in each.read_text()[-400:]]
    assert len(pages) > 20 and not lacking


def test_the_manual_lists_every_deployment_with_its_queue_and_every_automation(
    tmp_path: Path,
) -> None:
    text = (ROOT / "docs" / "prefect.md").read_text()
    site = load_site("slurm-local")
    request = DeployOptions(
        site=site, profile="ci", cron="0 2 * * *", timezone="UTC", root=tmp_path
    )
    listed = list_deployments(request)
    made = {each.full_name: each.work_queue_name or "default" for each in listed}
    pools = {made.pop(f"measure-shard/slurm-local-{pool}") for pool in site.pools}
    listed_in_docs = re.findall(r"^\| `(\S+/\S+)` \| .+ \| `(\w+)` \|$", text, re.MULTILINE)
    assert dict(listed_in_docs) == {**made, "measure-shard/SITE-POOL": pools.pop()} and not pools
    targets = Targets(deployments=dict.fromkeys(made, uuid4()), webhook=uuid4())
    ruled = {each.name for each in list_automations(targets, missing_after=timedelta(hours=26))}
    assert set(re.findall(r"^\| `(deadheat: [a-z ]+)` \|", text, re.MULTILINE)) == ruled


def test_no_undocumented_variable_is_read() -> None:
    """Those that one process of ours sets for another are not for users."""
    inner = {
        "DEADHEAT_SERVICE": "flows/server/services.py marks what it starts",
        "DEADHEAT_SLOT_CPUS": "a shard passes its slots to its duels",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "of runs of a deployment",
        "PREFECT_WORKER_QUERY_SECONDS": "of the worker that chaos starts",
        "PREFECT__FLOW_RUN_ID": "Prefect sets it for a job",
        "PREFECT_SERVER_API_AUTH_STRING": "of Prefect's server",
        "PREFECT_API_DATABASE_CONNECTION_URL": "of Prefect's server",
    }
    settled = {
        node.value
        for node in ast.walk(
            ast.parse((ROOT / "flows" / "server" / "temporary_api.py").read_text())
        )
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    known = {each.name for each in VARIABLES} | set(inner) | settled
    packages = ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks")
    for path in (path for each in packages for path in (ROOT / each).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = re.fullmatch(r"(DEADHEAT|PREFECT)_[A-Z_]+", node.value)
                listed_in_docs = name is None or node.value in known
                assert listed_in_docs, f"{path}: declare {node.value} in benchcore/variables.py"


@pytest.fixture
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manual's sites, in the folder that it names."""
    folder = tmp_path / "deadheat-sites"
    folder.mkdir()
    for block in SITES:
        (folder / f"{tomllib.loads(block)['name']}.toml").write_text(block)
    monkeypatch.setenv("DEADHEAT_SITES", str(folder))
    monkeypatch.setenv("PREFECT_API_URL", "http://login.example:4200/api")
    return folder


def test_the_sites_of_the_manual_can_be_read(sites: Path) -> None:
    assert len(SITES) >= 2
    assert {load_site(path.stem).kind for path in sites.iterdir()} == {"local", "slurm"}


def test_a_server_that_others_reach_is_started_with_a_password() -> None:
    started = [
        block
        for page in PAGES
        for block in find_blocks(page, "console")
        if "prefect server start" in block
    ]
    assert started
    assert all("export PREFECT_SERVER_API_AUTH_STRING=" in block for block in started)


@pytest.mark.usefixtures("sites")
@pytest.mark.parametrize("command", COMMANDS, ids=COMMANDS.get)
def test_the_manuals_commands_can_be_run(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only reads is run, what measures is planned up to where measuring would begin, and
    everything else is parsed."""
    check_command(command)
    program, *arguments = shlex.split(command)
    first = next(iter(arguments), "")
    if program != "deadheat" or "softmax" in arguments:
        return
    if first in _READ:
        _invoke(arguments, _READ[first])
    elif first in _MEASURE:
        _plan(arguments, tmp_path, monkeypatch)


def _invoke(arguments: list[str], codes: tuple[int, ...] = (0,)) -> None:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code in codes, result.output


def _plan(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def stop(run: object, state: object, name: str, *_: object) -> None:
        planned.append(name)
        raise typer.Exit

    for module in ("nightly", "in_process"):
        monkeypatch.setattr(f"flows.cli.{module}.run_flow", stop)
    write_digits(folder / "imagenet-100", train=16, val=1, classes=2)
    spec = load_spec("mobilenet_v3_small")
    weights = spec.make_arrays(spec.cases["tiny_infer"], 0).params
    save_file(dict(weights), folder / "mobilenet.safetensors")
    monkeypatch.chdir(folder)
    _invoke([*arguments, "--state", str(folder)])
    if arguments[0] != "nightly":  # whose flow plans
        assert (folder / "campaigns" / planned[0] / "plan.json").exists()
    assert planned


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("deadheat nightly --sight local", "No such option"),
        ("deadheat shard shown --site local", "No such command"),
        ("deadheat up --port many", "should be a valid integer"),
        ("prefect worker start --poool deadheat", "--poool"),
        ("prefect wurker start", "wurker"),
        ("make doc", "targets are"),
        ("export DEADHEAT_STAT=state", "nothing of ours"),
        ("sudo python3 deployments/slurm-local/slurm_local.py begin", "does not take"),
        ("curl http://example", "no test knows"),
        ("systemctl start deadheat-sever", "no unit"),
        ("cp deployments/system/a.service /etc", "there is no"),
        ("docker compose --file deployments/compose.yaml logs sever", "no service"),
        ("docker compose --file deployments/compose.yaml run worker deadheat deplo", "No such"),
    ],
)
def test_an_unknown_command_in_the_docs_is_found(command: str, words: str) -> None:
    with pytest.raises(BrokenCommandError, match=re.escape(words)):
        check_command(command)


@pytest.mark.provisions
def test_a_workload_is_added_as_documented(tmp_path: Path, session_state: State) -> None:
    """In a copy of the repository: its files are written, and the tests that it names are run."""
    copy = tmp_path / "repository"
    for name in ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    tests = shutil.ignore_patterns("__pycache__", "flows", "dashboards")
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=tests)
    shutil.copy(ROOT / "pyproject.toml", copy)
    pairs = re.findall(
        r"^## \d\. `(\S+\.py)`\n\n```python\n(.*?)^```$",
        NEW_WORKLOAD.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert [Path(path).name for path, _ in pairs] == ["spec.py", "in_jax.py", "in_torch.py"]
    assert len(pairs) == len(find_blocks(NEW_WORKLOAD, "python"))
    make, touch, look, _, test = find_commands(NEW_WORKLOAD)
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "DEADHEAT_TEST_STATE": str(session_state.root),
    }
    subprocess.run(f"{make} && {touch}", shell=True, check=True, cwd=copy)
    for path, text in pairs:
        (copy / path).write_text(text)
    program, *options = shlex.split(test)
    assert program == ".venv/bin/pytest"
    own = [sys.executable, "-m", "pytest", "--no-header", "-p", "no:cacheprovider", *options]
    done = subprocess.run(own, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"\b(1[0-9]|[2-9][0-9]) passed", done.stdout), done.stdout[-500:]
    listed = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *shlex.split(look)[1:]],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "softmax" in listed.stdout
