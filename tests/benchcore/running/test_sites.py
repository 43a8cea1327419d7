"""Sites: read strictly, refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.running.sites import find_pool, list_sites, load_site


def test_every_bundled_site_loads() -> None:
    assert "local" in list_sites()
    for name in list_sites():
        assert load_site(name).name == name


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEADHEAT_SITES", str(tmp_path))
    return tmp_path


def test_a_site_can_be_a_file_of_the_user(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text('name = "mine"\nkind = "local"\n')
    assert load_site("mine").name == "mine"
    assert {"local", "mine"} <= set(list_sites())


SLURM = """
name = "bad"
kind = "slurm"
state = "/shared/deadheat"
[pools.a100]
partition = "gpu"
gpu_type = "a100"
gpus = 2
modules = ["cuda/12.8"]
"""


def test_a_slurm_site_lists_what_each_pool_requests(own_folder: Path) -> None:
    (own_folder / "bad.toml").write_text(SLURM)
    site = load_site("bad")
    name, pool = find_pool(site, None)
    assert site.state == "/shared/deadheat"
    assert (name, pool) == find_pool(site, "a100")
    assert (pool.partition, pool.gpu_type, pool.gpus) == ("gpu", "a100", 2)
    with pytest.raises(UserError, match="got 'h100'; pools are a100"):
        find_pool(site, "h100")
    with pytest.raises(UserError, match="kind 'local'"):
        find_pool(load_site("local"), "a100")
    assert find_pool(load_site("slurm-local"), None)[0] == "h100"
    (own_folder / "bad.toml").write_text(SLURM + '[pools.b100]\npartition = "gpu"\n')
    with pytest.raises(UserError, match="got ''; pools are a100, b100"):
        find_pool(load_site("bad"), None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "as TOML"),
        ("\xff", "as TOML"),
        ('name = "bad"', "kind: Field required"),
        ('name = "bad"\nkind = "local"\nextra = 1', "extra: Extra inputs"),
        ('name = "bad"\nkind = "moon"', "kind: Input should be 'local' or 'slurm'"),
        ('name = "../a"\nkind = "local"', "name: String should match"),
        ('name = "other"\nkind = "local"', "name 'other'"),
        ('name = "bad"\nkind = "slurm"', "one table"),
        ('name = "bad"\nkind = "local"\nstate = "/x"', "must have neither"),
        (
            SLURM.replace("[pools", 'default_pool = "b"\n[pools', 1),
            "must be one of the site's pools",
        ),
        (SLURM.replace("[pools", "shard_minutes = 0\n[pools", 1), "shard_minutes: Input should"),
        (SLURM.replace("/shared", "shared"), "state: String should match"),
        (SLURM.replace("/shared", "/shared $(id)"), "state: String should match"),
        (SLURM.replace('"gpu"', '"gpu; id"'), "pools.a100.partition: String should match"),
        (SLURM.replace('"gpu"', '"--wrap=id"'), "pools.a100.partition: String should match"),
        (SLURM.replace('"cuda/12.8"', '"cuda\\nid"'), "pools.a100.modules.0: String should match"),
        (SLURM.replace("gpus = 2", "gpus = 17"), "pools.a100.gpus: Input should be less"),
        (SLURM.replace("gpus = 2", "gpus = 2\ntime = 9"), "pools.a100.time: Extra inputs"),
    ],
)
def test_a_malformed_site_is_refused(own_folder: Path, text: str, words: str) -> None:
    (own_folder / "bad.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        load_site("bad")


@pytest.mark.parametrize(
    "name", ["nope", "../sites/local", "", "/etc/passwd", "local.toml", "local/", "x" * 10_000]
)
def test_an_invalid_site_name_is_refused_and_never_used_as_a_path(name: str) -> None:
    with pytest.raises(UserError, match="no site"):
        load_site(name)
