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


def test_a_site_is_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nkind = "local"\n')
    assert load_site(str(path)).name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "as TOML"),
        ("\xff", "as TOML"),
        ('name = "a"', "keys 'name' and 'kind'"),
        ('name = "a"\nkind = "local"\nextra = 1', "keys 'name' and 'kind'"),
        ('name = "a"\nkind = "moon"', "kind 'moon'"),
        ('name = "../a"\nkind = "local"', "name '../a'"),
    ],
)
def test_a_malformed_site_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=words):
        load_site(str(path))


@pytest.mark.parametrize("name", ["nope", "../local", "", "/etc/passwd", "missing.toml"])
def test_an_unknown_site_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"no site|as TOML"):
        load_site(name)
