"""The command line: documented, and bad input refused with exit code 2 and one paragraph."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_here
from typer.testing import CliRunner

from benchcore.cell.measure import gpu
from benchcore.errors import UserError
from benchcore.state import State
from flows.cli.main import SECTIONS, app, load_commands

ROOT = Path(__file__).parents[3]
DEADHEAT = str(Path(sys.executable).parent / "deadheat")
OFFLINE = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}


def _run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DEADHEAT, *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("nightly --python $(id)", "wanted a Python version such as '3.12' or '3.12.1'"),
        ("nightly --profile nope", "no profile 'nope'; profiles are laptop, ci"),
        ("nightly --site nope", "no site 'nope'; sites are bad, local"),
        ("nightly --site bad", "as TOML in "),
        ("nightly --site ./bad.toml", "no site './bad.toml'"),
        ("nightly --site slurm-local", "got no PREFECT_API_URL"),
        ("nightly --site slurm-local --pool x", "wanted a pool of site 'slurm-local', got 'x'"),
        ("compare mlp --case tiny_infer --a jax --b jax --pool x", "wanted a Slurm site"),
        ("shard show --site local", "wanted a Slurm site, got 'local'"),
        ("nightly --campaign ../up", "wanted a campaign name"),
        ("nightly --campaign=", "wanted a campaign name"),
        ("nightly --python a:x:b", "got 'a:x:b'; choose another with --python"),
        ("backfill jax --below banana", "wanted a version such as 0.10.1, got 'banana'"),
        ("backfill jax --campaign ../up", "wanted a campaign name"),
        ("calibration --profile nope", "no profile 'nope'"),
        (
            "sweep mlp --use-case infer --batches 1,8 --a jax --b torch --csv /nope/x.csv",
            "wanted to write '/nope/x.csv', but its folder does not exist",
        ),
        ("nightly --state /dev/null/x", "wanted a writable state folder"),
        ("run nope --case x --contender jax", "no workload 'nope'"),
        ("run mlp --case nope --contender jax", "no case 'nope' in workload 'mlp'"),
        ("run mlp --case tiny_infer --contender jax==99.0", "99.0"),
        ("run mlp --case tiny_infer --contender jax --python 2.7", "2.7"),
        ("compare nope --case x --a jax --b torch", "no workload 'nope'"),
        ("compare mlp --case nope --a jax --b torch", "no case 'nope' in workload 'mlp'"),
        ("compare mlp --use-case infer --a jax --b torch", "match: tiny_infer"),
        ("compare mlp --batch 7 --a jax --b torch", "batch '7', but none matches; there are"),
        ("compare mlp --precision ;rm --a jax --b torch", "precision ';rm', but none matches"),
        ("compare mlp --case infer_b128 --batch 8 --a jax --b jax", "case 'infer_b128' of 'mlp'"),
        ("compare mlp --case infer_b128 --a tensorflow --b jax", "tensorflow"),
        (
            "compare matmul --case tiny_op --a jax --b torch --checkpoint bad.safetensors",
            "model, got 'matmul'; there are efficientnet_b0",
        ),
        (
            "compare mobilenet_v3_small --case infer_b1 --a jax --b jax --checkpoint $(id).pth",
            "wanted a checkpoint, got '$(id).pth': No such file",
        ),
        ("equivalence resnet50 --checkpoint .", "wanted a checkpoint that ends in .safetensors"),
        ("equivalence --all --checkpoint x.pth", "whose weights --checkpoint has, got --all"),
        (
            "train vit_b_16 --dataset x --a jax --b jax --pixels 64 --checkpoint x.pth",
            "has the whole model's weights, got one with fewer layers or tokens",
        ),
        ("compare mlp --case infer_b128 --a jax==99.0 --b jax", "99.0"),
        ("compare mlp --case infer_b128 --a jax --b jax --b-set compile=none", "compile=jit"),
        ("compare mlp --case infer_b128 --a jax --b jax --b-set $(id)", "'$(id)'"),
        (
            "compare mlp --case infer_b128 --a jax --b jax --b-set precision=bf16",
            "of the case: both",
        ),
        ("compare mlp --case infer_b128 --a jax --b jax --b-set threads=1", "the harness's: both"),
        ("compare mlp --case infer_b128 --a jax --b jax --budget nan", "--budget from 0"),
        ("compare mlp --case infer_b128 --a jax --b jax --target nan", "--target from 0.0001"),
        (
            "compare mlp --case infer_b128 --a jax --b jax --max-starts 3",
            "--max-starts from 5",
        ),
        ("compare mlp --case infer_b128 --a jax --b jax --campaign ../up", "campaign name"),
        ("compare mlp --case infer_b128 --a jax --b jax --site nope", "no site 'nope'"),
        ("compare mlp --case infer_b128 --a jax --b jax --starts 1", "--starts from 2 to 100"),
        ("compare mlp --case infer_b128 --a jax --b jax --device cuda:x", "no device 'cuda:x'"),
        ("compare mlp --case infer_b128 --a jax --b jax --device $(id)", "no device '$(id)'"),
        ("run mlp --case infer_b128 --contender jax --device CPU", "devices are 'cpu', 'cuda'"),
        (
            "compare mlp --case tiny_infer --a torch --b torch --b-set layout=channels_last",
            "for torch in workload 'mlp', which takes compile=none|default|",
        ),
        (
            "run mlp --case tiny_infer --contender torch,layout=channels_last",
            "no setting 'layout=channels_last'",
        ),
        ("run bad.json --device cpu", "a plan names its own values, got --device as well"),
        ("run bad.json --campaign x --starts 5", "got --starts, --campaign as well; leave it out"),
        (
            "compare mlp --case infer_b128 --a jax --b torch --track nope",
            "wanted a track of default, tuned, got 'nope'",
        ),
        (
            "compare mlp --case infer_b128 --a jax --b torch --track tuned --b-set compile=none",
            "wanted no settings for track 'tuned'",
        ),
        (
            "seed0 --benchmark cats --use-case 1",
            "of mnist, cifar10, nlp, gnn and a use case of 1, 2",
        ),
        ("seed0 --benchmark mnist --use-case 5", "got 'mnist' and 5"),
        ("seed0 --benchmark mnist --use-case 1 --site nope --dry-run", "no site 'nope'"),
        ("seed0 --benchmark mnist --use-case 1 --scripts nope --dry-run", "with --scripts"),
        (
            "sweep mlp --a jax --b torch",
            "wanted one of --batches, --devices, --sizes and --models, got 0",
        ),
        (
            "sweep mlp --batches 8,x --a jax --b torch",
            "wanted numbers as values of batch, got '8, x'",
        ),
        ("sweep mlp --batches 8 --a jax --b torch", "wanted 2 to 20 different values of batch"),
        ("sweep nope --batches 1,8 --a jax --b torch", "no workload 'nope'"),
        ("sweep mlp --use-case infer --batches 8,7 --a jax --b torch", "batch '7', but none"),
        ("sweep mlp --sizes base,x --a jax --b torch", "size 'base', but none matches"),
        ("tune nope", "no workload 'nope'"),
        ("tune mlp --case nope", "no case 'nope' in workload 'mlp'"),
        ("tune mlp --use-case train", "match: tiny_train"),
        ("tune mlp --case tiny_train --starts 1", "wanted --starts from 2 to 100, got 1"),
        ("tune mlp --case tiny_train --rounds 101", "wanted --rounds from 2 to 100, got 101"),
        ("tune mlp --case tiny_train --candidates 0", "wanted --candidates from 1 to 1000"),
        ("tune mlp --case tiny_train --budget nan", "wanted --budget from 0 to 1e+07, got nan"),
        ("tune mlp --case tiny_train --gain -1", "wanted --gain from 0 to 0.5, got -1.0"),
        ("tune mlp --case tiny_train --gain inf", "wanted --gain from 0 to 0.5, got inf"),
        ("tune mlp --case tiny_train --jax torch", "wanted a version of jax with --jax"),
        ("tune mlp --case tiny_train --torch $(id)", "'$(id)'"),
        ("tune mlp --case tiny_train --device cuda:x", "no device 'cuda:x'"),
        ("equivalence", "or --all, got None; choose one of cifar_resnet, efficientnet_b0, "),
        ("equivalence noop", "or --all, got 'noop'"),
        ("equivalence mlp --all", "both a workload and --all"),
        ("equivalence mlp --precision fp7", "no precision 'fp7'; precisions are fp32_ieee"),
        ("guide --use-case nope", "wanted a use case, got 'nope'; there are"),
        ("up --port 5000 --dashboard-port 5000", "wanted a port of its own for each service, got"),
        ("equivalence ops --precision tf32", "wanted a workload with proof cases"),
        ("equivalence graph_gcn --precision bf16", "no case in bf16; cases are in fp32_ieee, tf32"),
        ("equivalence mlp --version tensorflow", "tensorflow"),
        ("equivalence mlp --version stdlib --version jax", "computes nothing"),
        ("run bad.json", "wanted a plan as JSON in 'bad.json'"),
        ("run missing.json", "wanted a plan as JSON in 'missing.json'"),
        ("environments nonsense", "nonsense"),
        ("verify --device quantum", "no device 'quantum'; devices are 'cpu', 'cuda'"),
        ("verify --device cuda:-1", "no device 'cuda:-1'"),
        ("verify --device cpu --python 3", "wanted a Python version such as '3.12'"),
        ("check never", "no campaign 'never'"),
        ("report never", "no campaign 'never'"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(
    arguments: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text("name = ")
    (tmp_path / "bad.json").write_text("{")
    sites = {"DEADHEAT_SITES": str(tmp_path)}
    done = run_here(*arguments.split(), cwd=tmp_path, environ=sites)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in written} <= {"bad.toml", "bad.json"}


def test_no_network_and_no_cache_is_bad_input_too_and_leaves_no_plan(
    tmp_path: Path, prefect_api: None
) -> None:
    cache = str(tmp_path / "empty-cache")
    done = _run("nightly", "--profile", "ci", cwd=tmp_path, UV_CACHE_DIR=cache, **OFFLINE)
    assert done.returncode == 2, done.stderr
    assert "network" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("plan.json"))


@pytest.mark.provisions
def test_verify_runs_real_duels_on_a_cpu_and_stores_nothing(session_state: State) -> None:
    state = session_state.root
    before = {*session_state.spool.rglob("*.json"), *session_state.campaigns.glob("*")}
    done = run_here("verify", "--device", "cpu", "--state", str(state), "--json", cwd=state)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)
    assert {each["status"] for each in checks if each["check"] != "energy"} == {"passed"}
    names = [each["check"] for each in checks]
    assert (names.count("environment"), names.count("runs"), names.count("precision")) == (2, 2, 2)
    assert {"device", "energy", "parity", "outputs"} <= set(names)
    assert {*session_state.spool.rglob("*.json"), *session_state.campaigns.glob("*")} == before


@pytest.mark.skipif(gpu.survey()[0], reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:7", "tpu"])
def test_verify_names_the_absent_device_with_advice(device: str, tmp_path: Path) -> None:
    done = run_here("verify", "--device", device, "--json", cwd=tmp_path)
    assert done.returncode == 1
    (check,) = json.loads(done.stdout)
    assert (check["check"], check["status"]) == ("device", "failed")
    assert f"wanted device '{device}'" in check["result"]
    assert "NVIDIA driver" in check["fix"]


def test_verify_names_what_is_missing_and_exits_with_1(tmp_path: Path) -> None:
    fine = run_here("verify", "--profile", "ci", "--json", cwd=tmp_path)
    assert fine.returncode == 0, fine.stdout
    findings = {finding["name"]: finding for finding in json.loads(fine.stdout)}
    assert findings["uv"]["status"] == "ok"
    nowhere = {"DEADHEAT_DATABASE_URL": "postgresql+psycopg://127.0.0.1:9/deadheat"}
    lacking = run_here("verify", "--json", cwd=tmp_path, environ=nowhere)
    findings = {finding["name"]: finding for finding in json.loads(lacking.stdout)}
    assert findings["database"]["status"] == "missing"
    assert lacking.returncode == 1
    assert not (tmp_path / "state").exists()


_OURS = {
    "flows",
    "flows.cli",
    "flows.cli.main",
    "flows.cli.boundary",
    "benchcore",
    "benchcore.errors",
}
_OTHERS = {"annotated_doc", "shellingham", "typer"}
"""What `deadheat --help` may import beside the standard library: it starts in 0.2 s of CPU."""


def test_the_help_imports_no_command() -> None:
    program = (
        "import sys; before = set(sys.modules); sys.argv = ['deadheat', '--help']\n"
        "from flows.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {
        name
        for name in done.stderr.split()
        if name not in _OURS and name.partition(".")[0] not in {*sys.stdlib_module_names, *_OTHERS}
    }
    assert not imported, f"`deadheat --help` must not import {sorted(imported)}"
    assert "Understand a change:" in done.stdout and "bisect" in done.stdout


_SLOW_TO_IMPORT = {
    "alembic",
    "altair",
    "great_expectations",
    "pandas",
    "prefect",
    "scipy.stats",
    "sqlalchemy",
}


@pytest.mark.parametrize("command", ["plan", "detect"])
def test_commands_that_measure_nothing_import_nothing_slow(command: str) -> None:
    """What they need of these they import where they need it, such as a database of past nights."""
    program = f"import sys, flows.cli.{command}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"flows.cli.{command}" in done.stdout
    assert not _SLOW_TO_IMPORT & set(done.stdout.split())


def test_the_help_lists_each_command_as_the_command_describes_itself() -> None:
    commands = load_commands().commands
    assert [*commands] == [each.name for listed in SECTIONS.values() for each in listed]
    for each in (each for listed in SECTIONS.values() for each in listed):
        help_text = commands[each.name].help or ""
        assert " ".join(help_text.split()).startswith(each.help), each.name


_VERBS = re.compile(
    r"(Add|Assign|Begin|Build|Change|Choose|Compile|Count|Crop|Decode|End|Export|Find|Ignore|Judge|Keep|Leave|Load|"
    r"Measure|Name|Print|Prove|Read|Record|Remove|Repeat|Reproduce|Run|Serve|Set|Show|Start|Stop|Submit|Take|Train|"
    r"Try|Use|Wait|Write) "
)
"""How a help text begins. A verb that is missing here can be added."""


def test_every_option_names_its_value_and_begins_with_a_verb() -> None:
    commands = list(load_commands().commands.values())
    commands += [each for group in commands for each in getattr(group, "commands", {}).values()]
    options = [each for command in commands for each in command.params]
    assert len(options) > 200
    for each in options:
        text = getattr(each, "help", None) or ""
        assert each.metavar or getattr(each, "is_flag", False), f"{each.name} has no placeholder"
        if each.param_type_name == "option":
            assert _VERBS.match(text), f"{each.name}: {text}"


def test_a_misspelt_command_gets_a_suggestion(tmp_path: Path) -> None:
    done = run_here("nigthly", cwd=tmp_path)
    assert done.returncode == 2
    assert "No such command 'nigthly'. Did you mean 'nightly'?" in done.stderr


def test_workloads_are_listed_as_json(tmp_path: Path) -> None:
    rows = json.loads(_run("workloads", "--json", cwd=tmp_path).stdout)
    assert {"mlp", "noop", "resnet50"} <= {row["workload"] for row in rows}
    devices = {(row["workload"], row["case"]): row["devices"] for row in rows}
    assert (devices["noop", "bare"], devices["graph_gcn", "train_b32_x2"]) == (1, 2)


def test_every_command_and_variable_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = [
        f"{name} {each}".strip()
        for name, command in load_commands().commands.items()
        for each in ("", *getattr(command, "commands", ()))
    ]
    assert len(commands) >= 30
    for command in commands:
        assert f"deadheat {command}" in readme, f"README.md says nothing of `deadheat {command}`"
    for variable in (
        "DEADHEAT_STATE",
        "DEADHEAT_SITES",
        "DEADHEAT_DATABASE_URL",
        "PREFECT_API_URL",
    ):
        assert variable in readme, f"README.md says nothing of {variable}"


def _show_shard(*arguments: str) -> str:
    shown = CliRunner().invoke(app, ["shard", "show", *arguments], catch_exceptions=False)
    return shown.stdout


def test_a_shards_batch_script_is_shown(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    arguments = ("--site", "slurm-local", "--pool", "h100", "--state", state)
    script = _show_shard(*arguments)
    assert "#SBATCH --gres=gpu:h100:1\n" in script
    assert f"#SBATCH --output={state}/slurm-jobs/%j.log\n" in script
    assert f"exec {sys.executable} -m prefect.engine\n" in script
    shown = json.loads(_show_shard(*arguments, "--json"))
    assert shown["script"] == script and shown["allocation"]["partition"] == "gpu"
    assert not Path(state).exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pool", "nope"], "got 'nope'; pools are h100, urgent; choose one with --pool"),
        (["--pool", "$(id)"], r"got '\$\(id\)'"),
        (["--pool", "h100", "--state", "/a$(id)"], "wanted an absolute folder"),
    ],
)
def test_the_template_of_an_unknown_site_or_pool_is_refused(
    arguments: list[str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        _show_shard("--site", "slurm-local", *arguments)


def test_a_dry_run_of_seed0_writes_both_scripts_and_measures_nothing(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    command = ("seed0", "--benchmark", "nlp", "--use-case", "4", "--state", state, "--dry-run")
    done = run_here(*command, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scripts = [Path(each).name for each in json.loads(done.stdout)["scripts"]]
    assert scripts == ["jax_nlp_4.sh", "torch_nlp_4.sh"]
    assert sorted(path.name for path in tmp_path.iterdir()) == scripts
