"""The READMEs are short and their links work; test_docs.py checks their commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("*/README.md")),
    *(
        ROOT / "benchcore" / room / "README.md"
        for room in ("environments", "running", "running/slurm")
    ),
]


def test_the_readme_is_short_and_runs_early() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("make nightly") for line in lines[:25])
    for readme in READMES[1:]:
        text, _, _ = readme.read_text().partition("## Glossary")
        assert len(text.splitlines()) <= 40, readme


PAGES = [
    *READMES,
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "benchcore").rglob("*.md")),
]


@pytest.mark.parametrize("readme", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(readme: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", readme.read_text()):
        if not target.startswith(("http", "#")):
            assert (readme.parent / target).exists(), target
