"""The newest results stand in a README between its markers, and nothing else of it changes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchcore.names import name_case_in_words
from benchcore.state import State, open_state
from benchcore.store.database import open_database
from benchcore.store.reports.guide import list_answers
from dashboards import readme
from dashboards.formatting import format_speedup
from dashboards.readme import BEGIN, END, replace_block, tabulate_answers, update_readme

_MARKED = f"# Mine\r\n{BEGIN}\nold\n{END}\r\nend"


def test_the_table_has_the_newest_ratio_of_each_case_that_counts(
    nights: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(_MARKED.encode())
    monkeypatch.setenv("DEADHEAT_README", str(path))
    assert update_readme(nights) is None
    before, _, rest = path.read_bytes().decode().partition(BEGIN)
    table, _, after = rest.partition(END)
    assert (before, after) == ("# Mine\r\n", "\r\nend")
    head, rule, *rows = table.strip().splitlines()
    assert head == (
        "| Case | Device | JAX | PyTorch | Speedup of JAX over PyTorch (95 %) | Measured |"
    )
    assert set(rule) == set("| -")
    answers = list_answers(open_database(nights.database_url))
    expected = [
        [
            name_case_in_words(each),
            f"{each['a_version']} / {each['b_version']}",
            format_speedup(each["log_ratio"], each["low"], each["high"]),
            f"{each['started_at']:%Y-%m-%d}",
        ]
        for each in answers
        if each["counts"]
    ]
    cells = [[each.strip() for each in row.strip("|").split("|")] for row in rows]
    found = [[row[0], f"{row[2]} / {row[3].split()[0]}", *row[4:]] for row in cells]
    assert sorted(found) == sorted(expected) and len(found) > 6
    assert {row[3].partition(" ")[2] for row in cells} == {"compiled", "eager"}
    batches = [row[0] for row in cells if row[0].startswith("MLP, inference")]
    assert "batch 8," in batches[0] and "batch 128," in batches[-1], "sorted as numbers"
    assert tabulate_answers([{**answers[0], "counts": False}]).empty


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (None, "create it with the markers"),
        (b"# Mine\n", "add them where the results belong"),
        (f"{END}{BEGIN}".encode(), "in this order"),
        (f"{BEGIN}{BEGIN}{END}".encode(), "once in"),
        (_MARKED.encode("utf-16"), "save it as UTF-8"),
    ],
)
def test_a_file_that_cannot_hold_the_table_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, cure: str
) -> None:
    path = tmp_path / "README.md"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("DEADHEAT_README", str(path))
    reason = update_readme(open_state(tmp_path / "state"))
    assert reason is not None and reason.startswith("DEADHEAT_README has no new results: ")
    assert cure in reason and repr(str(path)) in reason
    assert path.exists() == (content is not None)
    assert content is None or path.read_bytes() == content


def test_the_file_is_replaced_as_a_whole_or_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no room for you")

    path, link = tmp_path / "README.md", tmp_path / "link.md"
    path.write_text(f"{BEGIN}{END}")
    link.symlink_to(path)
    monkeypatch.setenv("DEADHEAT_README", str(link))
    with monkeypatch.context() as broken:
        broken.setattr(readme, "replace_file", refuse)
        reason = update_readme(open_state(tmp_path / "state"))
    assert reason is not None and "in a folder that this user can write to" in reason
    assert path.read_text() == f"{BEGIN}{END}"
    assert update_readme(open_state(tmp_path / "state")) is None
    assert "No pair counts yet." in path.read_text() and link.is_symlink()
    assert [each.name for each in tmp_path.glob("*.part")] == []
    monkeypatch.delenv("DEADHEAT_README")
    assert update_readme(State(tmp_path / "nowhere")) is None


def test_hostile_text_stays_text_in_a_readme(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"{BEGIN}{END}")
    replace_block(path, pd.DataFrame({"Case": ["<img src=x> [a](b) | c"]}))
    assert "| \\<img src=x\\> \\[a\\](b) \\| c |" in path.read_text()
