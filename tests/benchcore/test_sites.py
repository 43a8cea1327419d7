"""Sites: read strictly, refused clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchcore.errors import UserError
from benchcore.sites import list_sites, load_site


def test_every_site_that_comes_along_loads() -> None:
    assert "local" in list_sites()
    for name in list_sites():
        assert load_site(name).name == name


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEADHEAT_SITES", str(tmp_path))
    return tmp_path


def test_a_site_is_a_file_of_ones_own(own_folder: Path) -> None:
    (own_folder / "mine.toml").write_text('name = "mine"\nkind = "local"\n')
    assert load_site("mine").name == "mine"
    assert {"local", "mine"} <= set(list_sites())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "as TOML"),
        ("\xff", "as TOML"),
        ('name = "bad"', "keys 'name' and 'kind'"),
        ('name = "bad"\nkind = "local"\nextra = 1', "keys 'name' and 'kind'"),
        ('name = "bad"\nkind = "moon"', "kind 'moon'"),
        ('name = "../a"\nkind = "local"', "name '../a'"),
        ('name = "other"\nkind = "local"', "name 'other'"),
    ],
)
def test_a_malformed_site_is_refused(own_folder: Path, text: str, words: str) -> None:
    (own_folder / "bad.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        load_site("bad")


@pytest.mark.parametrize(
    "name", ["nope", "../sites/local", "", "/etc/passwd", "local.toml", "local/", "x" * 10_000]
)
def test_what_is_no_sites_name_is_refused_and_never_a_path(name: str) -> None:
    with pytest.raises(UserError, match="no site"):
        load_site(name)
