"""`deadheat judge` on anyone's files: what it answers, and what it refuses."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import benchcore.experiments.user_files
from benchcore.errors import UserError
from benchcore.experiments.measurement_files import read_allocations
from flows.cli.main import app


def _judge(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["judge", *map(str, arguments)], catch_exceptions=False)


def _document(truth: float, num: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(num)
    entries = []
    for number in range(num):
        a = 0.1 * math.exp(rng.normal(0, 0.03)) * np.exp(rng.normal(0, 0.003, 6))
        b = a * np.exp(truth + rng.normal(0, 0.003, 6))
        entries.append({"node": f"n{number}", "pairs": np.stack([a, b], axis=1).tolist()})
    return {"allocations": entries}


def _write(folder: Path, name: str, document: object) -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_the_json_of_a_file_has_exactly_the_documented_fields(tmp_path: Path) -> None:
    answered = json.loads(_judge(_write(tmp_path, "x.json", _document(0.05)), "--json").stdout)
    assert list(answered) == ["verdict", "log_ratio", "ci", "p"]
    assert answered["verdict"] == "different"
    low, high = answered["ci"]
    assert low < 0.05 < high and low < answered["log_ratio"] < high  # t_b is the longer one
    assert 0 < answered["p"] < 0.01


def test_cases_of_a_folder_inform_each_others_spread(tmp_path: Path) -> None:
    """Two allocations show little of their own spread; those of nine cases show enough."""
    rng = np.random.default_rng(6)
    for number in range(9):
        pairs = [[0.1, 0.1 * math.exp(0.03 + step)] for step in rng.normal(0, 0.008, 2)]
        _write(tmp_path, f"{number}.json", {"allocations": [{"pairs": [each]} for each in pairs]})
    together = json.loads(_judge(tmp_path, "--json").stdout)
    alone = {name: json.loads(_judge(tmp_path / name, "--json").stdout) for name in together}
    assert sum(each["verdict"] == "different" for each in together.values()) >= 8
    assert sum(each["verdict"] == "different" for each in alone.values()) <= 5


def test_one_allocation_is_unknown_with_its_reason(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.json", _document(0.05, num=1))
    answered = json.loads(_judge(path, "--json").stdout)
    assert (answered["verdict"], answered["ci"], answered["p"]) == ("unknown", None, None)
    assert answered["log_ratio"] == pytest.approx(0.05, abs=0.01)
    assert "one allocation" in answered["reason"]


def test_the_equivalence_bound_can_be_set(tmp_path: Path) -> None:
    path = _write(tmp_path, "x.json", _document(0.0))
    assert json.loads(_judge(path, "--json").stdout)["verdict"] == "same"
    strict = json.loads(_judge(path, "--json", "--bound", "0.001").stdout)
    assert strict["verdict"] == "unknown"


def test_values_around_zero_are_compared_on_a_linear_scale(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)

    def write(difference: float) -> Path:
        pairs = [[[x, x + difference + rng.normal(0, 0.01)] for x in rng.normal(0, 1, 6)]
                 for _ in range(5)]  # fmt: skip
        document = {"scale": "linear", "allocations": [{"pairs": each} for each in pairs]}
        return _write(tmp_path, "x.json", document)

    answered = json.loads(_judge(write(0.5), "--json").stdout)
    assert list(answered) == ["verdict", "difference", "ci", "p", "scale"]
    assert (answered["verdict"], answered["scale"]) == ("different", "linear")
    assert answered["difference"] == pytest.approx(0.5, abs=0.02)  # in the values' unit
    assert answered["ci"][0] < answered["difference"] < answered["ci"][1]
    assert json.loads(_judge(write(0.0), "--json").stdout)["verdict"] == "same"
    assert "difference" in _judge(write(0.5)).stdout


def test_a_folder_is_answered_by_file_name_despite_broken_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = 'a"b\n$(id);<script>.json'
    _write(tmp_path, strange, _document(0.05))
    _write(tmp_path, "broken.json", "{")
    _write(tmp_path, "passed over.txt", "no JSON")
    (tmp_path / "folder.json").mkdir()
    done = _judge(tmp_path, "--json")
    answered = json.loads(done.stdout)
    assert done.exit_code == 2
    assert answered[strange]["verdict"] == "different"
    assert "wanted JSON" in answered["broken.json"]["error"]
    assert "wanted a file" in answered["folder.json"]["error"]
    assert set(answered) == {strange, "broken.json", "folder.json"}
    assert done.stderr.count("deadheat: ") == 2
    assert _judge(tmp_path).exit_code == 2  # as a table, too
    monkeypatch.setattr(benchcore.experiments.user_files, "_ENOUGH_TO_SHARE", 1)
    assert json.loads(_judge(tmp_path, "--json").stdout) == answered  # in several processes


def test_the_text_output_is_a_table(tmp_path: Path) -> None:
    printed = _judge(_write(tmp_path, "x.json", _document(0.05))).stdout
    assert "different" in printed and "a is faster" in printed


PAIR = [0.1, 0.2]


def _pairs(*pairs: object) -> dict[str, Any]:
    return {"allocations": [{"pairs": [PAIR, *pairs]}, {"pairs": [PAIR]}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "wanted JSON"),
        ("[" * 100_000, "wanted JSON"),
        ('{"allocations": [{"pairs": [[0.1, NaN]]}]}', "above zero, got"),
        ('{"allocations": [{"pairs": [[0.1, 1e999]]}]}', "above zero, got"),
        ('{"allocations": [{"pairs": [[0.1, 1' + "0" * 400 + "]]}]}", "above zero, got"),
        (_pairs([0.1, -0.2]), "got [0.1, -0.2] as pair 1 of allocation 0"),
        (_pairs([0.0, 0.2]), "above zero, got"),
        (_pairs([0.0, 0.2]), 'or set "scale": "linear" if these are not times'),
        ({**_pairs([0.0, math.inf]), "scale": "linear"}, "got [0.0, inf]"),
        (_pairs([True, 0.2]), "above zero, got"),
        (_pairs(["0.1", 0.2]), "above zero, got"),
        (_pairs([0.1, None]), "above zero, got"),
        (_pairs([0.1]), "above zero, got"),
        (_pairs(0.1), "above zero, got"),
        ([], "without such a list"),
        ({"alocations": []}, "without such a list"),
        ({"allocations": [[PAIR]]}, "without such a list"),
        ({"allocations": [{"pair": [PAIR]}]}, "wanted a list as the pairs"),
        ({"allocations": [{"pairs": [PAIR, [1, 2.5]]}] * 2}, "same pairs in allocations 0 and 1"),
    ],
)
def test_a_file_that_is_not_a_measurement_is_refused(
    document: object, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        read_allocations(_write(tmp_path, "x.json", document))
    assert words in str(refused.value)
    assert len(str(refused.value)) < 500


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("pipe.json", "wanted a file"),
        ("missing.json", "wanted a file"),
        ("bytes.json", "wanted text in UTF-8"),
        ("empty", "got none"),
    ):
        with pytest.raises(UserError, match=words):
            _judge(tmp_path / name, "--json")
