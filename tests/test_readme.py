"""The READMEs are short and their links work; test_docs.py checks their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md"))]
PACKAGES = ("benchcore", "dashboards", "data_checks", "deployments", "flows", "tasks")
MOST_WITHOUT_README = 5


def _list_unexplained_modules(folder: Path) -> list[str]:
    """Modules of a large folder that its README doesn't name; all if it has no README."""
    modules = [each.stem for each in sorted(folder.glob("[a-z]*.py"))]
    if len(modules) <= MOST_WITHOUT_README:
        return []
    readme = folder / "README.md"
    words = set(re.findall(r"\w+", readme.read_text())) if readme.exists() else set[str]()
    return [each for each in modules if each not in words]


def test_the_readme_is_short_and_runs_early() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("make nightly") for line in lines[:25])
    for readme in READMES[1:]:
        assert _count_lines(readme) <= 40, readme


def _count_lines(readme: Path) -> int:
    """Without the glossary."""
    return len(readme.read_text().partition("## Glossary")[0].splitlines())


def test_a_large_folder_has_a_short_readme_that_names_every_module() -> None:
    folders = sorted({path.parent for top in PACKAGES for path in (ROOT / top).rglob("*.py")})
    assert len(folders) > 30
    for folder in [*folders, ROOT / "tests"]:
        missing = _list_unexplained_modules(folder)
        assert not missing, f"{folder}/README.md must name {', '.join(missing)}"
        if len(list(folder.glob("[a-z]*.py"))) > MOST_WITHOUT_README:
            assert _count_lines(folder / "README.md") <= 40, folder


def test_a_module_missing_from_its_readme_is_found(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"part{number}.py").touch()
    assert len(_list_unexplained_modules(tmp_path)) == 6
    (tmp_path / "README.md").write_text("`part0.py`, part1, part2, part3 and `part5.py`\n")
    assert _list_unexplained_modules(tmp_path) == ["part4"]


_OTHERS = ("benchmarks", "docs", "results", "tests")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(page for top in (*PACKAGES, *_OTHERS) for page in sorted((ROOT / top).rglob("*.md"))),
]


@pytest.mark.parametrize("readme", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(readme: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", readme.read_text()):
        if not target.startswith(("http", "#")):
            assert (readme.parent / target).exists(), target
