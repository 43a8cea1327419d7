"""A new environment imports its packages and computes, on the device that it was built for."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchcore.environments import build as environments
from benchcore.environments.templates import Template, load_template, template_folder
from benchcore.errors import EnvironmentBuildError
from benchcore.protocol import EnvironmentRecord

SECRETS = ("PREFECT_API_AUTH_STRING", "DEADHEAT_DATABASE_URL")


@pytest.mark.parametrize(
    ("usable", "platforms", "reported"), [(True, "cuda", []), (False, None, ["no driver"])]
)
def test_a_cuda_build_proves_itself_on_the_gpu_where_there_is_one(
    usable: bool,
    platforms: str | None,
    reported: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environments.gpu, "survey", lambda: (usable, "no driver"))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    messages: list[str] = []
    device = environments._pick_device("cuda", messages.append)
    code = f"import os; assert (os.environ.get('JAX_PLATFORMS'), device) == {(platforms, device)!r}"
    template = Template(verification=code)
    assert environments._verify(Path(sys.executable), template, device, complete=True) == []
    assert [each.rpartition(": ")[2] for each in messages] == reported


@pytest.mark.provisions
def test_jax_without_a_gpu_does_not_prove_itself_on_one(
    framework_environment: Callable[[str], EnvironmentRecord],
) -> None:
    python = Path(framework_environment("jax").python)
    template = load_template("jax", template_folder())
    assert environments._verify(python, template, "cpu", complete=True) == []
    with pytest.raises(EnvironmentBuildError, match="multiply two matrices on cuda, got exit"):
        environments._verify(python, template, "cuda", complete=True)


def test_verification_gets_no_password_and_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages that it imports are code of others."""
    seen = tmp_path / "environ.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(seen)!r}, 'w'))"
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")
    template = Template(verification=code)
    environments._verify(Path(sys.executable), template, "cpu", complete=True)
    assert not {*json.loads(seen.read_text())} & {*SECRETS}
